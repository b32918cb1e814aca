"""The 95th percentile of the times between a generation's tokens, or why there is none.

Revision ID: 0008
Revises: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

BEFORE = "stored before it was recorded"


def upgrade() -> None:
    """Add the columns, and say of earlier generations that they have none."""
    op.add_column("generation", sa.Column("inter_token_p95_s", sa.Double()))
    op.add_column("generation", sa.Column("inter_token_reason", sa.String()))
    op.execute(sa.text("UPDATE generation SET inter_token_reason = :before").bindparams(before=BEFORE))
