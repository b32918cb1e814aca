"""Alembic's entry point: runs the revisions on the connection and in the transaction that `db.migrate` gives it.

The connection begins its own transactions, so SQLite's DDL is transactional here and an upgrade that fails leaves the
database as it was.
"""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table=context.config.attributes["version_table"],
    render_as_batch=True,
    transactional_ddl=True,
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
