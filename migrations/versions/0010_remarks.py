"""What people say about a run: a remark in words, and tags.

Revision ID: 0010
Revises: 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns. Nobody has said anything about an earlier run."""
    op.add_column("run", sa.Column("remark", sa.String()))
    op.add_column("run", sa.Column("tags", sa.JSON()))
