"""Listing the runs, and finding one by its name, without pandas."""

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Engine, text

from db.errors import RunNotFoundError
from db.remarks import Remark, read_remark
from db.session import plain_read

RUN_LIST_SQL = """
    SELECT run.id AS run_id, experiment.name AS experiment, host.id AS host_id, host.name AS host, host.chip AS chip,
        run.status AS status, run.created_at AS created_at, run.finished_at AS finished_at, run.seed AS seed,
        run.rounds AS rounds, run.metric AS metric, run.interleave_by AS interleave_by,
        run.simulated AS simulated, run.plan_sha256 AS plan_sha256, run.workload_sha256 AS workload_sha256,
        run.runner_pid AS runner_pid, run.runner_started_at AS runner_started_at, run.boot_id AS boot_id,
        run.log_dir AS log_dir, run.note AS note, run.remark AS remark, run.tags AS tags,
        (SELECT count(*) FROM trial WHERE trial.run_id = run.id) AS trials
    FROM run
    JOIN experiment ON experiment.id = run.experiment_id
    JOIN host ON host.id = run.host_id
    ORDER BY run.created_at DESC, run.id DESC
    LIMIT :limit
"""
NO_LIMIT = -1
LAST = "last"
# Newest first, as `choose_run` takes them.
RUNS_SQL = (
    "SELECT run.id, experiment.name, run.status FROM run JOIN experiment"
    " ON experiment.id = run.experiment_id ORDER BY run.created_at DESC, run.id DESC"
)
# The same without those that came from elsewhere: id and status.
OWN_RUNS_SQL = "SELECT id, status FROM run WHERE arrived_at IS NULL ORDER BY created_at DESC, id DESC"
LEFT_UNFINISHED = frozenset(("running", "interrupted", "failed"))  # statuses; one that runs, if its process is gone
_CANDIDATES_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """One run of the list."""

    run_id: str
    experiment: str
    status: str
    note: str | None
    said: Remark
    trials: int  # stored ones
    created_at: dt.datetime  # UTC
    runner_pid: int | None
    runner_started_at: float | None
    boot_id: str | None


def newest_runs(engine: Engine, *, limit: int) -> Sequence[ListedRun]:
    """The runs, newest first."""
    with plain_read(engine) as connection:
        rows = connection.execute(text(RUN_LIST_SQL), {"limit": limit}).mappings().all()
    return [
        ListedRun(
            run_id=row["run_id"],
            experiment=row["experiment"],
            status=row["status"],
            note=row["note"],
            said=read_remark(row["remark"], row["tags"]),
            trials=row["trials"],
            created_at=dt.datetime.fromisoformat(row["created_at"]).replace(tzinfo=dt.UTC),
            runner_pid=row["runner_pid"],
            runner_started_at=row["runner_started_at"],
            boot_id=row["boot_id"],
        )
        for row in rows
    ]


def choose_run(rows: Iterable[Sequence[object]], name: str, *, by_experiment: bool = False) -> str:
    """The id of the run that a full id, a unique part of one, or `last` names. A matching start goes before the rest.

    Args:
        rows: id, experiment and status of every run, newest first: what `RUNS_SQL` gives.
        by_experiment: whether an experiment's name stands for its newest run.

    Raises:
        RunNotFoundError: none fits, or several; with the newest candidates.
    """
    wanted = name.strip().lower()
    listed = [(str(run_id), str(experiment), status) for run_id, experiment, status in rows]
    known = {run_id: f"{run_id} ({experiment}, {status})" for run_id, experiment, status in listed}
    if not known:
        raise RunNotFoundError("no run is stored yet; start one with `interlace run`")
    if wanted == LAST:
        return next(iter(known))
    newest = {experiment.lower(): run_id for run_id, experiment, _ in reversed(listed)} if by_experiment else {}
    if wanted in newest and wanted not in known:
        return newest[wanted]
    fitting = _fitting(list(known), wanted)
    if len(fitting) == 1:
        return fitting[0]
    shown = "; ".join(known[run_id] for run_id in (fitting or list(known))[:_CANDIDATES_SHOWN])
    if fitting:
        raise RunNotFoundError(f"run {name!r}: {len(fitting)} runs fit; write more of the id: {shown}")
    raise RunNotFoundError(f"run {name!r}: no run has this in its id; write `{LAST}` or one of {shown}")


def _fitting(ids: list[str], wanted: str) -> list[str]:
    """The ids that equal, else start with, else end with, else hold the text."""
    rules: Iterable[Callable[[str], bool]] = (
        lambda run_id: run_id == wanted,
        lambda run_id: run_id.startswith(wanted),
        lambda run_id: run_id.endswith(wanted),
        lambda run_id: wanted in run_id,
    )
    if not wanted:
        return ids
    return next((found for rule in rules if (found := [run_id for run_id in ids if rule(run_id)])), [])
