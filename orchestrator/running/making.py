"""Making a run: the frozen plan and its arms become rows before anything runs."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from sqlalchemy import Engine as Database
from sqlalchemy import select
from sqlalchemy.orm import Session

from db import models
from db.session import reading, transaction
from orchestrator.plan import Arm, Plan, dump
from orchestrator.planning.residency import is_simulated
from orchestrator.running.hosts import host_row
from orchestrator.running.preparation import ArmWeights
from orchestrator.running.recorder import Recorder
from orchestrator.running.shared_rows import checkpoint_row, experiment_row
from orchestrator.schedule import order_distribution
from workers.machine.bandwidth import published_gb_per_s
from workers.machine.host import HostFacts


def create_run(
    database: Database, plan: Plan, *, host: HostFacts, weights: Mapping[str, ArmWeights], log_root: Path
) -> Recorder:
    """Store the frozen plan before anything runs."""
    published, bandwidth_source = published_gb_per_s(host.chip, host.gpu_cores)
    with transaction(database) as session:
        run_id = models.new_id()
        run = models.Run(
            id=run_id,
            experiment_id=experiment_row(session, plan.experiment).id,
            host_id=host_row(session, host).id,
            status="planned",
            created_at=dt.datetime.now(dt.UTC),
            plan=dump(plan),
            plan_sha256=plan.sha256,
            workload_sha256=plan.workload_sha256,
            seed=plan.design.seed,
            rounds=plan.design.rounds,
            metric=plan.design.metric,
            interleave_by=plan.design.interleave_by,
            order_distribution=order_distribution(plan),
            simulated=any(is_simulated(arm) for arm in plan.arms),
            log_dir=str(log_root / run_id),
            bandwidth_bytes_per_s=None if published is None else published * 1e9,
            bandwidth_source=bandwidth_source,  # where unknown: why; measured after the last round
        )
        session.add(run)
        session.flush()
        arms = [_arm(session, plan, arm, run.id, weights[arm.name]) for arm in plan.arms]
        session.add_all(arms)
        session.flush()
        return Recorder(database=database, plan=plan, run_id=run.id, arm_ids={row.name: row.id for row in arms})


def reopen_run(database: Database, plan: Plan, run_id: str) -> Recorder:
    """The recorder of a run that exists."""
    with reading(database) as session:
        rows = session.execute(select(models.Arm.name, models.Arm.id).where(models.Arm.run_id == run_id)).all()
    return Recorder(database=database, plan=plan, run_id=run_id, arm_ids={name: key for name, key in rows})


def _arm(session: Session, plan: Plan, arm: Arm, run_id: str, weights: ArmWeights) -> models.Arm:
    target = checkpoint_row(session, arm.checkpoint, weights.target)
    drafting = None if arm.draft is None else checkpoint_row(session, arm.draft, weights.draft)
    return models.Arm(
        id=models.new_id(),
        run_id=run_id,
        name=arm.name,
        is_control=arm.name == plan.control,
        config_sha256=arm.config_sha256,
        engine=arm.engine["name"],
        checkpoint_id=target.id,
        draft_checkpoint_id=None if drafting is None else drafting.id,
        draft=None if arm.draft is None else arm.draft["name"],
        engine_setting={},
        temperature=arm.sampling["temperature"],
        config=asdict(arm),
        state="active",
    )
