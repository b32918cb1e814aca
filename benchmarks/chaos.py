"""Kill a run and its workers at random moments until it is done, and look for one trial lost, doubled or mislabelled.

    python benchmarks/chaos.py [--kills 1000] [--seed 0] [--folder DIR]
    python benchmarks/chaos.py --resume-time          how long `interlace resume` takes to its first new trial

Real processes and a real database; the engine is the simulated one, whose answers and fake clock depend on the plan
alone. So a run that was killed a hundred times must end with the very audit of one that was not. Each life of a run is
`interlace resume`, forked from this process with everything imported. SIGKILL strikes the runner while it starts, loads
or measures, or about a chosen commit; now and then a worker alone, whose trial then counts as invalid.

The moments are drawn from the seed; where a process is at such a moment is up to the machine.
"""

import argparse
import datetime as dt
import gc
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
from sqlalchemy import Connection, Engine, event, text

from db import queue
from db.engine import connect_readonly
from db.session import open_database
from orchestrator.cli import cli
from orchestrator.configuration.compose import make_plan
from orchestrator.judging import judge
from orchestrator.plan import Plan
from orchestrator.planning.weights import find_weights
from orchestrator.queue import entry_run, machine_lock
from orchestrator.report import building, loading, render_terminal
from orchestrator.running.events import Observer
from orchestrator.running.recorder import create_run
from orchestrator.schedule import ScheduledTrial, attempt_order, build_schedule
from orchestrator.statistics.findings import AuditResult
from orchestrator.stored_run import StoredRun
from orchestrator.views import terminal
from workers.machine.host import read_host

# Imported before any fork.
WARM = (
    entry_run,
    machine_lock,
    Observer,
    building,
    loading,
    render_terminal,
    terminal,
)
SIMULATED = ("engine=simulated", "checkpoint=simulated", "workload=quick", "engine.effect=1.0,1.1", "gate.cooldown_s=0")
EARLY, AT_COMMIT, WORKER = 0.45, 0.2, 0.12  # shares of the kills: before the first trial, about a commit, a worker
MEASURING = 0.25  # of a life after its first trial, on average, over the time before it
COMMITS = 40  # of a life, among which one is chosen
LIFE_S = 120.0  # nothing takes so long: a life that does has hung


@dataclass(slots=True)
class Report:
    """The actions and the findings. All but the first four must be empty or zero."""

    kills: int = 0
    worker_kills: int = 0  # of these
    runs: int = 0  # that were killed until they were done
    interrupted: int = 0  # trials that a runner died in, stored as such
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    mislabelled: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    vanished: list[str] = field(default_factory=list)  # a reader saw them committed, and after the kill they were gone
    other_audit: list[str] = field(default_factory=list)
    first_trial_s: list[float] = field(default_factory=list)  # from a life's start to its first new trial

    @property
    def faults(self) -> dict[str, list[str]]:
        """The findings that must be empty, by kind."""
        kinds = ("lost", "doubled", "mislabelled", "damaged", "vanished", "other_audit")
        return {kind: found for kind in kinds if (found := getattr(self, kind))}

    def __str__(self) -> str:
        median_s = statistics.median(self.first_trial_s) if self.first_trial_s else float("nan")
        return (
            f"{self.kills} kills ({self.worker_kills} of workers alone), {self.runs} runs, {self.interrupted} trials"
            f" interrupted; lost {len(self.lost)}, doubled {len(self.doubled)}, mislabelled {len(self.mislabelled)},"
            f" damaged {len(self.damaged)}, vanished {len(self.vanished)}, other audits {len(self.other_audit)};"
            f" from a start to its first new trial {median_s:.2f} s (median)"
        )


# ---- runs ----


def planned(rounds: int) -> Plan:
    """The plan of every run here."""
    return make_plan([*SIMULATED, f"design.rounds={rounds}", "design.seed=7"], config_dir=None).plan


def stored_run(database: Engine, plan: Plan, folder: Path) -> str:
    """A run that waits, as `interlace queue add` leaves it."""
    recorder = create_run(database, plan, host=read_host(), weights=find_weights(plan), log_root=folder / "logs")
    queue.add(database, recorder.run_id, now=dt.datetime.now(dt.UTC))
    return recorder.run_id


@contextmanager
def opened(path: Path) -> Iterator[Engine]:
    """The database, closed again before the next fork."""
    engine = open_database(f"sqlite:///{path}")
    try:
        yield engine
    finally:
        engine.dispose()


def start_life(path: Path, run_id: str, *, dies_at_commit: tuple[int, float] | None = None) -> int:
    """Fork a process that resumes the run; its id.

    Args:
        dies_at_commit: the number of the commit, and the seconds after its begin, at which it kills itself.
    """
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        log = os.open(path.parent / "lives.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if dies_at_commit is not None:
            _die_at_commit(*dies_at_commit)
        code = cli.main(["resume", run_id, "--db", str(path), "--quiet"], standalone_mode=False)
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001 - a forked process must end here, whatever it met
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code)


def _die_at_commit(number: int, after_s: float) -> None:
    left = [number]

    def strike() -> None:
        time.sleep(after_s)
        os.kill(os.getpid(), signal.SIGKILL)

    @event.listens_for(Engine, "commit")
    def count(_connection: Connection) -> None:
        left[0] -= 1
        if left[0] == 0:
            threading.Thread(target=strike, daemon=True).start()


def ended(pid: int, *, within_s: float, may_fail: bool = False) -> bool:
    """Return whether the process ends by itself within this time; then it is reaped.

    Raises:
        RuntimeError: it failed, and `may_fail` is not set.
    """
    deadline = time.monotonic() + within_s
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            if os.WIFEXITED(status) and os.WEXITSTATUS(status) and not may_fail:
                raise RuntimeError(f"a life ended with {os.WEXITSTATUS(status)} that nobody killed: see lives.log")
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(min(0.005, max(0.0, deadline - time.monotonic())))


def finish(pid: int) -> None:
    """Let a life end by itself."""
    if not ended(pid, within_s=LIFE_S):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise TimeoutError(f"a life took more than {LIFE_S:.0f} s")


# ---- chaos ----


@dataclass(slots=True)
class Chaos:
    """Kills runs until the wanted number of kills is reached."""

    folder: Path
    kills: int
    rounds: int
    luck: random.Random
    say: Callable[[str], None]
    report: Report = field(default_factory=Report)
    start_s: float = 0.5  # from a life's start to its first trial, as last seen

    @property
    def path(self) -> Path:
        return self.folder / "chaos.db"

    def run(self) -> Report:
        """Run after run, each killed until it is done."""
        plan = planned(self.rounds)
        gc.collect()
        gc.freeze()  # what is imported here is shared with every life
        reference = self._undisturbed(plan)
        while self.report.kills < self.kills:
            with opened(self.path) as database:
                run_id = stored_run(database, plan, self.folder)
            while not self._is_done(run_id):
                self._life(run_id)
            with opened(self.path) as database:
                check_run(database, run_id, plan, self.report)
                frame = StoredRun.load(database, run_id).trials
            compare_audits(frame, reference, plan, run_id, self.report)
            self.report.runs += 1
            self.say(str(self.report))
        return self.report

    def _undisturbed(self, plan: Plan) -> pd.DataFrame:
        path = self.folder / "undisturbed.db"
        with opened(path) as database:
            run_id = stored_run(database, plan, self.folder)
        began = time.time()
        finish(start_life(path, run_id))
        with opened(path) as database:
            frame = StoredRun.load(database, run_id).trials
        self.start_s = frame["started_at"].min().timestamp() - began
        return frame

    def _is_done(self, run_id: str) -> bool:
        return bool(asked(self.path, "SELECT status FROM run WHERE id = ?", run_id) == "done")

    def _life(self, run_id: str) -> None:
        """One life of the run: killed, unless it ends by itself first or there were enough kills."""
        began = time.time()
        if self.report.kills >= self.kills:
            finish(start_life(self.path, run_id))
            return
        kind = self.luck.random()
        if kind < AT_COMMIT:
            moment = self.luck.randint(1, COMMITS), self.luck.uniform(0, 0.003)
            pid = start_life(self.path, run_id, dies_at_commit=moment)
            finish(pid)
            self.report.kills += 1
        else:
            early = kind < AT_COMMIT + EARLY
            pid = start_life(self.path, run_id)
            self._strike(pid, run_id, worker=kind > 1 - WORKER, early=early)
        self._time_first_trial(run_id, began)

    def _strike(self, pid: int, run_id: str, *, worker: bool, early: bool) -> None:
        wait_s = self.luck.uniform(0, self.start_s) if early else self.start_s + self._measuring_s()
        if worker and not ended(pid, within_s=wait_s):
            self._kill_worker(pid)
            wait_s = self._measuring_s()
        elif worker:
            return
        if not ended(pid, within_s=wait_s, may_fail=worker):
            seen = trial_ids(self.path, run_id)  # a reader that comes and leaves while the run writes
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self.report.kills += 1
            self.report.vanished += sorted(seen - trial_ids(self.path, run_id))

    def _measuring_s(self) -> float:
        return self.luck.expovariate(1 / (MEASURING * self.start_s))

    def _kill_worker(self, pid: int) -> None:
        try:
            children = psutil.Process(pid).children()
            if children:
                self.luck.choice(sorted(children, key=lambda each: each.pid)).kill()
                self.report.kills += 1
                self.report.worker_kills += 1
        except psutil.NoSuchProcess:
            return

    def _time_first_trial(self, run_id: str, began: float) -> None:
        first = first_trial_after(self.path, run_id, began)
        if first is not None:
            self.start_s = first - began
            self.report.first_trial_s.append(self.start_s)


def first_trial_after(path: Path, run_id: str, began: float) -> float | None:
    """The start of the first trial stored since then, in seconds since the epoch, like `began`."""
    first = asked(
        path,
        "SELECT min(started_at) FROM trial WHERE run_id = ? AND kind <> 'warmup' AND started_at >= ?",
        run_id,
        dt.datetime.fromtimestamp(began, dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f"),
    )
    return None if first is None else dt.datetime.fromisoformat(f"{first}+00:00").timestamp()


def trial_ids(path: Path, run_id: str) -> set[str]:
    """The ids of all committed trials of the run."""
    found = asked(path, "SELECT coalesce(group_concat(id), '') FROM trial WHERE run_id = ?", run_id)
    return set(filter(None, str(found).split(",")))


def asked(path: Path, sql: str, *values: str) -> Any:
    """One value, read without changing anything."""
    connection = connect_readonly(path)
    try:
        return connection.execute(sql, values).fetchone()[0]
    finally:
        connection.close()


# ---- checks ----


def check_run(database: Engine, run_id: str, plan: Plan, report: Report) -> None:
    """Every scheduled trial counts exactly once, under its own name, in the place that its attempt's order gives it."""
    with database.connect() as connection:
        rows = [dict(row) for row in connection.execute(_TRIALS, {"id": run_id}).mappings()]
        prompts = {key: names for key, names in connection.execute(_PROMPTS, {"id": run_id})}
        health = [
            *connection.execute(text("PRAGMA integrity_check")),
            *connection.execute(text("PRAGMA foreign_key_check")),
        ]
    report.damaged += [str(row) for row in health if row[0] != "ok"]
    report.interrupted += sum(row["status"] == "interrupted" for row in rows)
    counting: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        if _counts(row):
            counting.setdefault(row["sequence"], []).append(row)
    attempts = {row["round"]: row["attempt"] for row in rows if _counts(row)}
    rounds = _in_order(plan, attempts)
    for trial in (each for trials in rounds.values() for each in trials):
        found = counting.get(trial.sequence, [])
        if not found:
            report.lost.append(f"{run_id}: trial {trial.sequence}")
        elif len(found) > 1:
            report.doubled.append(f"{run_id}: trial {trial.sequence}")
        else:
            _check_trial(found[0], trial, prompts, report)
    twice = Counter((row["sequence"], row["attempt"]) for row in rows if row["round"] is not None)
    report.doubled += [f"{run_id}: trial {key[0]} twice in attempt {key[1]}" for key, n in twice.items() if n > 1]
    del rounds[None]
    _check_rounds(rows, rounds, report)


def _counts(row: Mapping[str, Any]) -> bool:
    """Return whether a trial counts for its place. A failed trial of a replayed round stays failed."""
    return row["status"] in ("done", "invalid") and row["excluded_reason"] is None


def _in_order(plan: Plan, attempts: dict[int | None, int]) -> dict[int | None, tuple[ScheduledTrial, ...]]:
    """The scheduled trials by round, each round in the order of its attempt; None: the control runs at the ends."""
    rounds: dict[int | None, list[ScheduledTrial]] = {}
    for trial in build_schedule(plan):
        if trial.kind != "warmup":
            rounds.setdefault(trial.round, []).append(trial)
    return {
        index: attempt_order(trials, attempt=attempts.get(index) or 0, seed=plan.design.seed)
        for index, trials in rounds.items()
    }


def _check_trial(row: dict[str, Any], trial: ScheduledTrial, prompts: dict[str, str], report: Report) -> None:
    stored = (row["arm"], bool(row["is_aa"]), row["position"], row["seed"], row["kind"], row["round"])
    wanted = (trial.arm, trial.is_aa, trial.position, trial.seed, trial.kind, trial.round)
    if stored != wanted:
        report.mislabelled.append(f"trial {trial.sequence}: stored {stored}, scheduled {wanted}")
    if row["status"] == "done" and prompts.get(row["id"]) != ",".join(trial.prompt_ids):
        report.mislabelled.append(f"trial {trial.sequence}: prompts {prompts.get(row['id'])}, not {trial.prompt_ids}")


def _check_rounds(
    rows: list[dict[str, Any]], rounds: dict[int | None, tuple[ScheduledTrial, ...]], report: Report
) -> None:
    """Check that a round's counting trials are of one attempt, ran in its order, and match the round's row."""
    for index, trials in rounds.items():
        found = [row for row in rows if row["round"] == index and _counts(row)]
        if len({row["attempt"] for row in found}) != 1:
            report.mislabelled.append(f"round {index}: of attempts {[row['attempt'] for row in found]}")
        if [row["sequence"] for row in found] != [trial.sequence for trial in trials]:
            report.mislabelled.append(f"round {index}: ran as {[row['sequence'] for row in found]}")
        order = ",".join(trial.label for trial in trials)
        report.mislabelled += [f"round {index}: {row['order']}" for row in found if row["order"] != order]


def compare_audits(frame: pd.DataFrame, reference: pd.DataFrame, plan: Plan, run_id: str, report: Report) -> None:
    """The audit equals that of the undisturbed run, in which the trials of killed workers are as invalid and the rounds
    that were replayed ran in the order of their last attempt. A simulated value does not depend on its place."""
    counting = frame[frame["status"].isin(["done", "invalid"]) & frame["excluded_reason"].isna()]
    invalid = set(counting.loc[counting["status"] == "invalid", "sequence"])
    places = counting.drop_duplicates("sequence").set_index("sequence")["position"]
    spoilt = reference.assign(
        status=reference["status"].mask(reference["sequence"].isin(invalid), "invalid"),
        position=reference["sequence"].map(places),
    )
    killed, undisturbed = (judge(each, plan) for each in (frame, spoilt))
    if any(_carries_over(each) for each in (killed, undisturbed)):
        killed, undisturbed = (_without_verdict(each) for each in (killed, undisturbed))
    if _essence(killed) != _essence(undisturbed):
        report.other_audit.append(f"{run_id}: {_essence(killed)} instead of {_essence(undisturbed)}")


def _carries_over(result: AuditResult) -> bool:
    """Return whether the carry-over test gave a result. Replayed rounds change which trial ran before another."""
    return any(reason.code == "carry_over" for one in result.comparisons for reason in one.reasons)


def _without_verdict(result: AuditResult) -> AuditResult:
    comparisons = tuple(replace(one, verdict="underpowered", direction=None) for one in result.comparisons)
    return replace(result, comparisons=comparisons)


def _essence(result: AuditResult) -> Any:
    """The content of a judgement, without its statements on trials that were left out."""
    return [asdict(replace(one, included=None, reasons=())) for one in result.comparisons], result.drift


_TRIALS = text(
    """
    SELECT trial.id AS id, trial.excluded_reason, trial.sequence, trial.position, trial.seed, trial.kind, trial.status,
        trial.is_aa,
        arm.name AS arm, round."index" AS round, round.attempt AS attempt,
        (SELECT group_concat(value, ',') FROM json_each(round."order")) AS "order"
    FROM trial JOIN arm ON arm.id = trial.arm_id LEFT JOIN round ON round.id = trial.round_id
    WHERE trial.run_id = :id AND trial.kind <> 'warmup' ORDER BY trial.ordinal
    """
)
_PROMPTS = text(
    """
    SELECT trial_id, group_concat(prompt_id, ',') FROM
        (SELECT trial_id, prompt_id FROM generation WHERE turn = 0
            AND trial_id IN (SELECT id FROM trial WHERE run_id = :id) ORDER BY trial_id, position)
    GROUP BY trial_id
    """
)


# ---- the time to go on ----


def resume_times(folder: Path, *, times: int) -> list[float]:
    """Seconds from the start of `interlace resume` after a kill to its first new trial, two worker starts included."""
    path, plan, found = folder / "resume.db", planned(400), []
    with opened(path) as database:
        run_id = stored_run(database, plan, folder)
    for _ in range(times):
        began = time.time()
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator", "resume", run_id, "--quiet", "--db", str(path)],
            stdout=subprocess.DEVNULL,
        )
        first = None
        while first is None:
            time.sleep(0.1)
            first = first_trial_after(path, run_id, began)
        process.kill()
        process.wait()
        found.append(first - began)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--resume-time", action="store_true")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = wanted.folder or Path(temporary)
        os.environ["INTERLACE_STATE"] = str(folder / "state")
        if wanted.resume_time:
            for first_s in resume_times(folder, times=5):
                print(f"first new trial after {first_s:.2f} s, the start of two workers without a model included")
            return
        began = time.monotonic()
        chaos = Chaos(folder, wanted.kills, wanted.rounds, random.Random(wanted.seed), print)
        report = chaos.run()
    print(f"{time.monotonic() - began:.0f} s")
    for kind, found in report.faults.items():
        print(kind, *found[:10], sep="\n  ")
    sys.exit(bool(report.faults))


if __name__ == "__main__":
    main()
