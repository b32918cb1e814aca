"""Reads the material of a report. The only module here that uses the database; it writes nothing."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from sqlalchemy import RowMapping, func, select, text

from db import models
from db.engine import Database
from db.remarks import Remark
from db.session import read_only
from orchestrator.judging import Judged, arm_facts, conditions, judgement
from orchestrator.meaning import findings
from orchestrator.report.material import ArmEnergy, ArmRow, Material, RunFacts, Sign, Versions
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
# The example is the shortest text: only the numbers in it vary from one generation to the next.
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
# The reading after a trial is the counter's growth since the one before it.
_ENERGY = """
SELECT arm.name AS arm, telemetry.source, telemetry.value / 1000.0 / sum(generation.completion_tokens) AS joules
FROM telemetry
JOIN trial ON trial.id = telemetry.trial_id
JOIN arm ON arm.id = trial.arm_id
JOIN generation ON generation.trial_id = trial.id
WHERE trial.run_id = :run_id AND trial.kind = 'measured' AND trial.status = 'done'
    AND telemetry.field = 'energy_mj' AND telemetry.phase = 'after' AND telemetry.value > 0
GROUP BY telemetry.id
HAVING min(generation.completion_tokens) > 0
ORDER BY arm.is_control DESC, arm.id
"""


def load_material(
    stored: StoredRun, judged: Judged | None = None, *, claims: Sequence[Claim] = (), record: bool = True
) -> Material:
    """Load everything that an audit or a report of the run shows.

    Args:
        judged: the judgement; None: the run is judged now by its own plan, and nothing is stored.
        claims: published figures to show beside the results; those about other contrasts are left out.
        record: whether to load versions and evidence too, which an audit does not show.
    """
    database, run_id, plan, frame = stored.database, stored.run_id, stored.plan, stored.trials
    run = _run_facts(database, run_id)
    judged = judged or judgement(stored)
    result = judged.result
    found = beside(result, claims, arms=arm_facts(frame), conditions=conditions(frame, plan)) if claims else ()
    return Material(
        run=run,
        plan=plan,
        arms=tuple(ArmRow(**_flags(row, "is_control")) for row in _rows(database, _ARMS, run_id)),
        trials=frame,
        result=result,
        composition=judged.composition,
        claims=found,
        findings=findings(stored, result),
        versions=tuple(Versions(**row) for row in _rows(database, _VERSIONS, run_id)) if record else (),
        signs=_signs(database, run_id) if record else (),
        revisions=judged.revisions,
        energy=_energy(database, run_id),
        caches_unknown=_caches_unknown(database, run_id) if run.randomised else (),
    )


def _energy(database: Database, run_id: str) -> tuple[ArmEnergy, ...]:
    found: dict[str, list[RowMapping]] = {}
    for row in _rows(database, _ENERGY, run_id):
        found.setdefault(row["arm"], []).append(row)
    return tuple(
        ArmEnergy(
            arm=arm,
            joules_per_token=median(row["joules"] for row in rows),
            trials=len(rows),
            source=str(rows[0]["source"]),
        )
        for arm, rows in found.items()
    )


def _signs(database: Database, run_id: str) -> tuple[Sign, ...]:
    rows = _rows(database, _SIGNS, run_id)
    return tuple(Sign(**_flags(row, "requested", "engaged", "useful")) for row in rows)


def _caches_unknown(database: Database, run_id: str) -> tuple[str, ...]:
    """Return the arms whose servers never report the cached part of a first prompt, unless launched without a cache."""
    answered = (
        select(models.Arm.name, models.Arm.config)
        .join(models.Trial, models.Trial.arm_id == models.Arm.id)
        .join(models.Generation, models.Generation.trial_id == models.Trial.id)
        .where(
            models.Arm.run_id == run_id,
            models.Trial.kind == "measured",
            models.Generation.turn == 0,
            models.Generation.stamps_of == "chunk",
        )
        .group_by(models.Arm.id)
        .having(func.count(models.Generation.cached_tokens) == 0, func.count(models.Trial.round_id.distinct()) > 1)
        .order_by(models.Arm.id)
    )
    with read_only(database) as session:
        rows = session.execute(answered).all()
    return tuple(name for name, config in rows if not _launched_without_cache(config.get("engine")))


def _launched_without_cache(engine: object) -> bool:
    return isinstance(engine, dict) and engine.get("prefix_cache") is False and engine.get("attach") is None


def _rows(database: Database, sql: str, run_id: str) -> list[RowMapping]:
    with read_only(database) as session:
        return list(session.execute(text(sql), {"run_id": run_id}).mappings())


def _flags(row: RowMapping, *names: str) -> dict[str, Any]:
    """Convert flags, which SQLite stores as numbers, to booleans."""
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
            said=str(Remark(remark=run.remark, tags=tuple(sorted(map(str, run.tags or ()))))),
            **{name: getattr(run, name) for name in same},
        )
