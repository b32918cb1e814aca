"""The tables. Typed columns for what people filter on, JSON only for the rest.

    experiment ─< run ─< arm >─ checkpoint (and draft)
                  run ─< round ─< trial ─< generation ─< evidence
                  run ─< trial >─ arm, environment;   trial ─< telemetry
                  run ─< locked_package
                  run ─< audit ─< comparison
    run ─< queue_entry;   run ─< divergence;   run ─< pass_time
    host ─< run

Keys are UUIDv7, so that databases of several machines merge. Times are UTC; durations are monotonic. A value that
could not be read is NULL, and where a column can be missing for several reasons the reason stands beside it.
"""

import datetime as dt
from typing import Any, ClassVar, get_args

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    MetaData,
    String,
    UniqueConstraint,
)
from sqlalchemy import text as text_clause
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship
from uuid_utils import uuid7

from db.column_types import Finite, UtcDateTime
from db.vocabulary import VERDICTS, EntryState

NAMING_CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING_CONVENTION)
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        int: BigInteger(),
        float: Finite(),
        dt.datetime: UtcDateTime(),
        dict[str, Any]: JSON(none_as_null=True),
        list[Any]: JSON(none_as_null=True),
    }


def new_id() -> str:
    """A UUIDv7 as text: sortable by time, unique across machines."""
    return str(uuid7())


def _id() -> Mapped[str]:
    return mapped_column(String(36), primary_key=True, default=new_id)


def _one_of(column: str, *values: str) -> CheckConstraint:
    """A named CHECK that a column holds one of these words."""
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_known")


class Experiment(Base):
    """A question that runs try to answer; runs of the same experiment share its name."""

    __tablename__ = "experiment"
    id: Mapped[str] = _id()
    name: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[dt.datetime]


class Host(Base):
    """A machine."""

    __tablename__ = "host"
    id: Mapped[str] = _id()
    name: Mapped[str]
    machine_sha256: Mapped[str] = mapped_column(unique=True)  # of all that follows and the name
    chip: Mapped[str | None]
    cpu_count: Mapped[int | None]
    memory_bytes: Mapped[int | None]
    detail: Mapped[dict[str, Any]]
    __table_args__ = (Index(None, "name"),)


class Environment(Base):
    """Versions of everything that can change a speed. One row for each distinct set, shared by trials."""

    __tablename__ = "environment"
    id: Mapped[str] = _id()
    sha256: Mapped[str] = mapped_column(unique=True)
    python: Mapped[str]
    interlace_version: Mapped[str]
    mlx_version: Mapped[str | None]
    mlx_lm_version: Mapped[str | None]
    os: Mapped[str]
    os_build: Mapped[str | None]
    packages: Mapped[dict[str, Any]]  # every recorded distribution
    server: Mapped[
        str | None
    ]  # the source of a server's versions; NULL: the worker ran the model, and they are its own
    missing_reason: Mapped[str | None]  # why MLX's versions are missing


class Checkpoint(Base):
    """A set of weights. The digest is of file sizes and safetensors headers; the revision says the rest."""

    __tablename__ = "checkpoint"
    id: Mapped[str] = _id()
    digest: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    source: Mapped[str]
    revision: Mapped[str | None]
    bits: Mapped[int | None]
    weights_bytes: Mapped[int | None]
    config: Mapped[dict[str, Any]]
    bytes_read_per_token: Mapped[int | None]  # weights that one decoded token reads: of a mixture, the active experts
    kv_bytes_per_token: Mapped[int | None]  # growth of an unquantised cache per token, all layers
    __table_args__ = (
        _one_of("source", "hub", "local", "gguf", "imported", "dummy", "simulated", "unknown"),
        Index(None, "name"),
    )


class Run(Base):
    """One execution of a frozen plan."""

    __tablename__ = "run"
    id: Mapped[str] = _id()
    experiment_id: Mapped[str] = mapped_column(ForeignKey("experiment.id"))
    host_id: Mapped[str] = mapped_column(ForeignKey("host.id"))
    status: Mapped[str]
    created_at: Mapped[dt.datetime]
    finished_at: Mapped[dt.datetime | None]
    plan: Mapped[str]  # canonical JSON, as hashed
    plan_sha256: Mapped[str]
    workload_sha256: Mapped[str]
    seed: Mapped[int]
    rounds: Mapped[int]
    metric: Mapped[str]
    interleave_by: Mapped[str]
    order_distribution: Mapped[str]  # the distribution that the orders were drawn from; the test re-draws from it
    simulated: Mapped[bool]
    # Lease of the process that runs it: a dead pid of this boot, or another boot, means interrupted.
    runner_pid: Mapped[int | None]
    runner_started_at: Mapped[float | None]  # the process's start within `boot_id`: `workers.machine.process_identity`
    boot_id: Mapped[str | None]
    log_dir: Mapped[str | None]
    note: Mapped[str | None]
    heartbeat_at: Mapped[dt.datetime | None]  # the last sign of life of the process that runs it
    current: Mapped[dict[str, Any] | None]  # its current step: see orchestrator.running.run_state; NULL: none
    origin: Mapped[str] = mapped_column(
        default="interlace"
    )  # interlace, or the format of the file that it was read from
    randomised: Mapped[bool] = mapped_column(
        default=True
    )  # whether the orders were drawn at random: results of other tools were not
    source_name: Mapped[str | None]  # of the file that it was read from
    source_sha256: Mapped[str | None] = mapped_column(unique=True)
    bandwidth_bytes_per_s: Mapped[float | None]  # of the host's memory, for ceilings
    bandwidth_source: Mapped[str | None]  # published, measured, or why it is unknown
    # Where the run came from, set by whoever takes it in and never by the file: such a run is judged, never executed.
    arrived_at: Mapped[dt.datetime | None]  # NULL: planned here
    arrived_from: Mapped[str | None]  # the name of the file
    # What people say about it; see db.remarks.
    remark: Mapped[str | None]
    tags: Mapped[list[Any] | None]  # words

    experiment: Mapped[Experiment] = relationship(lazy="raise")
    host: Mapped[Host] = relationship(lazy="raise")
    __table_args__ = (
        _one_of("status", "planned", "running", "done", "interrupted", "failed", "cancelled"),
        Index(None, "experiment_id", "created_at"),
        Index(None, "host_id", "created_at"),
        Index(None, "created_at"),
    )


class Arm(Base):
    """A full configuration within a run."""

    __tablename__ = "arm"
    id: Mapped[str] = _id()
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    name: Mapped[str]
    is_control: Mapped[bool]
    config_sha256: Mapped[str]
    fingerprint: Mapped[str | None]  # config + checkpoint digests + versions; known after preflight
    engine: Mapped[str]
    engine_version: Mapped[str | None]
    checkpoint_id: Mapped[str | None] = mapped_column(ForeignKey("checkpoint.id"))
    draft_checkpoint_id: Mapped[str | None] = mapped_column(ForeignKey("checkpoint.id"))
    draft: Mapped[str | None]  # the drafting checkpoint's name
    block_size: Mapped[int | None]  # verify width: tokens checked by one pass; NULL for plain decoding
    drafted_per_step: Mapped[int | None]
    engine_setting: Mapped[dict[str, Any]]  # the width in the engine's own word, as {"num_draft_tokens": 3}
    temperature: Mapped[float | None]
    config: Mapped[dict[str, Any]]  # resolved, redacted
    load_s: Mapped[float | None]
    active_memory_bytes: Mapped[int | None]
    state: Mapped[str]  # active | dropped
    state_reason: Mapped[str | None]
    planned_weights_bytes: Mapped[int | None]  # the memory plan's weights, draft included
    footprint_bytes: Mapped[int | None]  # of the worker's process after loading
    memory_note: Mapped[str | None]  # how the measured memory differs from the plan
    environment: Mapped[str | None]  # the declared environment's name; NULL: the one that interlace ran in
    __table_args__ = (
        UniqueConstraint("run_id", "name"),
        _one_of("state", "active", "dropped"),
        Index(None, "fingerprint"),
        Index(None, "config_sha256"),
        Index(None, "name"),
        Index(None, "checkpoint_id"),
    )


class LockedPackage(Base):
    """A package of an environment that a run's arms declare, exactly: enough to install the same again."""

    __tablename__ = "locked_package"
    id: Mapped[str] = _id()
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    environment: Mapped[str]  # as `arm.environment` names it
    python: Mapped[str]  # the environment's Python version
    name: Mapped[str]
    version: Mapped[str | None]  # NULL: known only where it is built from source
    file: Mapped[str | None]  # on the package index; NULL: a source tree or a repository
    sha256: Mapped[str | None]  # of the file or of the tree's content; NULL: a repository, whose commit is in source
    tag: Mapped[str | None]  # of the wheel; NULL: built from source
    source: Mapped[str | None]  # where it came from; NULL: the package index
    is_named: Mapped[bool]  # the environment names it: what is compared
    __table_args__ = (UniqueConstraint("run_id", "environment", "name"), Index(None, "name", "version"))


class Round(Base):
    """Every arm once, in an order drawn at random. A round that was cut short is replayed whole as a new attempt."""

    __tablename__ = "round"
    id: Mapped[str] = _id()
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    index: Mapped[int]  # 0-based
    attempt: Mapped[int]  # 0-based
    prompt_id: Mapped[str | None]  # by prompt: the round's prompt; by workload: NULL
    order: Mapped[list[Any]]  # arms' labels as drawn
    __table_args__ = (UniqueConstraint("run_id", "index", "attempt"),)


class Trial(Base):
    """One arm run once: in a round, as a warm-up, or as a control run at an end of the run."""

    __tablename__ = "trial"
    id: Mapped[str] = _id()
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    arm_id: Mapped[str] = mapped_column(ForeignKey("arm.id", ondelete="CASCADE"))
    round_id: Mapped[str | None] = mapped_column(ForeignKey("round.id", ondelete="CASCADE"))
    environment_id: Mapped[str | None] = mapped_column(ForeignKey("environment.id"))
    kind: Mapped[str]
    is_aa: Mapped[bool]  # the control's second entry in the round
    sequence: Mapped[int]  # the trial's number in the schedule, 0-based
    position: Mapped[int | None]  # within the round, 0-based
    seed: Mapped[int | None]  # NULL: another tool's
    started_at: Mapped[dt.datetime]
    wall_s: Mapped[float | None]
    monotonic_s: Mapped[float | None]
    gate_wait_s: Mapped[float | None]
    status: Mapped[str]
    error_kind: Mapped[str | None]
    error_message: Mapped[str | None]
    excluded_reason: Mapped[str | None]  # why the audit leaves it out; set by rule, never by the trial's speed
    thermal_before: Mapped[int | None]
    thermal_max: Mapped[int | None]
    thermal_after: Mapped[int | None]
    thermal_reason: Mapped[str | None]  # why a thermal level is missing
    power_source: Mapped[str | None]
    power_reason: Mapped[str | None]
    log_path: Mapped[str | None]
    ordinal: Mapped[int | None]  # 0-based, in the order of storing: no clock that is set changes it
    gate_state: Mapped[str | None]  # open | waited | hot_start | skipped
    gate_detail: Mapped[dict[str, Any] | None]  # seconds waited for, and reasons not read, by condition
    boot_id: Mapped[str | None]  # the boot that it ran in

    generations: Mapped[list["Generation"]] = relationship(
        lazy="raise", order_by="Generation.position", cascade="all, delete-orphan", passive_deletes=True
    )
    telemetry: Mapped[list["Telemetry"]] = relationship(
        lazy="raise", cascade="all, delete-orphan", passive_deletes=True
    )
    __table_args__ = (
        _one_of("kind", "preflight", "warmup", "bracket", "measured"),
        _one_of("status", "done", "invalid", "excluded", "interrupted"),
        Index(None, "run_id", "sequence"),
        Index(None, "run_id", "ordinal"),
        Index(None, "arm_id", "started_at"),
        Index(None, "round_id"),
        Index(None, "started_at"),
        # For rare values that are queried over all runs: small, and without cost to a trial that went well.
        Index("ix_trial_hot", "started_at", sqlite_where=text_clause("thermal_max > 0")),
        Index("ix_trial_not_done", "status", sqlite_where=text_clause("status <> 'done'")),
    )


class Generation(Base):
    """One prompt turn inside a trial. Raw stamps and text are kept; every rate can be computed again from them."""

    __tablename__ = "generation"
    id: Mapped[str] = _id()
    trial_id: Mapped[str] = mapped_column(ForeignKey("trial.id", ondelete="CASCADE"))
    position: Mapped[int]  # within the trial, 0-based: prompts and their turns in order
    prompt_id: Mapped[str]
    workload: Mapped[str]
    prompt_class: Mapped[str]
    turn: Mapped[int]  # 0-based
    prompt_sha256: Mapped[
        str | None
    ]  # of the prompt's token ids; this and what follows: NULL where another tool states none
    started_at: Mapped[dt.datetime]
    prompt_tokens: Mapped[int | None]
    cached_tokens: Mapped[int | None]
    completion_tokens: Mapped[int | None]
    finish_reason: Mapped[str | None]
    ttft_s: Mapped[float | None]
    prefill_tps: Mapped[float | None]
    decode_tps: Mapped[float | None]
    end_to_end_tps: Mapped[float | None]
    total_s: Mapped[float | None]
    drafted: Mapped[int | None]
    accepted: Mapped[int | None]
    verify_steps: Mapped[int | None]
    accept_length: Mapped[float | None]
    acceptance_rate: Mapped[float | None]
    requested: Mapped[bool | None]
    engaged: Mapped[bool | None]
    useful: Mapped[bool | None]
    engine_prefill_tps: Mapped[float | None]
    engine_decode_tps: Mapped[float | None]
    engine_gap: Mapped[float | None]  # engine's decode rate over ours, minus 1, after their definitions are made equal
    flags: Mapped[list[Any]]  # contradictions and oddities, as codes
    peak_memory_bytes: Mapped[int | None]
    cpu_s: Mapped[float | None]
    text: Mapped[str | None]
    text_sha256: Mapped[str | None]
    token_ids: Mapped[list[Any] | None]
    token_ids_sha256: Mapped[str | None]
    stamps_us: Mapped[list[Any] | None]  # microseconds since the request's start, one per token
    steps: Mapped[list[Any] | None]  # speculation: [drafted, accepted, committed] a verify step
    first_byte_s: Mapped[float | None]  # a server's; ttft_s is the first token of any channel
    first_visible_s: Mapped[float | None]  # a server's first token that a reader sees
    stamps_of: Mapped[str | None]  # token | chunk: tokens that one chunk brought share its stamp
    inter_token_p95_s: Mapped[float | None]  # 95th percentile of the times from one token to the next
    inter_token_reason: Mapped[str | None]  # why inter-token times are missing

    evidence: Mapped[list["Evidence"]] = relationship(lazy="raise", cascade="all, delete-orphan", passive_deletes=True)
    __table_args__ = (
        UniqueConstraint("trial_id", "position"),
        CheckConstraint("completion_tokens >= 0", name="completion_tokens_natural"),
        CheckConstraint("accepted IS NULL OR accepted <= drafted", name="accepted_at_most_drafted"),
        # As the trial's: what is rare and asked for over all runs.
        Index("ix_generation_not_engaged", "trial_id", sqlite_where=text_clause("requested = 1 AND engaged IS NOT 1")),
    )


class Evidence(Base):
    """A sign that a mechanism did or did not run on one generation."""

    __tablename__ = "evidence"
    id: Mapped[str] = _id()
    generation_id: Mapped[str] = mapped_column(ForeignKey("generation.id", ondelete="CASCADE"))
    mechanism: Mapped[str]
    requested: Mapped[bool]
    engaged: Mapped[bool | None]
    useful: Mapped[bool | None]
    source: Mapped[str]
    text: Mapped[str]
    drafted: Mapped[int | None]
    accepted: Mapped[int | None]
    __table_args__ = (Index(None, "generation_id"),)


class Telemetry(Base):
    """One reading of the machine around a trial; value or reason."""

    __tablename__ = "telemetry"
    id: Mapped[str] = _id()
    trial_id: Mapped[str] = mapped_column(ForeignKey("trial.id", ondelete="CASCADE"))
    phase: Mapped[str]
    field: Mapped[str]
    value: Mapped[float | None]
    value_text: Mapped[str | None]
    source: Mapped[str | None]
    reason: Mapped[str | None]
    __table_args__ = (
        _one_of("phase", "before", "during", "after"),
        CheckConstraint("value IS NOT NULL OR value_text IS NOT NULL OR reason IS NOT NULL", name="value_or_reason"),
        Index(None, "trial_id"),
    )


class Audit(Base):
    """One judgement of a run by one version of the method."""

    __tablename__ = "audit"
    id: Mapped[str] = _id()
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    created_at: Mapped[dt.datetime]
    method_version: Mapped[str]
    metric: Mapped[str]
    alpha: Mapped[float]
    margin: Mapped[float]
    seed: Mapped[int]
    drift: Mapped[float | None]  # last bracket control over the first, minus 1
    drift_reason: Mapped[str | None]
    summary: Mapped[str]
    inference: Mapped[
        str | None
    ]  # fixed | anytime: which intervals and p-values; NULL: stored before they were distinguished
    best: Mapped[list[Any] | None]  # for each scope, the arms not distinguishable from the best
    carry_over: Mapped[dict[str, Any] | None]  # the largest; NULL: too few trials to estimate it
    compositions: Mapped[dict[str, Any] | None]  # two factors; NULL: the arms do not form a full table

    comparisons: Mapped[list["Comparison"]] = relationship(
        lazy="raise", order_by="Comparison.position", cascade="all, delete-orphan", passive_deletes=True
    )
    __table_args__ = (Index(None, "run_id", "created_at"),)


class Comparison(Base):
    """A treatment against the control: over all, in one workload, in one prompt class, in one turn."""

    __tablename__ = "comparison"
    id: Mapped[str] = _id()
    audit_id: Mapped[str] = mapped_column(ForeignKey("audit.id", ondelete="CASCADE"))
    position: Mapped[int]
    treatment: Mapped[str]
    control: Mapped[str]
    prompt_class: Mapped[str | None]  # NULL: all classes
    turn: Mapped[int | None]  # NULL: all turns
    metric: Mapped[str]
    verdict: Mapped[str]
    direction: Mapped[str | None]
    ratio: Mapped[float | None]
    ci_low: Mapped[float | None]
    ci_high: Mapped[float | None]
    p_value: Mapped[float | None]
    rounds: Mapped[int]
    wins: Mapped[int | None]
    aa_ratio: Mapped[float | None]
    aa_low: Mapped[float | None]
    aa_high: Mapped[float | None]
    engaged_share: Mapped[float | None]  # of the treatment's generations, those with evidence of engagement
    reasons: Mapped[list[Any]]  # codes, each with its words
    family_p: Mapped[float | None]  # for the family of all treatments
    included: Mapped[dict[str, Any] | None]  # the verdict with the trials that rules exclude; NULL: none was excluded
    workload: Mapped[str | None]  # NULL: all workloads; NULL in workload, prompt_class and turn: over all
    __table_args__ = (
        UniqueConstraint("audit_id", "position"),
        _one_of("verdict", *VERDICTS),
    )


class QueueEntry(Base):
    """A run's place in the queue. What became of the run is the run's own status."""

    __tablename__ = "queue_entry"
    id: Mapped[str] = _id()
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), unique=True)
    position: Mapped[float]  # places in between exist: moving an entry changes no other
    added_at: Mapped[dt.datetime]
    state: Mapped[str]
    note: Mapped[str | None]  # the last thing to know: why it failed, when it was stopped
    checked_at: Mapped[dt.datetime | None]  # of the preflight before the night
    checked: Mapped[dict[str, Any] | None]  # by arm: what is wrong, null: ready
    __table_args__ = (
        _one_of("state", *get_args(EntryState)),
        Index(None, "state", "position"),
    )


class Divergence(Base):
    """The first place where an arm's answer differs from the control's, scored by the control's checkpoint."""

    __tablename__ = "divergence"
    id: Mapped[str] = _id()
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    arm_id: Mapped[str] = mapped_column(ForeignKey("arm.id", ondelete="CASCADE"))
    prompt_id: Mapped[str]
    turn: Mapped[int]  # 0-based
    token_index: Mapped[int]  # of the first token that differs, 0-based
    control_token: Mapped[int | None]  # NULL: the control's answer ends there
    arm_token: Mapped[int | None]
    control_text: Mapped[str | None]  # of the token alone
    arm_text: Mapped[str | None]
    context_text: Mapped[str | None]  # their common text just before
    top: Mapped[list[Any] | None]  # [token id, text, log-probability] of the control's most likely tokens there
    gap: Mapped[float | None]  # log-probability of the control's token minus that of the arm's, nats
    rounding: Mapped[float | None]  # largest change of a top token's log-probability by passes of other widths, nats
    verdict: Mapped[str]
    reason: Mapped[str]  # of the verdict, in words; for unknown: why there was no probe
    __table_args__ = (
        UniqueConstraint("run_id", "arm_id", "prompt_id", "turn"),
        _one_of("verdict", "near_tie", "real", "unknown"),
    )


class PassTime(Base):
    """The duration of one pass of a model, by its width: timed after the run, widths interleaved."""

    __tablename__ = "pass_time"
    id: Mapped[str] = _id()
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    arm_id: Mapped[str] = mapped_column(ForeignKey("arm.id", ondelete="CASCADE"))
    role: Mapped[str]
    width: Mapped[int]  # tokens in one pass; a drafting model's has one
    median_s: Mapped[float]
    low_s: Mapped[float]  # lower quartile
    high_s: Mapped[float]
    repeats: Mapped[int]
    context_tokens: Mapped[int]
    __table_args__ = (UniqueConstraint("run_id", "arm_id", "role", "width"), _one_of("role", "target", "draft"))
