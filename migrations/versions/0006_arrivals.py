"""Where a run came from: a run that was imported or merged is judged here, and never executed.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

BEFORE = "taken in before this was recorded"


def upgrade() -> None:
    """Add the columns, and mark the runs that an earlier version took in, as far as their rows show it.

    Doubt counts against a run. An export holds no folder of logs, and a place in the queue never travels. A merged run
    keeps the other database's folder of logs; where no run's logs lie beside this file it was moved, and folders tell
    nothing.
    """
    op.add_column("run", sa.Column("arrived_at", sa.DateTime()))
    op.add_column("run", sa.Column("arrived_from", sa.String()))
    main = "SELECT file FROM pragma_database_list WHERE name = 'main'"
    beside = op.get_bind().exec_driver_sql(main).scalar_one().rpartition("/")[0] + "/logs/"
    op.execute(
        sa.text(
            "UPDATE run SET arrived_at = created_at, arrived_from = :before WHERE origin <> 'interlace'"
            " OR log_dir IS NULL"
            " OR (id NOT IN (SELECT run_id FROM queue_entry) AND log_dir <> :beside || id"
            " AND EXISTS (SELECT 1 FROM run AS own WHERE own.log_dir = :beside || own.id))"
        ).bindparams(before=BEFORE, beside=beside)
    )
