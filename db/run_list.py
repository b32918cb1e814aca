"""The list of runs as plain rows, for commands that do without pandas."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Engine, text

from db.session import reading

RUN_LIST_SQL = """
    SELECT run.id AS run_id, experiment.name AS experiment, host.id AS host_id, host.name AS host, host.chip AS chip,
        run.status AS status, run.created_at AS created_at, run.finished_at AS finished_at, run.seed AS seed,
        run.rounds AS rounds, run.metric AS metric, run.interleave_by AS interleave_by,
        run.simulated AS simulated, run.plan_sha256 AS plan_sha256, run.workload_sha256 AS workload_sha256,
        run.runner_pid AS runner_pid, run.runner_started_at AS runner_started_at, run.boot_id AS boot_id,
        run.log_dir AS log_dir, run.note AS note,
        (SELECT count(*) FROM trial WHERE trial.run_id = run.id) AS trials
    FROM run
    JOIN experiment ON experiment.id = run.experiment_id
    JOIN host ON host.id = run.host_id
    ORDER BY run.created_at DESC, run.id DESC
    LIMIT :limit
"""
NO_LIMIT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """One run of the list."""

    run_id: str
    experiment: str
    status: str
    note: str | None
    trials: int  # stored ones
    created_at: dt.datetime  # UTC
    runner_pid: int | None
    runner_started_at: float | None
    boot_id: str | None


def newest_runs(engine: Engine, *, limit: int) -> Sequence[ListedRun]:
    """The runs, newest first."""
    with reading(engine) as session:
        rows = session.execute(text(RUN_LIST_SQL), {"limit": limit}).mappings().all()
    return [
        ListedRun(
            run_id=row["run_id"],
            experiment=row["experiment"],
            status=row["status"],
            note=row["note"],
            trials=row["trials"],
            created_at=dt.datetime.fromisoformat(row["created_at"]).replace(tzinfo=dt.UTC),
            runner_pid=row["runner_pid"],
            runner_started_at=row["runner_started_at"],
            boot_id=row["boot_id"],
        )
        for row in rows
    ]
