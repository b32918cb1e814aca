"""A server's stamps: its first byte, the first token that a reader sees, and whether stamps are those of chunks.

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Columns only, so no table is recreated. Of generations that are there, none came from a server."""
    for column in (
        sa.Column("first_byte_s", sa.Double()),
        sa.Column("first_visible_s", sa.Double()),
        sa.Column("stamps_of", sa.String()),
    ):
        op.add_column("generation", column)
    op.execute("UPDATE generation SET stamps_of = 'token'")
