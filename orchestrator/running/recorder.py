"""From what happened to rows: builds the tables' objects and commits them, one transaction a trial."""

import datetime as dt
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine as Database
from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from db import models
from db.session import reading, transaction
from orchestrator.errors import RefusedError
from orchestrator.jsonable import bounded
from orchestrator.plan import Arm, Gate, Plan, Prompt, dump, sha256_of
from orchestrator.planning.residency import is_simulated
from orchestrator.running.evidence import Judgement, judge
from orchestrator.running.exclusion import Circumstances, excluded_reason, hottest
from orchestrator.running.gate import Passage
from orchestrator.running.measures import flags, measure
from orchestrator.running.preparation import ArmWeights
from orchestrator.running.progress import StoredTrial
from orchestrator.schedule import ORDER_DISTRIBUTION, ScheduledTrial
from workers.bandwidth import published_gb_per_s
from workers.checkpoints import CheckpointInfo
from workers.host import HostFacts, Lease, holds
from workers.protocol import Generation, Hello, Loaded
from workers.telemetry import Reading

if TYPE_CHECKING:
    from orchestrator.audit import AuditResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why a trial is invalid."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One trial as it happened, before it is judged."""

    trial: ScheduledTrial
    started_at: dt.datetime
    wall_s: float
    monotonic_s: float
    passage: Passage  # through the gate
    generations: Sequence[tuple[Prompt, Generation]]
    fault: Fault | None
    before: Sequence[Reading]
    during: Sequence[Reading]
    after: Sequence[Reading]
    log_path: str | None

    @property
    def circumstances(self) -> Circumstances:
        return Circumstances(
            passage=self.passage,
            wall_s=self.wall_s,
            monotonic_s=self.monotonic_s,
            before=self.before,
            during=self.during,
            after=self.after,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadMemory:
    """An arm's memory after loading, beside the plan's."""

    planned_bytes: int | None  # weights, draft included
    footprint_bytes: int | None  # of the worker's process
    note: str | None  # None: as planned, or unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a trial: its status and, unless done, why."""

    status: str
    fault: Fault | None = None
    excluded_reason: str | None = None


def settle(outcome: Outcome, *, evidence_policy: str, gate: Gate) -> Verdict:
    """Judge a trial by rules fixed beforehand: faults, evidence, the machine. Never by its speed. Pure."""
    if outcome.fault is not None:
        return Verdict(status="invalid", fault=outcome.fault)
    if evidence_policy == "require":
        for _, generation in outcome.generations:
            if reason := judge(generation.evidence).fault:
                kind, _, message = reason.partition(": ")
                return Verdict(status="invalid", fault=Fault(kind=kind, message=message))
    if (why := excluded_reason(gate, outcome.circumstances)) is not None:
        return Verdict(status="excluded", excluded_reason=why)
    return Verdict(status="done")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What is already there of a run."""

    trials: tuple[StoredTrial, ...]
    dropped: frozenset[str]


@dataclass(slots=True)
class Recorder:
    """Writes one run. Every method is one short transaction."""

    database: Database
    plan: Plan
    run_id: str
    arm_ids: dict[str, str]
    environment_ids: dict[str, str] = field(default_factory=dict)  # by arm
    round_ids: dict[tuple[int, int], str] = field(default_factory=dict)
    boot_id: str | None = None  # known once somebody runs it

    @property
    def simulated(self) -> bool:
        """Whether nothing of this run is measured."""
        return all(is_simulated(arm) for arm in self.plan.arms)

    # ---- the run ----

    def take_lease(self, lease: Lease) -> None:
        """Say who runs it: a reader can then tell a live run from an interrupted one."""
        self.boot_id = lease.boot_id
        self._update_run(
            status="running",
            runner_pid=lease.pid,
            runner_started_at=lease.process_started_at,
            boot_id=lease.boot_id,
            finished_at=None,
        )

    def finish(self, status: str, *, note: str | None = None) -> None:
        """The run ended: done, interrupted or failed."""
        finished_at = dt.datetime.now(dt.UTC) if status in ("done", "failed") else None
        self._update_run(status=status, finished_at=finished_at, note=note)

    def _update_run(self, **values: Any) -> None:
        with transaction(self.database) as session:
            session.execute(update(models.Run).where(models.Run.id == self.run_id).values(**values))

    def log_dir(self) -> Path:
        """The folder of the workers' logs and their journal."""
        with reading(self.database) as session:
            return Path(session.get_one(models.Run, self.run_id).log_dir or ".")

    def stored(self) -> "Stored":
        """What a former execution left."""
        trials = (
            select(models.Trial.sequence, models.Round.index, models.Round.attempt, models.Trial.status)
            .outerjoin(models.Round, models.Trial.round_id == models.Round.id)
            .where(models.Trial.run_id == self.run_id, models.Trial.kind != "warmup")
        )
        dropped = select(models.Arm.name).where(models.Arm.run_id == self.run_id, models.Arm.state == "dropped")
        with reading(self.database) as session:
            rows = [
                StoredTrial(sequence=sequence, round=index, attempt=attempt, counts=status in ("done", "invalid"))
                for sequence, index, attempt, status in session.execute(trials)
            ]
            return Stored(trials=tuple(rows), dropped=frozenset(session.scalars(dropped)))

    def refuse_if_held(self) -> None:
        """Two processes must not run one run.

        Raises:
            RefusedError: the process that took the lease still runs.
        """
        with reading(self.database) as session:
            run = session.get_one(models.Run, self.run_id)
            pid, started_at, boot_id, status = run.runner_pid, run.runner_started_at, run.boot_id, run.status
        if status != "running" or pid is None or started_at is None:
            return
        if holds(Lease(pid=pid, process_started_at=started_at, boot_id=boot_id)):
            raise RefusedError(f"run {self.run_id} is being run by process {pid}: wait for it, or stop it first")

    def refuse_other_weights(self, weights: Mapping[str, ArmWeights]) -> None:
        """A run goes on with the weights that it began with.

        Raises:
            RefusedError: a checkpoint's digest changed since.
        """
        stored = select(models.Arm.name, models.Checkpoint.digest).join(
            models.Checkpoint, models.Arm.checkpoint_id == models.Checkpoint.id
        )
        with reading(self.database) as session:
            digests = dict(session.execute(stored.where(models.Arm.run_id == self.run_id)).tuples().all())
        for name, found in weights.items():
            if found.target is not None and found.target.digest != digests.get(name):
                raise RefusedError(
                    f"arm {name}: its checkpoint is not the one that this run began with; put the former one back,"
                    " or start a new run"
                )

    # ---- arms ----

    def arm_loaded(
        self, arm: Arm, hello: Hello, loaded: Loaded, host: HostFacts, *, memory: "LoadMemory | None" = None
    ) -> None:
        """What loading showed: versions, widths, memory. Sets the arm's fingerprint."""
        with transaction(self.database) as session:
            environment = _environment(session, hello, host)
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
        """The arm takes no further part."""
        with transaction(self.database) as session:
            row = session.get_one(models.Arm, self.arm_ids[arm.name])
            row.state, row.state_reason = "dropped", reason

    # ---- trials ----

    def save(self, outcome: Outcome, *, attempt: int, order: Sequence[str]) -> Verdict:
        """Commit one trial with all that belongs to it."""
        verdict = settle(outcome, evidence_policy=self.plan.design.evidence, gate=self.plan.gate)
        with transaction(self.database) as session:
            session.add(self._trial(session, outcome, verdict, attempt=attempt, order=order))
        return verdict

    def _trial(
        self, session: Session, outcome: Outcome, verdict: Verdict, *, attempt: int, order: Sequence[str]
    ) -> models.Trial:
        scheduled = outcome.trial
        thermal_before, thermal_reason = _number(outcome.before, "thermal_level")
        thermal_after, _ = _number(outcome.after, "thermal_level")
        power_source, power_reason = _words(outcome.before, "power_source")
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
            gate_detail=_gate_detail(outcome.passage),
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
            generations=_generations(outcome.generations),
            telemetry=[
                *_telemetry("before", outcome.before),
                *_telemetry("during", outcome.during),
                *_telemetry("after", outcome.after),
            ],
        )

    def _next_ordinal(self, session: Session) -> int:
        """The trial's place in time, counted: the wall clock may be set back meanwhile."""
        last = session.scalar(select(func.max(models.Trial.ordinal)).where(models.Trial.run_id == self.run_id))
        return 0 if last is None else last + 1

    def _round_id(
        self, session: Session, scheduled: ScheduledTrial, *, attempt: int, order: Sequence[str]
    ) -> str | None:
        """The round's row, made with its first trial."""
        if scheduled.round is None:
            return None
        key = (scheduled.round, attempt)
        if key not in self.round_ids:
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
            self.round_ids[key] = row.id
        return self.round_ids[key]

    def exclude_round(self, index: int, *, reason: str) -> None:
        """Keep an unfinished round's trials and leave them out: the round is replayed whole."""
        rounds = select(models.Round.id).where(models.Round.run_id == self.run_id, models.Round.index == index)
        with transaction(self.database) as session:
            session.execute(
                update(models.Trial)
                .where(models.Trial.round_id.in_(rounds), models.Trial.excluded_reason.is_(None))
                .values(status="excluded", excluded_reason=reason)
            )


# ---- making a run ----


def create_run(
    database: Database, plan: Plan, *, host: HostFacts, weights: Mapping[str, ArmWeights], log_root: Path
) -> Recorder:
    """Store the frozen plan before anything runs."""
    with transaction(database) as session:
        run_id = models.new_id()
        run = models.Run(
            id=run_id,
            experiment_id=_experiment(session, plan.experiment).id,
            host_id=_host(session, host).id,
            status="planned",
            created_at=dt.datetime.now(dt.UTC),
            plan=dump(plan),
            plan_sha256=plan.sha256,
            workload_sha256=plan.workload_sha256,
            seed=plan.design.seed,
            rounds=plan.design.rounds,
            metric=plan.design.metric,
            interleave_by=plan.design.interleave_by,
            order_distribution=ORDER_DISTRIBUTION,
            simulated=any(is_simulated(arm) for arm in plan.arms),
            log_dir=str(log_root / run_id),
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


def _experiment(session: Session, name: str) -> models.Experiment:
    row = session.scalar(select(models.Experiment).where(models.Experiment.name == name))
    if row is None:
        row = models.Experiment(id=models.new_id(), name=name, created_at=dt.datetime.now(dt.UTC))
        session.add(row)
        session.flush()
    return row


def _host(session: Session, host: HostFacts) -> models.Host:
    identity = sha256_of([host.hostname, host.chip, host.cpu_count, host.memory_bytes])
    row = session.scalar(select(models.Host).where(models.Host.machine_sha256 == identity))
    if row is None:
        row = models.Host(
            id=models.new_id(),
            name=host.hostname,
            machine_sha256=identity,
            chip=host.chip,
            cpu_count=host.cpu_count,
            memory_bytes=host.memory_bytes,
            detail=_bandwidth(host) | {"os": host.os, "os_build": host.os_build, "missing": dict(host.missing)},
        )
        session.add(row)
        session.flush()
    return row


def _bandwidth(host: HostFacts) -> dict[str, Any]:
    found, source = published_gb_per_s(host.chip, host.gpu_cores)
    return {"bandwidth_gb_per_s": found, "bandwidth_source": source, "gpu_cores": host.gpu_cores}


def _environment(session: Session, hello: Hello, host: HostFacts) -> models.Environment:
    identity = sha256_of([hello.python, hello.versions, host.os, host.os_build])
    row = session.scalar(select(models.Environment).where(models.Environment.sha256 == identity))
    if row is None:
        row = models.Environment(
            id=models.new_id(),
            sha256=identity,
            python=hello.python,
            interlace_version=hello.versions.get("interlace") or "unknown",
            mlx_version=hello.versions.get("mlx"),
            mlx_lm_version=hello.versions.get("mlx-lm"),
            os=host.os,
            os_build=host.os_build,
            packages=hello.versions,
        )
        session.add(row)
        session.flush()
    return row


def _arm(session: Session, plan: Plan, arm: Arm, run_id: str, weights: ArmWeights) -> models.Arm:
    target = _checkpoint(session, arm.checkpoint, weights.target)
    drafting = None if arm.draft is None else _checkpoint(session, arm.draft, weights.draft)
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


def _checkpoint(session: Session, config: dict[str, Any], info: CheckpointInfo | None) -> models.Checkpoint:
    """The weights' row; without weights (simulated) the configuration is the identity."""
    digest = info.digest if info is not None else "config:" + sha256_of(config)
    row = session.scalar(select(models.Checkpoint).where(models.Checkpoint.digest == digest))
    if row is None:
        row = models.Checkpoint(
            id=models.new_id(),
            digest=digest,
            name=config["name"],
            source=config["source"],
            revision=config.get("revision"),
            bits=info.bits if info is not None and info.bits is not None else config.get("bits"),
            weights_bytes=None if info is None else info.weights_bytes,
            config=config,
        )
        session.add(row)
        session.flush()
    return row


# ---- the parts of a trial ----


def _generations(pairs: Sequence[tuple[Prompt, Generation]]) -> list[models.Generation]:
    first_turns = {prompt.id: generation for prompt, generation in pairs if generation.turn == 0}
    rows = []
    for position, (prompt, generation) in enumerate(pairs):
        first = first_turns.get(prompt.id) if generation.turn > 0 else None
        rows.append(_generation(position, prompt, generation, first))
    return rows


def _generation(position: int, prompt: Prompt, generation: Generation, first: Generation | None) -> models.Generation:
    judgement: Judgement = judge(generation.evidence)
    return models.Generation(
        position=position,
        prompt_id=prompt.id,
        workload=prompt.workload,
        prompt_class=prompt.prompt_class,
        turn=generation.turn,
        prompt_sha256=generation.prompt_sha256,
        started_at=dt.datetime.fromisoformat(generation.started_at),
        prompt_tokens=generation.prompt_tokens,
        cached_tokens=generation.cached_tokens,
        completion_tokens=generation.tokens,
        finish_reason=generation.finish_reason,
        requested=judgement.requested,
        engaged=judgement.engaged,
        useful=judgement.useful,
        engine_prefill_tps=generation.engine_prefill_tps,
        engine_decode_tps=generation.engine_decode_tps,
        flags=flags(generation, max_tokens=prompt.max_tokens, first_turn=first),
        peak_memory_bytes=generation.peak_memory_bytes,
        cpu_s=generation.cpu_s,
        text=generation.text,
        text_sha256=hashlib.sha256(generation.text.encode("utf-8", "surrogatepass")).hexdigest(),
        token_ids=generation.token_ids,
        token_ids_sha256=_answer_identity(generation),
        stamps_us=generation.stamps_us,
        steps=generation.steps,
        first_byte_s=_seconds(generation.first_byte_us),
        first_visible_s=_seconds(generation.first_visible_us),
        stamps_of=generation.stamps_of,
        evidence=[models.Evidence(**asdict(sign)) for sign in generation.evidence],
        **asdict(measure(generation)),
    )


def _gate_detail(passage: Passage) -> dict[str, Any]:
    return {
        "waited_for": dict(passage.waited_for),
        "not_held": passage.hot_start,
        "unreadable": dict(passage.unreadable),
    }


def _answer_identity(generation: Generation) -> str:
    """Of the token ids; of the text where a server tells none, else all its answers would be the same."""
    if generation.token_ids:
        return sha256_of(generation.token_ids)
    return f"text:{hashlib.sha256(generation.text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _seconds(stamp_us: int | None) -> float | None:
    return None if stamp_us is None else stamp_us / 1e6


def _telemetry(phase: str, readings: Sequence[Reading]) -> list[models.Telemetry]:
    return [models.Telemetry(phase=phase, **asdict(reading)) for reading in readings]


def _reading(readings: Sequence[Reading], name: str) -> Reading | None:
    return next((reading for reading in readings if reading.field == name), None)


def _number(readings: Sequence[Reading], name: str) -> tuple[float | None, str | None]:
    reading = _reading(readings, name)
    return (None, f"{name} was not read") if reading is None else (reading.value, reading.reason)


def _words(readings: Sequence[Reading], name: str) -> tuple[str | None, str | None]:
    reading = _reading(readings, name)
    return (None, f"{name} was not read") if reading is None else (reading.value_text, reading.reason)


# ---- audits ----


def save_audit(
    database: Database,
    plan: Plan,
    run_id: str,
    result: "AuditResult",
    *,
    compositions: Mapping[str, Any] | None = None,
) -> None:
    """Store a judgement with the version of the method that made it.

    Args:
        compositions: of two factors, as plain values; None: the arms are no full table.
    """
    design = plan.design
    comparisons = [
        models.Comparison(
            position=position,
            **{
                key: value
                for key, value in asdict(comparison).items()
                if key in models.Comparison.__table__.columns and key != "reasons"
            },
            reasons=[asdict(reason) for reason in comparison.reasons],
        )
        for position, comparison in enumerate(result.comparisons)
    ]
    with transaction(database) as session:
        session.add(
            models.Audit(
                run_id=run_id,
                created_at=dt.datetime.now(dt.UTC),
                method_version=result.method_version,
                metric=design.metric,
                alpha=design.alpha,
                margin=design.margin,
                seed=design.seed,
                drift=result.drift,
                drift_reason=result.drift_reason,
                summary=result.summary,
                inference="anytime" if design.stop == "early" else "fixed",
                best=[asdict(each) for each in result.best],
                carry_over=None if result.carry_over is None else bounded(asdict(result.carry_over)),
                compositions=None if compositions is None else bounded(compositions),
                comparisons=comparisons,
            )
        )


def stored_plan(database: Database, run_id: str) -> str:
    """The frozen plan's JSON."""
    with reading(database) as session:
        return session.get_one(models.Run, run_id).plan
