"""The first tables and their indexes.

A migration imports nothing of the project: it must do the same thing for ever, whatever the models become.

Revision ID: 0001
Revises: none
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_ID = sa.String(length=36)


def upgrade() -> None:
    """Create everything, parents first."""
    _create_experiment()
    _create_host()
    _create_environment()
    _create_checkpoint()
    _create_run()
    _create_arm()
    _create_round()
    _create_trial()
    _create_telemetry()
    _create_generation()
    _create_evidence()
    _create_audit()
    _create_comparison()


def _create_experiment() -> None:
    op.create_table(
        "experiment",
        sa.Column("id", _ID, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_experiment")),
        sa.UniqueConstraint("name", name=op.f("uq_experiment_name")),
    )


def _create_host() -> None:
    op.create_table(
        "host",
        sa.Column("id", _ID, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("machine_sha256", sa.String(), nullable=False),
        sa.Column("chip", sa.String()),
        sa.Column("cpu_count", sa.BigInteger()),
        sa.Column("memory_bytes", sa.BigInteger()),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_host")),
        sa.UniqueConstraint("machine_sha256", name=op.f("uq_host_machine_sha256")),
    )
    op.create_index(op.f("ix_host_name"), "host", ["name"])


def _create_environment() -> None:
    op.create_table(
        "environment",
        sa.Column("id", _ID, nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("python", sa.String(), nullable=False),
        sa.Column("interlace_version", sa.String(), nullable=False),
        sa.Column("mlx_version", sa.String()),
        sa.Column("mlx_lm_version", sa.String()),
        sa.Column("os", sa.String(), nullable=False),
        sa.Column("os_build", sa.String()),
        sa.Column("packages", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_environment")),
        sa.UniqueConstraint("sha256", name=op.f("uq_environment_sha256")),
    )


def _create_checkpoint() -> None:
    op.create_table(
        "checkpoint",
        sa.Column("id", _ID, nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("revision", sa.String()),
        sa.Column("bits", sa.BigInteger()),
        sa.Column("weights_bytes", sa.BigInteger()),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.CheckConstraint(
            "source IN ('hub', 'local', 'gguf', 'imported', 'dummy', 'simulated')",
            name=op.f("ck_checkpoint_source_known"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_checkpoint")),
        sa.UniqueConstraint("digest", name=op.f("uq_checkpoint_digest")),
    )
    op.create_index(op.f("ix_checkpoint_name"), "checkpoint", ["name"])


def _create_run() -> None:
    op.create_table(
        "run",
        sa.Column("id", _ID, nullable=False),
        sa.Column("experiment_id", _ID, nullable=False),
        sa.Column("host_id", _ID, nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("finished_at", sa.DateTime()),
        sa.Column("plan", sa.String(), nullable=False),
        sa.Column("plan_sha256", sa.String(), nullable=False),
        sa.Column("workload_sha256", sa.String(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("rounds", sa.BigInteger(), nullable=False),
        sa.Column("metric", sa.String(), nullable=False),
        sa.Column("interleave_by", sa.String(), nullable=False),
        sa.Column("order_distribution", sa.String(), nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("runner_pid", sa.BigInteger()),
        sa.Column("runner_started_at", sa.Double()),
        sa.Column("boot_id", sa.String()),
        sa.Column("log_dir", sa.String()),
        sa.Column("note", sa.String()),
        sa.CheckConstraint(
            "status IN ('planned', 'running', 'done', 'interrupted', 'failed')", name=op.f("ck_run_status_known")
        ),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiment.id"], name=op.f("fk_run_experiment_id_experiment")),
        sa.ForeignKeyConstraint(["host_id"], ["host.id"], name=op.f("fk_run_host_id_host")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run")),
    )
    op.create_index(op.f("ix_run_created_at"), "run", ["created_at"])
    op.create_index(op.f("ix_run_experiment_id_created_at"), "run", ["experiment_id", "created_at"])
    op.create_index(op.f("ix_run_host_id_created_at"), "run", ["host_id", "created_at"])


def _create_arm() -> None:
    op.create_table(
        "arm",
        sa.Column("id", _ID, nullable=False),
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("is_control", sa.Boolean(), nullable=False),
        sa.Column("config_sha256", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String()),
        sa.Column("engine", sa.String(), nullable=False),
        sa.Column("engine_version", sa.String()),
        sa.Column("checkpoint_id", _ID),
        sa.Column("draft_checkpoint_id", _ID),
        sa.Column("draft", sa.String()),
        sa.Column("block_size", sa.BigInteger()),
        sa.Column("drafted_per_step", sa.BigInteger()),
        sa.Column("engine_setting", sa.JSON(), nullable=False),
        sa.Column("temperature", sa.Double()),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("load_s", sa.Double()),
        sa.Column("active_memory_bytes", sa.BigInteger()),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("state_reason", sa.String()),
        sa.CheckConstraint("state IN ('active', 'dropped')", name=op.f("ck_arm_state_known")),
        sa.ForeignKeyConstraint(["checkpoint_id"], ["checkpoint.id"], name=op.f("fk_arm_checkpoint_id_checkpoint")),
        sa.ForeignKeyConstraint(
            ["draft_checkpoint_id"], ["checkpoint.id"], name=op.f("fk_arm_draft_checkpoint_id_checkpoint")
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_arm_run_id_run"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_arm")),
        sa.UniqueConstraint("run_id", "name", name=op.f("uq_arm_run_id_name")),
    )
    op.create_index(op.f("ix_arm_checkpoint_id"), "arm", ["checkpoint_id"])
    op.create_index(op.f("ix_arm_config_sha256"), "arm", ["config_sha256"])
    op.create_index(op.f("ix_arm_fingerprint"), "arm", ["fingerprint"])
    op.create_index(op.f("ix_arm_name"), "arm", ["name"])


def _create_round() -> None:
    op.create_table(
        "round",
        sa.Column("id", _ID, nullable=False),
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("index", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("prompt_id", sa.String()),
        sa.Column("order", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_round_run_id_run"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_round")),
        sa.UniqueConstraint("run_id", "index", "attempt", name=op.f("uq_round_run_id_index_attempt")),
    )


def _create_trial() -> None:
    op.create_table(
        "trial",
        sa.Column("id", _ID, nullable=False),
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("arm_id", _ID, nullable=False),
        sa.Column("round_id", _ID),
        sa.Column("environment_id", _ID),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("is_aa", sa.Boolean(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger()),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.DateTime(), nullable=False),
        sa.Column("wall_s", sa.Double()),
        sa.Column("monotonic_s", sa.Double()),
        sa.Column("gate_wait_s", sa.Double()),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("error_kind", sa.String()),
        sa.Column("error_message", sa.String()),
        sa.Column("excluded_reason", sa.String()),
        sa.Column("thermal_before", sa.BigInteger()),
        sa.Column("thermal_max", sa.BigInteger()),
        sa.Column("thermal_after", sa.BigInteger()),
        sa.Column("thermal_reason", sa.String()),
        sa.Column("power_source", sa.String()),
        sa.Column("power_reason", sa.String()),
        sa.Column("log_path", sa.String()),
        sa.CheckConstraint("kind IN ('preflight', 'warmup', 'bracket', 'measured')", name=op.f("ck_trial_kind_known")),
        sa.CheckConstraint(
            "status IN ('done', 'invalid', 'excluded', 'interrupted')", name=op.f("ck_trial_status_known")
        ),
        sa.ForeignKeyConstraint(["arm_id"], ["arm.id"], name=op.f("fk_trial_arm_id_arm"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["environment_id"], ["environment.id"], name=op.f("fk_trial_environment_id_environment")
        ),
        sa.ForeignKeyConstraint(["round_id"], ["round.id"], name=op.f("fk_trial_round_id_round"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_trial_run_id_run"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trial")),
    )
    op.create_index(op.f("ix_trial_arm_id_started_at"), "trial", ["arm_id", "started_at"])
    op.create_index(op.f("ix_trial_round_id"), "trial", ["round_id"])
    op.create_index(op.f("ix_trial_run_id_sequence"), "trial", ["run_id", "sequence"])
    op.create_index(op.f("ix_trial_started_at"), "trial", ["started_at"])


def _create_telemetry() -> None:
    op.create_table(
        "telemetry",
        sa.Column("id", _ID, nullable=False),
        sa.Column("trial_id", _ID, nullable=False),
        sa.Column("phase", sa.String(), nullable=False),
        sa.Column("field", sa.String(), nullable=False),
        sa.Column("value", sa.Double()),
        sa.Column("value_text", sa.String()),
        sa.Column("source", sa.String()),
        sa.Column("reason", sa.String()),
        sa.CheckConstraint("phase IN ('before', 'during', 'after')", name=op.f("ck_telemetry_phase_known")),
        sa.CheckConstraint(
            "value IS NOT NULL OR value_text IS NOT NULL OR reason IS NOT NULL",
            name=op.f("ck_telemetry_value_or_reason"),
        ),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["trial.id"], name=op.f("fk_telemetry_trial_id_trial"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_telemetry")),
    )
    op.create_index(op.f("ix_telemetry_trial_id"), "telemetry", ["trial_id"])


def _create_generation() -> None:
    op.create_table(
        "generation",
        sa.Column("id", _ID, nullable=False),
        sa.Column("trial_id", _ID, nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("prompt_id", sa.String(), nullable=False),
        sa.Column("workload", sa.String(), nullable=False),
        sa.Column("prompt_class", sa.String(), nullable=False),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("prompt_sha256", sa.String(), nullable=False),
        sa.Column("started_at", sa.DateTime(), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_tokens", sa.BigInteger()),
        sa.Column("completion_tokens", sa.BigInteger(), nullable=False),
        sa.Column("finish_reason", sa.String(), nullable=False),
        sa.Column("ttft_s", sa.Double()),
        sa.Column("prefill_tps", sa.Double()),
        sa.Column("decode_tps", sa.Double()),
        sa.Column("end_to_end_tps", sa.Double()),
        sa.Column("total_s", sa.Double()),
        sa.Column("drafted", sa.BigInteger()),
        sa.Column("accepted", sa.BigInteger()),
        sa.Column("verify_steps", sa.BigInteger()),
        sa.Column("accept_length", sa.Double()),
        sa.Column("acceptance_rate", sa.Double()),
        sa.Column("requested", sa.Boolean()),
        sa.Column("engaged", sa.Boolean()),
        sa.Column("useful", sa.Boolean()),
        sa.Column("engine_prefill_tps", sa.Double()),
        sa.Column("engine_decode_tps", sa.Double()),
        sa.Column("engine_gap", sa.Double()),
        sa.Column("flags", sa.JSON(), nullable=False),
        sa.Column("peak_memory_bytes", sa.BigInteger()),
        sa.Column("cpu_s", sa.Double()),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("text_sha256", sa.String(), nullable=False),
        sa.Column("token_ids", sa.JSON(), nullable=False),
        sa.Column("token_ids_sha256", sa.String(), nullable=False),
        sa.Column("stamps_us", sa.JSON(), nullable=False),
        sa.Column("steps", sa.JSON()),
        sa.CheckConstraint(
            "accepted IS NULL OR accepted <= drafted", name=op.f("ck_generation_accepted_at_most_drafted")
        ),
        sa.CheckConstraint("completion_tokens >= 0", name=op.f("ck_generation_completion_tokens_natural")),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["trial.id"], name=op.f("fk_generation_trial_id_trial"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_generation")),
        sa.UniqueConstraint("trial_id", "position", name=op.f("uq_generation_trial_id_position")),
    )


def _create_evidence() -> None:
    op.create_table(
        "evidence",
        sa.Column("id", _ID, nullable=False),
        sa.Column("generation_id", _ID, nullable=False),
        sa.Column("mechanism", sa.String(), nullable=False),
        sa.Column("requested", sa.Boolean(), nullable=False),
        sa.Column("engaged", sa.Boolean()),
        sa.Column("useful", sa.Boolean()),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("drafted", sa.BigInteger()),
        sa.Column("accepted", sa.BigInteger()),
        sa.ForeignKeyConstraint(
            ["generation_id"], ["generation.id"], name=op.f("fk_evidence_generation_id_generation"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evidence")),
    )
    op.create_index(op.f("ix_evidence_generation_id"), "evidence", ["generation_id"])


def _create_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", _ID, nullable=False),
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("method_version", sa.String(), nullable=False),
        sa.Column("metric", sa.String(), nullable=False),
        sa.Column("alpha", sa.Double(), nullable=False),
        sa.Column("margin", sa.Double(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("drift", sa.Double()),
        sa.Column("drift_reason", sa.String()),
        sa.Column("summary", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_audit_run_id_run"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_index(op.f("ix_audit_run_id_created_at"), "audit", ["run_id", "created_at"])


def _create_comparison() -> None:
    op.create_table(
        "comparison",
        sa.Column("id", _ID, nullable=False),
        sa.Column("audit_id", _ID, nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("treatment", sa.String(), nullable=False),
        sa.Column("control", sa.String(), nullable=False),
        sa.Column("prompt_class", sa.String()),
        sa.Column("turn", sa.BigInteger()),
        sa.Column("metric", sa.String(), nullable=False),
        sa.Column("verdict", sa.String(), nullable=False),
        sa.Column("direction", sa.String()),
        sa.Column("ratio", sa.Double()),
        sa.Column("ci_low", sa.Double()),
        sa.Column("ci_high", sa.Double()),
        sa.Column("p_value", sa.Double()),
        sa.Column("rounds", sa.BigInteger(), nullable=False),
        sa.Column("wins", sa.BigInteger()),
        sa.Column("aa_ratio", sa.Double()),
        sa.Column("aa_low", sa.Double()),
        sa.Column("aa_high", sa.Double()),
        sa.Column("engaged_share", sa.Double()),
        sa.Column("reasons", sa.JSON(), nullable=False),
        sa.CheckConstraint(
            "verdict IN ('supported', 'no_difference', 'could_be_drift', 'not_engaged', 'confounded', 'underpowered')",
            name=op.f("ck_comparison_verdict_known"),
        ),
        sa.ForeignKeyConstraint(
            ["audit_id"], ["audit.id"], name=op.f("fk_comparison_audit_id_audit"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_comparison")),
        sa.UniqueConstraint("audit_id", "position", name=op.f("uq_comparison_audit_id_position")),
    )
