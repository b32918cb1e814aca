"""The machine's part in a trial: its place in time, its gate, its boot; and what an arm's memory was planned to be.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Columns only, so no table is recreated. Trials that are there get their places by their start."""
    for column in (
        sa.Column("ordinal", sa.BigInteger()),
        sa.Column("gate_state", sa.String()),
        sa.Column("gate_detail", sa.JSON()),
        sa.Column("boot_id", sa.String()),
    ):
        op.add_column("trial", column)
    for column in (
        sa.Column("planned_weights_bytes", sa.BigInteger()),
        sa.Column("footprint_bytes", sa.BigInteger()),
        sa.Column("memory_note", sa.String()),
    ):
        op.add_column("arm", column)
    op.execute(
        "UPDATE trial SET ordinal = placed.place FROM ("
        "SELECT id, row_number() OVER (PARTITION BY run_id ORDER BY started_at, id) - 1 AS place FROM trial"
        ") AS placed WHERE placed.id = trial.id"
    )
