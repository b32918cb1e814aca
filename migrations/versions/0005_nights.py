"""Nights and meaning: the queue, signs of life, other tools' results, divergences, the time of a pass.

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Recreates four tables: what another tool did not tell is NULL, and a CHECK cannot be altered in place."""
    op.execute("DROP VIEW trial_flat")
    op.execute("DROP VIEW verdict_flat")
    _run()
    _checkpoint()
    with op.batch_alter_table("trial") as batch:
        batch.alter_column("seed", existing_type=sa.BigInteger(), nullable=True)
    op.create_index("ix_trial_run_id_ordinal", "trial", ["run_id", "ordinal"])
    op.create_index("ix_trial_hot", "trial", ["started_at"], sqlite_where=sa.text("thermal_max > 0"))
    op.create_index("ix_trial_not_done", "trial", ["status"], sqlite_where=sa.text("status <> 'done'"))
    with op.batch_alter_table("generation") as batch:
        for name in _UNTOLD_TEXTS:
            batch.alter_column(name, existing_type=sa.String(), nullable=True)
        for name in _UNTOLD_COUNTS:
            batch.alter_column(name, existing_type=sa.BigInteger(), nullable=True)
        for name in _UNTOLD_LISTS:
            batch.alter_column(name, existing_type=sa.JSON(), nullable=True)
    op.create_index(
        "ix_generation_not_engaged",
        "generation",
        ["trial_id"],
        sqlite_where=sa.text("requested = 1 AND engaged IS NOT 1"),
    )
    op.add_column("comparison", sa.Column("workload", sa.String()))
    _queue_entry()
    _divergence()
    _pass_time()
    op.execute(TRIAL_FLAT)
    op.execute(VERDICT_FLAT)


_UNTOLD_TEXTS = ("prompt_sha256", "finish_reason", "text", "text_sha256", "token_ids_sha256")
_UNTOLD_COUNTS = ("prompt_tokens", "completion_tokens")
_UNTOLD_LISTS = ("token_ids", "stamps_us")


def _run() -> None:
    for column in (
        sa.Column("heartbeat_at", sa.DateTime()),
        sa.Column("current", sa.JSON()),
        sa.Column("origin", sa.String()),
        sa.Column("randomised", sa.Boolean()),
        sa.Column("source_name", sa.String()),
        sa.Column("source_sha256", sa.String()),
        sa.Column("bandwidth_bytes_per_s", sa.Double()),
        sa.Column("bandwidth_source", sa.String()),
    ):
        op.add_column("run", column)
    op.execute("UPDATE run SET origin = 'interlace', randomised = 1")
    with op.batch_alter_table("run") as batch:
        batch.alter_column("origin", existing_type=sa.String(), nullable=False)
        batch.alter_column("randomised", existing_type=sa.Boolean(), nullable=False)
        batch.create_unique_constraint("uq_run_source_sha256", ["source_sha256"])
        batch.drop_constraint("ck_run_status_known", type_="check")
        batch.create_check_constraint(
            "ck_run_status_known",
            "status IN ('planned', 'running', 'done', 'interrupted', 'failed', 'cancelled')",
        )


def _checkpoint() -> None:
    op.add_column("checkpoint", sa.Column("bytes_read_per_token", sa.BigInteger()))
    op.add_column("checkpoint", sa.Column("kv_bytes_per_token", sa.BigInteger()))
    with op.batch_alter_table("checkpoint") as batch:
        batch.drop_constraint("ck_checkpoint_source_known", type_="check")
        batch.create_check_constraint(
            "ck_checkpoint_source_known",
            "source IN ('hub', 'local', 'gguf', 'imported', 'dummy', 'simulated', 'unknown')",
        )


def _queue_entry() -> None:
    op.create_table(
        "queue_entry",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("run_id", sa.String(36), nullable=False),
        sa.Column("position", sa.Double(), nullable=False),
        sa.Column("added_at", sa.DateTime(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("note", sa.String()),
        sa.Column("checked_at", sa.DateTime()),
        sa.Column("checked", sa.JSON()),
        sa.PrimaryKeyConstraint("id", name="pk_queue_entry"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_queue_entry_run_id_run", ondelete="CASCADE"),
        sa.UniqueConstraint("run_id", name="uq_queue_entry_run_id"),
        sa.CheckConstraint("state IN ('waiting', 'done', 'failed', 'cancelled')", name="ck_queue_entry_state_known"),
    )
    op.create_index("ix_queue_entry_state_position", "queue_entry", ["state", "position"])


def _divergence() -> None:
    op.create_table(
        "divergence",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("run_id", sa.String(36), nullable=False),
        sa.Column("arm_id", sa.String(36), nullable=False),
        sa.Column("prompt_id", sa.String(), nullable=False),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("token_index", sa.BigInteger(), nullable=False),
        sa.Column("control_token", sa.BigInteger()),
        sa.Column("arm_token", sa.BigInteger()),
        sa.Column("control_text", sa.String()),
        sa.Column("arm_text", sa.String()),
        sa.Column("context_text", sa.String()),
        sa.Column("top", sa.JSON()),
        sa.Column("gap", sa.Double()),
        sa.Column("rounding", sa.Double()),
        sa.Column("verdict", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_divergence"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_divergence_run_id_run", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["arm_id"], ["arm.id"], name="fk_divergence_arm_id_arm", ondelete="CASCADE"),
        sa.UniqueConstraint("run_id", "arm_id", "prompt_id", "turn", name="uq_divergence_run_id_arm_id_prompt_id_turn"),
        sa.CheckConstraint("verdict IN ('near_tie', 'real', 'unknown')", name="ck_divergence_verdict_known"),
    )


def _pass_time() -> None:
    op.create_table(
        "pass_time",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("run_id", sa.String(36), nullable=False),
        sa.Column("arm_id", sa.String(36), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("width", sa.BigInteger(), nullable=False),
        sa.Column("median_s", sa.Double(), nullable=False),
        sa.Column("low_s", sa.Double(), nullable=False),
        sa.Column("high_s", sa.Double(), nullable=False),
        sa.Column("repeats", sa.BigInteger(), nullable=False),
        sa.Column("context_tokens", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_pass_time"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_pass_time_run_id_run", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["arm_id"], ["arm.id"], name="fk_pass_time_arm_id_arm", ondelete="CASCADE"),
        sa.UniqueConstraint("run_id", "arm_id", "role", "width", name="uq_pass_time_run_id_arm_id_role_width"),
        sa.CheckConstraint("role IN ('target', 'draft')", name="ck_pass_time_role_known"),
    )


# As in 0002, with the new columns at its end.
TRIAL_FLAT = """
CREATE VIEW trial_flat AS
SELECT
    run.id AS run_id,
    experiment.name AS experiment,
    host.name AS host,
    host.chip AS chip,
    trial.started_at AS started_at,
    round."index" AS round,
    trial.position AS position,
    arm.name AS arm,
    arm.is_control AS is_control,
    trial.kind IN ('warmup', 'preflight') AS is_warmup,
    arm.engine AS engine,
    arm.engine_version AS engine_version,
    checkpoint.name AS checkpoint,
    checkpoint.bits AS bits,
    arm.draft AS draft,
    arm.block_size AS block_size,
    generation.workload AS workload,
    generation.prompt_class AS prompt_class,
    generation.turn AS turn,
    environment.mlx_version AS mlx_version,
    environment.mlx_lm_version AS mlx_lm_version,
    environment.os_build AS os_build,
    trial.thermal_before AS thermal_before,
    trial.thermal_max AS thermal_max,
    trial.thermal_after AS thermal_after,
    trial.power_source AS power_source,
    generation.requested AS requested,
    generation.engaged AS engaged,
    generation.useful AS useful,
    (
        SELECT group_concat(signs.text, '; ')
        FROM (SELECT text FROM evidence WHERE evidence.generation_id = generation.id ORDER BY evidence.id) AS signs
    ) AS evidence,
    generation.prompt_tokens AS prompt_tokens,
    generation.cached_tokens AS cached_tokens,
    generation.completion_tokens AS completion_tokens,
    generation.finish_reason AS finish_reason,
    generation.ttft_s AS ttft_s,
    generation.prefill_tps AS prefill_tps,
    generation.decode_tps AS decode_tps,
    generation.end_to_end_tps AS end_to_end_tps,
    generation.accept_length AS accept_length,
    generation.acceptance_rate AS acceptance_rate,
    generation.peak_memory_bytes AS peak_memory_bytes,
    trial.status AS status,
    trial.excluded_reason AS excluded_reason,
    trial.id AS trial_id,
    generation.id AS generation_id,
    trial.kind AS kind,
    trial.is_aa AS is_aa,
    trial.sequence AS sequence,
    round.attempt AS attempt,
    trial.seed AS seed,
    generation.position AS generation_position,
    generation.prompt_id AS prompt_id,
    generation.prompt_sha256 AS prompt_sha256,
    generation.started_at AS generation_started_at,
    generation.total_s AS total_s,
    generation.verify_steps AS verify_steps,
    generation.drafted AS drafted,
    generation.accepted AS accepted,
    generation.engine_prefill_tps AS engine_prefill_tps,
    generation.engine_decode_tps AS engine_decode_tps,
    generation.engine_gap AS engine_gap,
    generation.cpu_s AS cpu_s,
    generation.text_sha256 AS text_sha256,
    generation.token_ids_sha256 AS token_ids_sha256,
    generation.flags AS flags,
    trial.error_kind AS error_kind,
    trial.error_message AS error_message,
    trial.thermal_reason AS thermal_reason,
    trial.power_reason AS power_reason,
    trial.gate_wait_s AS gate_wait_s,
    trial.wall_s AS wall_s,
    trial.monotonic_s AS monotonic_s,
    arm.fingerprint AS fingerprint,
    arm.temperature AS temperature,
    arm.drafted_per_step AS drafted_per_step,
    environment.interlace_version AS interlace_version,
    environment.python AS python,
    environment.os AS os,
    checkpoint.digest AS checkpoint_digest,
    run.status AS run_status,
    run.created_at AS run_created_at,
    run.workload_sha256 AS workload_sha256,
    run.simulated AS simulated,
    trial.ordinal AS ordinal,
    trial.gate_state AS gate_state,
    trial.gate_detail AS gate_detail,
    trial.boot_id AS boot_id,
    run.origin AS origin,
    run.randomised AS randomised,
    generation.first_byte_s AS first_byte_s,
    generation.first_visible_s AS first_visible_s
FROM trial
JOIN run ON run.id = trial.run_id
JOIN experiment ON experiment.id = run.experiment_id
JOIN host ON host.id = run.host_id
JOIN arm ON arm.id = trial.arm_id
LEFT JOIN round ON round.id = trial.round_id
LEFT JOIN environment ON environment.id = trial.environment_id
LEFT JOIN checkpoint ON checkpoint.id = arm.checkpoint_id
LEFT JOIN generation ON generation.trial_id = trial.id
"""

# As in 0003, with the new column at its end.
VERDICT_FLAT = """
CREATE VIEW verdict_flat AS
SELECT
    run.id AS run_id,
    experiment.name AS experiment,
    host.name AS host,
    host.chip AS chip,
    audit.created_at AS created_at,
    comparison.treatment AS treatment,
    comparison.control AS control,
    comparison.prompt_class AS prompt_class,
    comparison.turn AS turn,
    comparison.metric AS metric,
    comparison.verdict AS verdict,
    comparison.direction AS direction,
    comparison.ratio AS ratio,
    comparison.ci_low AS ci_low,
    comparison.ci_high AS ci_high,
    comparison.p_value AS p_value,
    comparison.rounds AS rounds,
    comparison.wins AS wins,
    comparison.aa_ratio AS aa_ratio,
    comparison.aa_low AS aa_low,
    comparison.aa_high AS aa_high,
    comparison.engaged_share AS engaged_share,
    comparison.reasons AS reasons,
    audit.drift AS drift,
    audit.drift_reason AS drift_reason,
    audit.method_version AS method_version,
    audit.alpha AS alpha,
    audit.margin AS margin,
    audit.id AS audit_id,
    comparison.position AS position,
    run.created_at AS run_created_at,
    run.workload_sha256 AS workload_sha256,
    run.simulated AS simulated,
    comparison.family_p AS family_p,
    comparison.included AS included,
    audit.inference AS inference,
    audit.best AS best,
    audit.carry_over AS carry_over,
    audit.compositions AS compositions,
    comparison.workload AS workload
FROM run
JOIN experiment ON experiment.id = run.experiment_id
JOIN host ON host.id = run.host_id
JOIN audit ON audit.id = (
    SELECT newest.id FROM audit AS newest
    WHERE newest.run_id = run.id
    ORDER BY newest.created_at DESC, newest.id DESC
    LIMIT 1
)
JOIN comparison ON comparison.audit_id = audit.id
"""
