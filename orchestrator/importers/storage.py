"""Storing another tool's results as a run that was not randomised, in one transaction.

Ids come from the file's sum, so that the same file is the same run on every machine. A value that the file lacks is
NULL; a trial that has no time of its own is marked, because an audit must know that.
"""

import datetime as dt
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from db import models
from db.engine import Database
from db.session import transaction
from db.shared_rows import experiment_row, found_or_added
from orchestrator.importers.foreign_plan import ORDER, arm_config
from orchestrator.importers.foreign_run import ForeignArm, ForeignGeneration, ForeignResults, ForeignTrial, Model
from orchestrator.importers.source import Source
from orchestrator.jsonable import bounded
from orchestrator.plan import Plan, dump, sha256_of
from orchestrator.statistics.unrandomised import PLACED, UNTIMED

UNKNOWN = "unknown"
_IDS = uuid.UUID("5b3c1a52-5b0e-4d5c-9a77-2f6a1f0d6c11")  # namespace of the ids of all imported rows
_FLAG = {"own": (), "placed": (PLACED,), "none": (UNTIMED,)}
_MEASURES = (
    "prompt_tokens cached_tokens completion_tokens finish_reason ttft_s prefill_tps decode_tps end_to_end_tps total_s"
    " drafted accepted verify_steps accept_length acceptance_rate requested engaged useful peak_memory_bytes"
).split()


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The outcome of an import."""

    run_id: str
    known: bool  # it was imported before, and nothing was changed


def store(
    database: Database, results: ForeignResults, plan: Plan, source: Source, *, host: str | None = None
) -> Imported:
    """Store a run, unless the same file's is there.

    Args:
        results: with all times in UTC, see `orchestrator.importers.source.in_utc`.
        host: the machine's name; None: unknown.
    """
    with transaction(database) as session:
        known = session.scalar(select(models.Run.id).where(models.Run.source_sha256 == source.sha256))
        if known is not None:
            return Imported(run_id=known, known=True)
        run = _run(session, results, plan, source, host)
        session.add(run)
        session.flush()
        environment = _environment(session, results)
        arms = {arm.name: _arm(session, arm, plan, source, run.id) for arm in results.arms}
        session.add_all(arms.values())
        session.flush()
        for number, trial in enumerate(results.trials):
            session.add(_trial(number, trial, results, run, arms[trial.arm].id, environment.id, source))
    return Imported(run_id=run.id, known=False)


def _id(source: Source, *path: Any) -> str:
    return str(uuid.uuid5(_IDS, "/".join(map(str, (source.sha256, *path)))))


def _run(session: Session, results: ForeignResults, plan: Plan, source: Source, host: str | None) -> models.Run:
    started_at = results.started_at or source.modified_at
    last = max((trial.started_at for trial in results.trials if trial.started_at is not None), default=started_at)
    return models.Run(
        id=_id(source, "run"),
        experiment_id=experiment_row(session, plan.experiment).id,
        host_id=_host(session, results, host).id,
        status="done",
        created_at=started_at,
        finished_at=max(last, started_at),
        plan=dump(plan),
        plan_sha256=plan.sha256,
        workload_sha256=plan.workload_sha256,
        seed=0,
        rounds=0,
        metric=plan.design.metric,
        interleave_by=plan.design.interleave_by,
        order_distribution=ORDER,
        simulated=False,
        note="\n".join(results.notes) or None,
        origin=results.format,
        randomised=False,
        source_name=source.name,
        source_sha256=source.sha256,
        arrived_at=dt.datetime.now(dt.UTC),
        arrived_from=source.name,
    )


def _host(session: Session, results: ForeignResults, name: str | None) -> models.Host:
    machine = results.machine
    # No machine that interlace itself ran on has such an identity: imported results are never taken for its own.
    identity = sha256_of(["imported", name or UNKNOWN, machine.chip, machine.cpu_count, machine.memory_bytes])
    missing = {"host": "another tool's results: not stated"} if name is None else {}
    row = models.Host(
        id=models.new_id(),
        name=name or UNKNOWN,
        machine_sha256=identity,
        chip=machine.chip,
        cpu_count=machine.cpu_count,
        memory_bytes=machine.memory_bytes,
        detail={"os": machine.os, "missing": missing} | bounded(dict(machine.detail)),
    )
    return found_or_added(session, row, models.Host.machine_sha256)


def _environment(session: Session, results: ForeignResults) -> models.Environment:
    versions = results.versions
    packages = bounded(dict(versions.packages))
    identity = sha256_of(["foreign", versions.python, versions.mlx, versions.mlx_lm, results.machine.os, packages])
    row = models.Environment(
        id=models.new_id(),
        sha256=identity,
        python=versions.python or UNKNOWN,
        interlace_version=UNKNOWN,  # none ran
        mlx_version=versions.mlx,
        mlx_lm_version=versions.mlx_lm,
        os=results.machine.os or UNKNOWN,
        os_build=None,
        packages=packages,
    )
    return found_or_added(session, row, models.Environment.sha256)


def _checkpoint(session: Session, model: Model) -> models.Checkpoint:
    """The checkpoint of weights that are not available: name and size identify it."""
    digest = "foreign:" + sha256_of([model.name, model.bits, model.weights_bytes])
    row = models.Checkpoint(
        id=models.new_id(),
        digest=digest,
        name=model.name,
        source="unknown",
        revision=None,
        bits=model.bits,
        weights_bytes=model.weights_bytes,
        config={"name": model.name, "source": "unknown", "bits": model.bits},
    )
    return found_or_added(session, row, models.Checkpoint.digest)


def _arm(session: Session, arm: ForeignArm, plan: Plan, source: Source, run_id: str) -> models.Arm:
    (planned,) = (each for each in plan.arms if each.name == arm.name)
    draft = None if arm.draft is None else _checkpoint(session, arm.draft)
    return models.Arm(
        id=_id(source, "arm", arm.name),
        run_id=run_id,
        name=arm.name,
        is_control=arm.name == plan.control,
        config_sha256=planned.config_sha256,
        fingerprint=None,
        engine=arm.engine,
        engine_version=arm.engine_version,
        checkpoint_id=_checkpoint(session, arm.model).id,
        draft_checkpoint_id=None if draft is None else draft.id,
        draft=None if arm.draft is None else arm.draft.name,
        block_size=arm.block_size,
        engine_setting={},
        temperature=arm.temperature,
        config=arm_config(arm),
        state="active",
    )


def _trial(
    number: int,
    trial: ForeignTrial,
    results: ForeignResults,
    run: models.Run,
    arm_id: str,
    environment_id: str,
    source: Source,
) -> models.Trial:
    started_at = trial.started_at or run.created_at
    flags = _FLAG["none" if trial.started_at is None else results.timing]
    return models.Trial(
        id=_id(source, "trial", number),
        run_id=run.id,
        arm_id=arm_id,
        environment_id=environment_id,
        kind="measured",
        is_aa=False,
        sequence=number,
        ordinal=number,
        seed=None,
        started_at=started_at,
        wall_s=trial.wall_s,
        status="done" if trial.error is None else "invalid",
        error_kind=None if trial.error is None else "foreign",
        error_message=trial.error,
        **_thermal(trial),
        power_source=trial.power_source,
        power_reason=None if trial.power_source else "not in the file",
        generations=[_generation(trial.generation, started_at, flags, results, _id(source, "generation", number))],
    )


def _thermal(trial: ForeignTrial) -> Mapping[str, Any]:
    """The thermal columns. Only the lowest level has a number that means the same everywhere."""
    if trial.thermal == "nominal":
        return {"thermal_before": 0}
    return {"thermal_reason": f"the file states {trial.thermal}" if trial.thermal else "not in the file"}


def _generation(
    one: ForeignGeneration, started_at: dt.datetime, flags: tuple[str, ...], results: ForeignResults, key: str
) -> models.Generation:
    signs = []
    if one.evidence is not None:
        signs = [
            models.Evidence(
                id=str(uuid.uuid5(_IDS, f"{key}/evidence")),
                mechanism="speculation",
                requested=bool(one.requested),
                engaged=one.engaged,
                useful=one.useful,
                source=results.format,
                text=one.evidence,
                drafted=one.drafted,
                accepted=one.accepted,
            )
        ]
    return models.Generation(
        id=key,
        position=0,
        prompt_id=one.prompt,
        workload=results.format,
        prompt_class=one.prompt_class,
        turn=one.turn,
        started_at=started_at,
        flags=[*one.flags, *flags],
        evidence=signs,
        **{name: getattr(one, name) for name in _MEASURES},
    )
