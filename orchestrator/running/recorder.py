"""Recording a run: it is stored before anything runs, then each trial in one transaction; corrections come last."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Table, case, func, insert, select, update
from sqlalchemy.orm import Session

from db import models
from db.engine import Database
from db.session import read_only, transaction
from db.shared_rows import experiment_row
from orchestrator.plan import Arm, Plan, dump, sha256_of
from orchestrator.planning.hosts import host_row
from orchestrator.planning.residency import is_simulated
from orchestrator.planning.weights import ArmWeights
from orchestrator.running.database_rows import (
    checkpoint_row,
    environment_row,
    gate_detail,
    generation_rows,
    locked_rows,
    number,
    telemetry_values,
    words,
)
from orchestrator.running.leases import held_error, row_is_held
from orchestrator.running.planned_here import remember
from orchestrator.running.progress import UnderWay
from orchestrator.running.trial import Fault, LoadMemory, Outcome, Verdict, hottest, settle
from orchestrator.schedule import ScheduledTrial, order_distribution
from workers.machine.bandwidth import published_gb_per_s
from workers.machine.host import HostFacts
from workers.machine.process_identity import Lease
from workers.protocol import Hello, Loaded

# A night waits for a backup or a sleeping writer instead of ending: nothing is measured meanwhile.
PATIENCE_S = 600.0
_TELEMETRY: Table = models.Base.metadata.tables[models.Telemetry.__tablename__]


def finish_run(database: Database, run_id: str, status: str, *, note: str | None = None) -> None:
    """Store a run's end: done, interrupted or failed."""
    values: dict[str, Any] = {"status": status, "note": note, "finished_at": None}
    if status in ("done", "failed"):
        values |= {"finished_at": dt.datetime.now(dt.UTC), "current": None}
    with transaction(database, patience_s=PATIENCE_S) as session:
        changed = update(models.Run).where(models.Run.id == run_id, models.Run.status != status)
        session.execute(changed.values(**values))


@dataclass(slots=True)
class Recorder:
    """Writes one run. Every method is one short transaction."""

    database: Database
    plan: Plan
    run_id: str
    arm_ids: dict[str, str]
    environment_ids: dict[str, str] = field(default_factory=dict)  # by arm
    last_ordinal: int | None = None  # of the stored trials, once known
    last_round: tuple[int | None, int, str | None] | None = None  # of the newest trial: index, attempt, id
    boot_id: str | None = None  # known once a process runs it

    @property
    def simulated(self) -> bool:
        """Return whether every arm is simulated, so that nothing is measured."""
        return all(is_simulated(arm) for arm in self.plan.arms)

    # ---- the run ----

    def take_lease(self, lease: Lease) -> None:
        """Store the process that executes the run, so that a reader can distinguish a live run from an interrupted one.

        Raises:
            HeldError: another living process executes it.
        """
        self.boot_id = lease.boot_id
        with transaction(self.database, patience_s=PATIENCE_S) as session:
            run = session.get_one(models.Run, self.run_id)
            own = (run.runner_pid, run.runner_started_at) == (lease.pid, lease.process_started_at)
            if not own and row_is_held(run):
                raise held_error(run.id, run.runner_pid)
            run.status, run.finished_at, run.heartbeat_at = "running", None, dt.datetime.now(dt.UTC)
            run.runner_pid, run.runner_started_at, run.boot_id = lease.pid, lease.process_started_at, lease.boot_id

    def finish(self, status: str, *, note: str | None = None) -> None:
        """Store the run's end: done, interrupted or failed."""
        finish_run(self.database, self.run_id, status, note=note)

    # ---- arms ----

    def arm_loaded(
        self, arm: Arm, hello: Hello, loaded: Loaded, host: HostFacts, *, memory: LoadMemory | None = None
    ) -> None:
        """Store the versions, widths and memory known after loading, and the arm's fingerprint."""
        with transaction(self.database, patience_s=PATIENCE_S) as session:
            environment = environment_row(session, hello, host, served=loaded.served)
            row = session.get_one(models.Arm, self.arm_ids[arm.name])
            row.engine_version = loaded.engine_version
            row.block_size = loaded.verify_width if loaded.drafted_per_step is not None else None
            row.drafted_per_step = loaded.drafted_per_step
            row.engine_setting = loaded.engine_setting
            row.load_s = loaded.load_s
            row.active_memory_bytes = loaded.active_memory_bytes
            if memory is not None:
                row.planned_weights_bytes, row.footprint_bytes = memory.planned_bytes, memory.footprint_bytes
                row.memory_note = memory.note
            digests = [
                session.get_one(models.Checkpoint, key).digest
                for key in (row.checkpoint_id, row.draft_checkpoint_id)
                if key is not None
            ]
            row.fingerprint = sha256_of([row.config_sha256, digests, environment.sha256])
            self.environment_ids[arm.name] = environment.id

    def arm_dropped(self, arm: Arm, reason: str) -> None:
        """Store that the arm is dropped."""
        with transaction(self.database, patience_s=PATIENCE_S) as session:
            row = session.get_one(models.Arm, self.arm_ids[arm.name])
            row.state, row.state_reason = "dropped", reason

    # ---- trials ----

    def save(self, outcome: Outcome, *, attempt: int, order: Sequence[str]) -> Verdict:
        """Commit one trial with all its parts."""
        design, scheduled = self.plan.design, outcome.trial
        verdict = settle(
            outcome,
            evidence_policy=design.evidence,
            gate=self.plan.gate,
            cached_share_max=design.cached_share_max,
        )
        with transaction(self.database, patience_s=PATIENCE_S) as session:
            row = self._trial(session, outcome, verdict, attempt=attempt, order=order)
            session.add(row)
            session.flush()
            if readings := telemetry_values(row.id, before=outcome.before, during=outcome.during, after=outcome.after):
                # Inserted through the table: as ORM rows they would cost more than the rest of a trial.
                session.connection().execute(insert(_TELEMETRY), readings)
        self.last_ordinal, self.last_round = row.ordinal, (scheduled.round, attempt, row.round_id)
        return verdict

    def _trial(
        self, session: Session, outcome: Outcome, verdict: Verdict, *, attempt: int, order: Sequence[str]
    ) -> models.Trial:
        scheduled = outcome.trial
        thermal_before, thermal_reason = number(outcome.before, "thermal_level")
        thermal_after, _ = number(outcome.after, "thermal_level")
        power_source, power_reason = words(outcome.before, "power_source")
        thermal_max = hottest(outcome.circumstances)
        return models.Trial(
            run_id=self.run_id,
            arm_id=self.arm_ids[scheduled.arm],
            round_id=self._round_id(session, scheduled, attempt=attempt, order=order),
            environment_id=self.environment_ids.get(scheduled.arm),
            kind=scheduled.kind,
            is_aa=scheduled.is_aa,
            sequence=scheduled.sequence,
            position=scheduled.position,
            seed=scheduled.seed,
            started_at=outcome.started_at,
            wall_s=outcome.wall_s,
            monotonic_s=outcome.monotonic_s,
            gate_wait_s=outcome.passage.waited_s,
            gate_state=outcome.passage.state,
            gate_detail=gate_detail(outcome.passage),
            ordinal=self._next_ordinal(session),
            boot_id=self.boot_id,
            status=verdict.status,
            error_kind=verdict.fault.kind if verdict.fault else None,
            error_message=verdict.fault.message if verdict.fault else None,
            excluded_reason=verdict.excluded_reason,
            thermal_before=None if thermal_before is None else int(thermal_before),
            thermal_max=None if thermal_max is None else int(thermal_max),
            thermal_after=None if thermal_after is None else int(thermal_after),
            thermal_reason=thermal_reason,
            power_source=power_source,
            power_reason=power_reason,
            log_path=outcome.log_path,
            generations=generation_rows(outcome.generations),
        )

    def _next_ordinal(self, session: Session) -> int:
        """Return the trial's place in time as a count, because the wall clock may be set back."""
        if self.last_ordinal is None:
            stored = select(func.max(models.Trial.ordinal)).where(models.Trial.run_id == self.run_id)
            last = session.scalar(stored)
            self.last_ordinal = -1 if last is None else last
        return self.last_ordinal + 1

    def _round_id(
        self, session: Session, scheduled: ScheduledTrial, *, attempt: int, order: Sequence[str]
    ) -> str | None:
        """Return the id of the round's row, which is made with its first trial."""
        if scheduled.round is None:
            return None
        if self.last_round is not None and self.last_round[:2] == (scheduled.round, attempt):
            return self.last_round[2]
        known = select(models.Round.id).where(
            models.Round.run_id == self.run_id,
            models.Round.index == scheduled.round,
            models.Round.attempt == attempt,
        )
        if (found := session.scalar(known)) is not None:
            return found
        by_prompt = self.plan.design.interleave_by == "prompt"
        row = models.Round(
            id=models.new_id(),
            run_id=self.run_id,
            index=scheduled.round,
            attempt=attempt,
            prompt_id=scheduled.prompt_ids[0] if by_prompt else None,
            order=list(order),
        )
        session.add(row)
        session.flush()
        return row.id

    def save_interrupted(self, found: UnderWay) -> None:
        """Store the trial in which a former process died. It does not count, and its round is replayed whole."""
        scheduled = found.trial
        with transaction(self.database, patience_s=PATIENCE_S) as session:
            round_id = self._round_id(session, scheduled, attempt=found.unit.attempt, order=found.unit.order)
            row = models.Trial(
                run_id=self.run_id,
                arm_id=self.arm_ids[scheduled.arm],
                round_id=round_id,
                kind=scheduled.kind,
                is_aa=scheduled.is_aa,
                sequence=scheduled.sequence,
                position=scheduled.position,
                seed=scheduled.seed,
                started_at=dt.datetime.fromisoformat(found.started_at),
                ordinal=self._next_ordinal(session),
                status="interrupted",
                excluded_reason="interrupted: the process that ran it ended",
            )
            session.add(row)
        self.last_ordinal = row.ordinal

    def exclude_round(self, index: int, *, reason: str) -> None:
        """Exclude an unfinished round's trials, which stay stored: the round is replayed whole.

        An invalid trial stays invalid, with its fault.
        """
        rounds = select(models.Round.id).where(models.Round.run_id == self.run_id, models.Round.index == index)
        with transaction(self.database, patience_s=PATIENCE_S) as session:
            session.execute(
                update(models.Trial)
                .where(models.Trial.round_id.in_(rounds), models.Trial.excluded_reason.is_(None))
                .values(
                    status=case((models.Trial.status == "done", "excluded"), else_=models.Trial.status),
                    excluded_reason=reason,
                )
            )


def create_run(
    database: Database, plan: Plan, *, host: HostFacts, weights: Mapping[str, ArmWeights], log_root: Path
) -> Recorder:
    """Store the frozen plan before anything runs.

    Raises:
        RefusedError: the list of what was planned here cannot be written.
    """
    published, bandwidth_source = published_gb_per_s(host.chip, host.gpu_cores)
    run_id = models.new_id()
    remember(run_id, plan.sha256)
    with transaction(database) as session:
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
            bandwidth_source=bandwidth_source,  # the reason if unknown; measured after the last round
        )
        session.add(run)
        session.flush()
        arms = [_arm(session, plan, arm, run.id, weights[arm.name]) for arm in plan.arms]
        session.add_all(arms)
        session.add_all(locked_rows(plan, run.id))
        session.flush()
        return Recorder(database=database, plan=plan, run_id=run.id, arm_ids={row.name: row.id for row in arms})


def reopen_run(database: Database, plan: Plan, run_id: str) -> Recorder:
    """Return the recorder of an existing run."""
    with read_only(database) as session:
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
        environment=None if arm.environment is None else arm.environment["name"],
        state="active",
    )


def spoil_newest_trial(database: Database, *, run_id: str, arm_id: str, fault: Fault) -> bool:
    """Make the arm's newest trial invalid if it counts: a fixed rule that looks at the process, never at the speed.

    Returns:
        Whether it was changed: an excluded or already failed trial keeps its status.
    """
    newest: Any = (
        select(models.Trial.id)
        .where(models.Trial.run_id == run_id, models.Trial.arm_id == arm_id, models.Trial.kind != "warmup")
        .order_by(models.Trial.ordinal.desc())
        .limit(1)
        .scalar_subquery()
    )
    spoil = update(models.Trial).where(models.Trial.id == newest, models.Trial.status == "done")
    with transaction(database) as session:
        done = session.execute(
            spoil.values(status="invalid", error_kind=fault.kind, error_message=fault.message)
            .execution_options(synchronize_session=False)
            .returning(models.Trial.id)
        )
        return done.first() is not None


def note_memory(database: Database, *, arm_id: str, text: str) -> None:
    """Store with an arm how its memory differs from the plan."""
    with transaction(database) as session:
        session.get_one(models.Arm, arm_id).memory_note = text
