"""The same work with Optuna's RDB storage or MLflow's SQLite store: run by `scale.py`, in their environment.

    python scale_others.py optuna|mlflow DATABASE SETTINGS

Fills the store with a given number of results, directly in its tables, prints how long that took, then does what
each line of standard input requests (record, best, filter) and prints the seconds that it took. Only the store's
public Python interface is timed. A result is one trial: what was set, rates, versions, and the raw record as JSON
(token ids, stamps, text, readings), in as few calls as the store allows.
"""

import datetime as dt
import json
import os
import random
import sqlite3
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

EXPERIMENTS = 6
ARMS = 8  # of each experiment
WHOLE = 1_000  # results of one transaction while filling
Settings = dict[str, Any]


def payload(rng: random.Random, settings: Settings) -> dict[str, str]:
    """The raw record of one result, as JSON texts."""
    count = settings["tokens"]
    return {
        "token_ids": json.dumps([rng.randrange(150_000) for _ in range(count)], separators=(",", ":")),
        "stamps_us": json.dumps([300_000 + 20_000 * n for n in range(count)], separators=(",", ":")),
        "text": json.dumps("word " * count),
        "readings": json.dumps({f"r{n}": round(rng.random(), 4) for n in range(settings["readings"])}),
        "versions": json.dumps({"mlx": "0.32.4", "mlx-lm": "0.32.2", "os_build": "24F74"}),
    }


def results(settings: Settings) -> Iterator[tuple[int, str, float, float, dict[str, str]]]:
    """Experiment, arm, start (seconds since the epoch), rate and record of each result to fill in."""
    rng = random.Random(0)
    records = [payload(rng, settings) for _ in range(50)]
    step = (settings["until"] - settings["start"]) / settings["results"]
    for number in range(settings["results"]):
        experiment, arm = number % EXPERIMENTS, number // EXPERIMENTS % ARMS
        name = settings["arm"] if (experiment, arm) == (0, 0) else f"arm {experiment}.{arm}"
        yield experiment, name, settings["start"] + number * step, 50 * rng.lognormvariate(0, 0.05), rng.choice(records)


class Optuna:
    """One study per experiment; a result is a finished trial, added whole."""

    def __init__(self, path: Path, settings: Settings) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.optuna, self.settings, self.url, self.path = optuna, settings, f"sqlite:///{path}", path
        self.rng = random.Random(1)
        names = [f"arm {n}" for n in range(ARMS)]
        self.arms = optuna.distributions.CategoricalDistribution([settings["arm"], *names])
        self.studies = [
            optuna.create_study(storage=self.url, study_name=f"experiment {n}", direction="maximize")
            for n in range(EXPERIMENTS)
        ]

    def fill(self) -> None:
        distribution = self.optuna.distributions.distribution_to_json(self.arms)
        rate = self.optuna.distributions.distribution_to_json(self.optuna.distributions.IntDistribution(2, 8))
        with closing(sqlite3.connect(self.path)) as connection:
            for number, (experiment, arm, at, tps, record) in enumerate(results(self.settings), start=1):
                when = dt.datetime.fromtimestamp(at).isoformat(" ")  # noqa: DTZ006  (Optuna's own: naive local times)
                trial = (number, number // EXPERIMENTS, experiment + 1, "COMPLETE", when, when)
                connection.execute("INSERT INTO trials VALUES (?, ?, ?, ?, ?, ?)", trial)
                connection.execute(
                    "INSERT INTO trial_values (trial_id, objective, value, value_type) VALUES (?, 0, ?, 'FINITE')",
                    (number, tps),
                )
                index = 0.0 if arm == self.settings["arm"] else 1.0
                connection.executemany(
                    "INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json)"
                    " VALUES (?, ?, ?, ?)",
                    [(number, "arm", index, distribution), (number, "block_size", 4.0, rate)],
                )
                connection.executemany(
                    "INSERT INTO trial_user_attributes (trial_id, key, value_json) VALUES (?, ?, ?)",
                    [(number, key, text) for key, text in record.items()],
                )
                if number % WHOLE == 0:
                    connection.commit()
            connection.commit()

    def record(self) -> None:
        trial = self.optuna.trial.create_trial(
            params={"arm": self.settings["arm"], "block_size": 4},
            distributions={"arm": self.arms, "block_size": self.optuna.distributions.IntDistribution(2, 8)},
            value=50 * self.rng.random(),
            user_attrs={key: json.loads(text) for key, text in payload(self.rng, self.settings).items()},
        )
        self.studies[0].add_trial(trial)

    def best(self) -> None:
        study = self.optuna.load_study(study_name="experiment 0", storage=self.url)
        assert study.best_trial.value > 0

    def filter(self) -> None:
        study = self.optuna.load_study(study_name="experiment 0", storage=self.url)
        since, until = (
            dt.datetime.fromtimestamp(self.settings[key])  # noqa: DTZ006  (as above)
            for key in ("since", "until")
        )
        values = [
            trial.value
            for trial in study.get_trials(deepcopy=False)
            if trial.params["arm"] == self.settings["arm"] and since <= trial.datetime_start <= until
        ]
        assert sum(values) / len(values) > 0


class MLflow:
    """One MLflow experiment per experiment; a result is a run: created, logged in one batch, ended."""

    def __init__(self, path: Path, settings: Settings) -> None:
        os.environ |= {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
        import mlflow
        from mlflow.entities import Metric, Param, RunTag

        self.Metric, self.Param, self.RunTag = Metric, Param, RunTag
        self.settings, self.path, self.rng = settings, path, random.Random(1)
        self.client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{path}")
        folder = str(path.parent / "artifacts")
        self.experiments = [
            self.client.create_experiment(f"experiment {n}", artifact_location=folder) for n in range(EXPERIMENTS)
        ]

    def fill(self) -> None:
        with closing(sqlite3.connect(self.path)) as connection:
            for number, (experiment, arm, at, tps, record) in enumerate(results(self.settings), start=1):
                run_id, at_ms = uuid.uuid4().hex, int(at * 1000)
                connection.execute(
                    "INSERT INTO runs (run_uuid, name, source_type, source_name, entry_point_name, user_id, status,"
                    " start_time, end_time, source_version, lifecycle_stage, artifact_uri, experiment_id)"
                    " VALUES (?, ?, 'UNKNOWN', '', '', 'u', 'FINISHED', ?, ?, '', 'active', 'a', ?)",
                    (run_id, f"run {number}", at_ms, at_ms + 5000, self.experiments[experiment]),
                )
                for key, value in self._metrics(tps).items():
                    connection.execute(
                        "INSERT INTO metrics (key, value, timestamp, run_uuid, step, is_nan) VALUES (?, ?, ?, ?, 0, 0)",
                        (key, value, at_ms, run_id),
                    )
                    connection.execute(
                        "INSERT INTO latest_metrics (key, value, timestamp, step, is_nan, run_uuid)"
                        " VALUES (?, ?, ?, 0, 0, ?)",
                        (key, value, at_ms, run_id),
                    )
                connection.executemany(
                    "INSERT INTO params (key, value, run_uuid) VALUES (?, ?, ?)",
                    [("arm", arm, run_id), ("block_size", "4", run_id)],
                )
                connection.executemany(
                    "INSERT INTO tags (key, value, run_uuid) VALUES (?, ?, ?)",
                    [(key, text, run_id) for key, text in record.items()],
                )
                if number % WHOLE == 0:
                    connection.commit()
            connection.commit()

    def _metrics(self, tps: float) -> dict[str, float]:
        return {"decode_tps": tps, "end_to_end_tps": tps * 0.9, "ttft_s": 0.3, "accept_length": 2.5}

    def record(self) -> None:
        run = self.client.create_run(self.experiments[0])
        now_ms = int(time.time() * 1000)
        self.client.log_batch(
            run.info.run_id,
            metrics=[self.Metric(key, value, now_ms, 0) for key, value in self._metrics(40.0).items()],
            params=[self.Param("arm", self.settings["arm"]), self.Param("block_size", "4")],
            tags=[self.RunTag(key, text) for key, text in payload(self.rng, self.settings).items()],
        )
        self.client.set_terminated(run.info.run_id)

    def best(self) -> None:
        found = self.client.search_runs(self.experiments[:1], order_by=["metrics.decode_tps DESC"], max_results=1)
        assert found[0].data.metrics["decode_tps"] > 0

    def filter(self) -> None:
        since, until = (int(self.settings[key] * 1000) for key in ("since", "until"))
        wanted = (
            f"params.arm = '{self.settings['arm']}' and attributes.start_time >= {since}"
            f" and attributes.start_time <= {until}"
        )
        values, token = [], None
        while True:
            page = self.client.search_runs(
                self.experiments[:1], filter_string=wanted, max_results=5000, page_token=token
            )
            values += [run.data.metrics["decode_tps"] for run in page]
            token = page.token
            if not token:
                break
        assert sum(values) / len(values) > 0


def main() -> None:
    name, path, settings = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    path.unlink(missing_ok=True)
    store = {"optuna": Optuna, "mlflow": MLflow}[name](path, settings)
    started = time.perf_counter()
    store.fill()
    say(f"filled with {settings['results']:,} results in {time.perf_counter() - started:.0f} s")
    work: dict[str, Callable[[], None]] = {"record": store.record, "best": store.best, "filter": store.filter}
    for line in sys.stdin:
        started = time.perf_counter()
        work[line.strip()]()
        say(str(time.perf_counter() - started))


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
