"""Reads what a report is made of. The only module here that knows the database; it writes nothing."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import RowMapping, select, text

from db import models
from db.engine import Database
from db.session import read_only
from orchestrator.judging import arm_facts, composition, conditions, judge
from orchestrator.meaning import findings
from orchestrator.report.material import ArmRow, Material, RunFacts, Sign, Versions
from orchestrator.statistics.claims import Claim, beside
from orchestrator.stored_run import StoredRun

_ARMS = """
SELECT arm.name, arm.is_control, arm.engine, arm.engine_version, checkpoint.name AS checkpoint,
    checkpoint.source AS checkpoint_source, checkpoint.revision, checkpoint.digest, checkpoint.bits,
    checkpoint.weights_bytes, arm.draft, arm.block_size, arm.temperature, arm.config_sha256, arm.state, arm.state_reason
FROM arm LEFT JOIN checkpoint ON checkpoint.id = arm.checkpoint_id
WHERE arm.run_id = :run_id ORDER BY arm.is_control DESC, arm.id
"""
_VERSIONS = """
SELECT count(*) AS trials, environment.interlace_version AS interlace, environment.python,
    environment.mlx_version AS mlx, environment.mlx_lm_version AS mlx_lm, environment.os, environment.os_build
FROM trial JOIN environment ON environment.id = trial.environment_id
WHERE trial.run_id = :run_id GROUP BY environment.id ORDER BY trials DESC
"""
# The example is the shortest text: what varies from one generation to the next are its numbers.
_SIGNS = """
SELECT arm.name AS arm, evidence.mechanism, evidence.source, evidence.requested, evidence.engaged, evidence.useful,
    count(*) AS generations, min(evidence.text) AS example
FROM evidence
JOIN generation ON generation.id = evidence.generation_id
JOIN trial ON trial.id = generation.trial_id
JOIN arm ON arm.id = trial.arm_id
WHERE trial.run_id = :run_id AND trial.kind = 'measured'
GROUP BY arm.id, evidence.mechanism, evidence.source, evidence.requested, evidence.engaged, evidence.useful
ORDER BY arm.is_control DESC, arm.id, generations DESC
"""


def load_material(stored: StoredRun, *, claims: Sequence[Claim] = ()) -> Material:
    """Everything that a report of the run shows, judged now by the run's own plan.

    Args:
        claims: published figures to set beside the results; those about other contrasts are left out.
    """
    database, run_id, plan, frame = stored.database, stored.run_id, stored.plan, stored.trials
    run = _run_facts(database, run_id)
    result = judge(frame, plan)
    found = beside(result, claims, arms=arm_facts(frame), conditions=conditions(frame, plan)) if claims else ()
    return Material(
        run=run,
        plan=plan,
        arms=tuple(ArmRow(**_flags(row, "is_control")) for row in _rows(database, _ARMS, run_id)),
        trials=frame,
        result=result,
        composition=composition(stored),
        claims=found,
        findings=findings(stored, result),
        versions=tuple(Versions(**row) for row in _rows(database, _VERSIONS, run_id)),
        signs=tuple(Sign(**_flags(row, "requested", "engaged", "useful")) for row in _rows(database, _SIGNS, run_id)),
    )


def _rows(database: Database, sql: str, run_id: str) -> list[RowMapping]:
    with read_only(database) as session:
        return list(session.execute(text(sql), {"run_id": run_id}).mappings())


def _flags(row: RowMapping, *names: str) -> dict[str, Any]:
    """SQLite keeps flags as numbers."""
    return dict(row) | {name: None if row[name] is None else bool(row[name]) for name in names}


def _run_facts(database: Database, run_id: str) -> RunFacts:
    with read_only(database) as session:
        run, host, experiment = session.execute(
            select(models.Run, models.Host, models.Experiment)
            .join(models.Host, models.Host.id == models.Run.host_id)
            .join(models.Experiment, models.Experiment.id == models.Run.experiment_id)
            .where(models.Run.id == run_id)
        ).one()
        same = (
            "status created_at finished_at seed rounds plan_sha256 workload_sha256 order_distribution simulated"
            " randomised origin source_name note bandwidth_bytes_per_s bandwidth_source"
        ).split()
        return RunFacts(
            run_id=run_id,
            experiment=experiment.name,
            host=host.name,
            chip=host.chip,
            cpu_count=host.cpu_count,
            memory_bytes=host.memory_bytes,
            **{name: getattr(run, name) for name in same},
        )
