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
