"""Does the database stay quick at a million generations, and what do others take for the same work?

    python benchmarks/scale.py                                      the whole: about 12 GB and half an hour
    python benchmarks/scale.py --generations 50000 --others 2000    a small one

Fills a database (`scale_data.py`) and measures, at nothing, a tenth and all of it, what committing a trial costs; at
the end the questions by arm and date, the stored queries, the audit of a run, and the size. Then records and asks the
same of Optuna's RDB storage and of MLflow's SQLite store (`scale_others.py`, in an environment of their own, which is
made in the folder), in turns at random on the same machine: paired ratios with their intervals.

"cold" is after the operating system was told to forget the file's pages; the disk's own cache is as it is. "cpu" is
this process's own time: on a machine that does other things too it says more than the clock.
"""

import argparse
import datetime as dt
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from scale_data import HOURS_BETWEEN, READINGS, START, TOKENS, Filler

from db.query import number_or_text, run_query
from db.session import open_database
from db.stored_queries import RUN, SHIPPED, read_query
from orchestrator.configuration.compose import make_plan
from orchestrator.effects import estimate_effect
from orchestrator.judging import judge_run
from orchestrator.plan import Prompt
from orchestrator.planning.weights import ArmWeights
from orchestrator.running.gate import OPEN
from orchestrator.running.recorder import Recorder, create_run
from orchestrator.running.trial import Outcome
from orchestrator.schedule import ScheduledTrial
from orchestrator.stored_run import StoredRun
from workers.machine.host import HostFacts
from workers.machine.telemetry import Reading
from workers.protocol import Evidence, Generation

COMMITS = 300
REPEATS = 5
ARM = "qwen3-8b-4bit mlx_lm_draft block_size=4"
PACKAGES = ("optuna", "mlflow")
ROUNDS = {"record": 100, "best": 15, "filter": 15}  # how often each is done by each
SELECT = "SELECT date(started_at) AS day, prompt_class, count(*) AS n, avg(decode_tps) AS tps FROM trial_flat WHERE "
GROUP = " AND kind = 'measured' AND status = 'done' GROUP BY day, prompt_class"
QUESTIONS = {
    "one arm, a week by day and class": (f"{SELECT} arm = :arm AND started_at BETWEEN :day AND :week{GROUP}"),
    "one arm, a month": (f"{SELECT} arm = :arm AND started_at BETWEEN :day AND :month{GROUP}"),
    "one arm, all the time": (f"{SELECT} arm = :arm AND started_at >= :start{GROUP}"),
    "all arms of one night": (
        "SELECT arm, prompt_class, count(*) AS n, avg(decode_tps) AS tps FROM trial_flat"
        " WHERE started_at BETWEEN :day AND :night AND kind = 'measured' AND status = 'done' GROUP BY arm, prompt_class"
    ),
    "one arm, its last 20 generations": (
        "SELECT started_at, prompt_id, turn, decode_tps, evidence FROM trial_flat WHERE arm = :arm"
        " AND started_at >= :month_before_end ORDER BY started_at DESC LIMIT 20"
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generations", type=int, default=1_000_000)
    parser.add_argument("--others", type=int, default=20_000, help="results in each of the stores; 0: leave them out")
    parser.add_argument("--folder", type=Path, help="kept; default: a temporary one")
    wanted = parser.parse_args()
    with ExitStack() as stack:
        folder = wanted.folder or Path(stack.enter_context(TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        measure_size(folder, wanted.generations)
        if wanted.others:
            measure_others(folder, wanted.others)


# ---- size ----


def measure_size(folder: Path, generations: int) -> None:
    """Fill a database, and time the operations on it."""
    path = folder / "scale.db"
    _remove(path)
    database = open_database(f"sqlite:///{path}")
    filler = Filler(database=database, path=path)
    filler.fill(1)  # one run, so that every table and plan is there
    for share in (0.0, 0.1, 1.0):
        started = time.perf_counter()
        filler.fill(int(share * generations))
        filled_s = time.perf_counter() - started
        print(f"{filler.generations:>9,} generations in {filler.runs} runs, filled in {filled_s:.0f} s")
        commit = committing(database)
        costs = [commit() for _ in range(COMMITS)]
        late = sorted(cost.wall_s for cost in costs)[int(COMMITS * 0.99)]
        print(f"{'':>9} a commit: {_median(costs)}, 99th {_ms(late)}, lowest {_ms(min(cost.wall_s for cost in costs))}")
    bytes_ = path.stat().st_size
    print(f"{'':>9} size {bytes_ / 1e9:.2f} GB, {bytes_ / filler.generations / 1e3:.1f} kB a generation")
    last = START + dt.timedelta(hours=HOURS_BETWEEN * filler.runs)
    compare_commits(folder, database)
    ask(path, last)
    ask_stored(path)
    audit(database, path)
    database.dispose()


def compare_commits(folder: Path, full: Any) -> None:
    """A commit in the full database against one in a fresh database, in turns: other load meets both alike."""
    path = folder / "fresh.db"
    _remove(path)
    fresh = open_database(f"sqlite:///{path}")
    commits = {"fresh": committing(fresh), "full": committing(full)}
    stores = {name: lambda _, name=name: commits[name]().wall_s for name in commits}
    frame = compared(stores, "commit", COMMITS)
    effect = estimate_effect(frame, treatment="full", control="fresh")
    medians = frame.groupby("arm")["value"].median()
    print(
        f"a commit in the full database over one in a fresh one: {effect.ratio:.2f} ({effect.ci_low:.2f} to"
        f" {effect.ci_high:.2f}); medians {_ms(medians['full']).strip()} and {_ms(medians['fresh']).strip()},"
        f" lowest {_ms(frame.loc[frame['arm'] == 'full', 'value'].min()).strip()}"
    )
    fresh.dispose()


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def committing(database: Any) -> Callable[[], "Cost"]:
    """A function that commits one more trial of its own run, and returns the cost."""
    plan = make_plan(["checkpoint=qwen3-8b-4bit", "engine=mlx_lm,mlx_lm_draft", "workload=five_prompts"]).plan
    facts: dict[str, Any] = {"os": "macOS 15.5", "os_build": "24F74", "chip": "Apple M4 Max", "cpu_count": 12}
    facts |= {"performance_cores": 8, "gpu_cores": 20, "memory_bytes": 2**36, "boot_id": "boot"}
    nothing = ArmWeights(for_worker={}, target=None, draft=None)
    recorder = create_run(
        database,
        plan,
        host=HostFacts(hostname="studio", **facts),
        weights={arm.name: nothing for arm in plan.arms},
        log_root=Path("/tmp/logs"),
    )
    outcomes = _outcomes(recorder, plan.prompts[0])

    def commit() -> Cost:
        outcome = next(outcomes)
        return _cost(lambda: recorder.save(outcome, attempt=0, order=[]))

    return commit


def _outcomes(recorder: Recorder, prompt: Prompt) -> Iterator[Outcome]:
    rng = random.Random(1)
    arm = recorder.plan.arms[0].name
    evidence = Evidence(mechanism="plain", requested=False, engaged=False, useful=False, source="mlx_lm", text="none")
    sequence = 0
    while True:
        answer = Generation(
            request_id="r",
            turn=0,
            started_at="2026-01-01T00:00:00+00:00",
            prompt_tokens=120,
            cached_tokens=0,
            token_ids=[rng.randrange(150_000) for _ in range(TOKENS)],
            stamps_us=[300_000 + 20_000 * n for n in range(TOKENS)],
            text="word " * TOKENS,
            finish_reason="length",
            steps=None,
            evidence=[evidence],
            prompt_sha256="p" * 64,
            engine_prefill_tps=None,
            engine_decode_tps=None,
            peak_memory_bytes=2**33,
        )
        readings = {
            phase: [Reading(field=name, value=rng.random(), source="s") for when, name in READINGS if when == phase]
            for phase in ("before", "during", "after")
        }
        yield Outcome(
            trial=ScheduledTrial(
                sequence=sequence,
                kind="measured",
                round=sequence // 3,
                position=sequence % 3,
                label=arm,
                arm=arm,
                is_aa=False,
                prompt_ids=(prompt.id,),
                seed=1,
            ),
            started_at=dt.datetime.now(dt.UTC),
            wall_s=4.3,
            monotonic_s=4.3,
            passage=OPEN,
            generations=[(prompt, answer)],
            fault=None,
            log_path=None,
            **readings,
        )
        sequence += 1


def ask(path: Path, last: dt.datetime) -> None:
    """The questions by arm and date."""
    day = START + (last - START) / 2
    moments = {"start": START, "day": day, "night": day + dt.timedelta(hours=12), "week": day + dt.timedelta(days=7)}
    moments |= {"month": day + dt.timedelta(days=30), "month_before_end": last - dt.timedelta(days=30)}
    values = {"arm": ARM} | {name: moment.strftime("%Y-%m-%d %H:%M:%S") for name, moment in moments.items()}
    print("questions by arm and date            rows read       cold       warm        cpu")
    for name, sql in QUESTIONS.items():
        params = {key: value for key, value in values.items() if f":{key}" in sql.replace(":month_before", ":before")}
        if ":month_before_end" in sql:
            params = {"arm": ARM, "month_before_end": values["month_before_end"]}
        result, cold, warm = _timed(path, sql, params)
        position = result.columns.index("n") if "n" in result.columns else None
        read = len(result.rows) if position is None else sum(int(row[position] or 0) for row in result.rows)
        print(f"  {name:<34} {read:>7,} {_ms(cold)} {_ms(warm.wall_s)} {_ms(warm.cpu_s)}")


def ask_stored(path: Path) -> None:
    """Every stored query with its defaults; the run is a filled one."""
    run_id = run_query(str(path), "SELECT max(id) FROM run WHERE status = 'done'").rows[0][0]
    print("stored queries                             rows       cold       warm        cpu")
    for file in sorted(SHIPPED.glob("*.sql")):
        query = read_query(file)
        params: dict[str, Any] = {name: number_or_text(text) for name, text in query.defaults.items()}
        if RUN in params:
            params[RUN] = run_id
        if "arm" in (each.name for each in query.parameters):
            params["arm"] = ARM
        result, cold, warm = _timed(path, query.sql, params)
        print(f"  {query.name:<34} {len(result.rows):>7,} {_ms(cold)} {_ms(warm.wall_s)} {_ms(warm.cpu_s)}")


def audit(database: Any, path: Path) -> None:
    """Judge runs of both kinds, and the command with its imports."""
    sql = (
        "SELECT id, (SELECT count(*) FROM trial_flat WHERE run_id = run.id) FROM run WHERE status = 'done'"
        " AND experiment_id = (SELECT id FROM experiment WHERE name = 'block-size') ORDER BY id DESC LIMIT 2"
    )
    for run_id, rows in run_query(str(path), sql).rows:
        arms = len(StoredRun.load(database, str(run_id)).plan.arms)
        costs = [_cost(partial(_judge, database, str(run_id))) for _ in range(3)]
        command = [sys.executable, "-m", "orchestrator", "audit", str(run_id), "--db", str(path)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        whole = _cost(partial(subprocess.run, command, check=True, capture_output=True))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(
            f"audit of a run of {rows:,} generations and {arms} arms: {_median(costs)};"
            f" as a command {whole.wall_s:.1f} s (cpu {cpu_s:.1f} s)"
        )


def _judge(database: Any, run_id: str) -> None:
    judge_run(StoredRun.load(database, run_id))


def _timed(path: Path, sql: str, params: dict[str, Any]) -> tuple[Any, float, "Cost"]:
    """The result, the seconds with nothing cached, and the median cost of repeats after it."""
    _forget(path)
    started = time.perf_counter()
    result = run_query(str(path), sql, params)
    cold_s = time.perf_counter() - started
    costs = [_cost(partial(run_query, str(path), sql, params)) for _ in range(REPEATS)]
    return result, cold_s, Cost.median(costs)


def _forget(path: Path) -> None:
    """Ask the operating system to drop the file's clean pages, if it supports that."""
    if not hasattr(os, "posix_fadvise"):
        return
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of one call."""

    wall_s: float
    cpu_s: float

    @classmethod
    def median(cls, costs: Sequence["Cost"]) -> "Cost":
        wall_s, cpu_s = (statistics.median(getattr(cost, name) for cost in costs) for name in ("wall_s", "cpu_s"))
        return cls(wall_s=wall_s, cpu_s=cpu_s)


def _cost(function: Callable[[], object]) -> Cost:
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    function()
    return Cost(wall_s=time.perf_counter() - wall_s, cpu_s=time.process_time() - cpu_s)


def _median(costs: Sequence[Cost]) -> str:
    found = Cost.median(costs)
    return f"median {_ms(found.wall_s).strip()} (cpu {_ms(found.cpu_s).strip()})"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:>7,.1f} ms"


# ---- others ----


def measure_others(folder: Path, results: int) -> None:
    """The same work by three stores with as many results each, in turns."""
    python = environment(folder / "others")
    path = folder / "equal.db"
    _remove(path)
    database = open_database(f"sqlite:///{path}")
    filler = Filler(database=database, path=path)
    filler.fill(results)
    last = START + dt.timedelta(hours=HOURS_BETWEEN * filler.runs)
    span = {"since": last - dt.timedelta(days=2), "until": last}
    commit = committing(database)
    wanted = {"arm": ARM} | {name: str(moment)[:19] for name, moment in span.items()}
    ours: dict[str, Callable[[], Cost]] = {
        "record": commit,
        "best": lambda: _cost(partial(run_query, str(path), BEST, {"experiment": "block-size"})),
        "filter": lambda: _cost(partial(run_query, str(path), FILTER, wanted)),
    }
    with ExitStack() as stack:
        stores: dict[str, Callable[[str], float]] = {"interlace": lambda what: ours[what]().wall_s}
        for name in PACKAGES:
            stores[name] = stack.enter_context(other(python, name, folder, results, span))
        print(f"{filler.generations:,} results in each store; seconds of ours, and the others over ours")
        for what, rounds in ROUNDS.items():
            report(what, compared(stores, what, rounds))
    for name in ("equal", *PACKAGES):
        print(f"  {name:<9} {sum(file.stat().st_size for file in folder.glob(f'{name}.db*')) / 1e6:>8,.0f} MB")
    database.dispose()


BEST = (
    "SELECT trial_id, arm, decode_tps FROM trial_flat WHERE experiment = :experiment AND kind = 'measured'"
    " AND status = 'done' ORDER BY decode_tps DESC LIMIT 1"
)
FILTER = (
    "SELECT count(*), avg(decode_tps) FROM trial_flat WHERE arm = :arm AND started_at BETWEEN :since AND :until"
    " AND kind = 'measured' AND status = 'done'"
)


def environment(folder: Path) -> Path:
    """The other stores' own interpreter; its environment is created if it does not exist."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return python


@contextmanager
def other(
    python: Path, name: str, folder: Path, results: int, span: dict[str, dt.datetime]
) -> Iterator[Callable[[str], float]]:
    """A process that does the same with another store: it reads a word and prints seconds."""
    settings = {"arm": ARM, "since": span["since"].timestamp(), "until": span["until"].timestamp()}
    settings |= {"start": START.timestamp(), "results": results, "tokens": TOKENS, "readings": len(READINGS)}
    script = Path(__file__).with_name("scale_others.py")
    command = [str(python), str(script), name, str(folder / f"{name}.db"), json.dumps(settings)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        print(f"  {name} {process.stdout.readline().strip()}")

        def ask_other(what: str) -> float:
            process.stdin.write(f"{what}\n")
            process.stdin.flush()
            return float(process.stdout.readline())

        yield ask_other
        process.stdin.close()


def compared(stores: dict[str, Callable[[str], float]], what: str, rounds: int) -> pd.DataFrame:
    """Seconds of each store in each round, the order drawn anew each time."""
    rng = random.Random(2)
    rows = []
    for name in stores:
        stores[name](what)  # a warm-up
    for index in range(rounds):
        for position, name in enumerate(rng.sample(list(stores), k=len(stores))):
            rows.append({"round": index, "position": position, "arm": name, "value": stores[name](what)})
    return pd.DataFrame(rows)


def report(what: str, frame: pd.DataFrame) -> None:
    ours = frame.loc[frame["arm"] == "interlace", "value"].median()
    words = [f"{what:<7} {_ms(float(ours))}"]
    for name in PACKAGES:
        pair = frame[frame["arm"].isin(["interlace", name])]
        effect = estimate_effect(pair, treatment=name, control="interlace")
        words.append(f"{name} {effect.ratio:,.2f} ({effect.ci_low:,.2f} to {effect.ci_high:,.2f})")
    print("  " + "   ".join(words))


if __name__ == "__main__":
    main()
