"""`trial_flat` states the environment that an arm declares.

Revision ID: 0011
Revises: 0010
"""

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change no table: an upgrade creates the views anew."""
