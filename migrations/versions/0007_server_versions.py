"""Versions of servers: who told them, and why they are missing. Until now a server's arm held the worker's own.

Revision ID: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns. Earlier rows stay as they were: which of them are a server's, they do not tell."""
    op.add_column("environment", sa.Column("server", sa.String()))
    op.add_column("environment", sa.Column("missing_reason", sa.String()))
