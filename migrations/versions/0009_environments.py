"""Environments that arms declare: the packages of their locks, and the environment of each arm.

Revision ID: 0009
Revises: 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table and the column. Every earlier arm ran in the environment of interlace itself, or in one that
    `engine.python` named: both have none of their own here."""
    op.add_column("arm", sa.Column("environment", sa.String()))
    op.create_table(
        "locked_package",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("run_id", sa.String(36), nullable=False),
        sa.Column("environment", sa.String(), nullable=False),
        sa.Column("python", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("version", sa.String()),
        sa.Column("file", sa.String()),
        sa.Column("sha256", sa.String()),
        sa.Column("tag", sa.String()),
        sa.Column("source", sa.String()),
        sa.Column("is_named", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_locked_package_run_id_run"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_locked_package")),
        sa.UniqueConstraint("run_id", "environment", "name", name=op.f("uq_locked_package_run_id_environment_name")),
    )
    op.create_index(op.f("ix_locked_package_name_version"), "locked_package", ["name", "version"])
