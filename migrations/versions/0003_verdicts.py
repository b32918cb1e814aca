"""The rest of a judgement: family-wise p-values, results with excluded trials, the best arms, carry-over, compositions.

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Columns only, so no table is recreated."""
    for column in (
        sa.Column("inference", sa.String()),
        sa.Column("best", sa.JSON()),
        sa.Column("carry_over", sa.JSON()),
        sa.Column("compositions", sa.JSON()),
    ):
        op.add_column("audit", column)
    for column in (sa.Column("family_p", sa.Double()), sa.Column("included", sa.JSON())):
        op.add_column("comparison", column)
