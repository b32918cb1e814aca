"""The results database: SQLite through SQLAlchemy, migrated by Alembic.

transfer            rows from and to other databases: backups, merges, one run as a file
query, frames, history, live, rates, runs, queue, columns, stored_queries, render    reading and queueing
session, check      opening and checking
migrate             the schema's versions
models, engine      tables and connections
location, guard, json_guard, redaction, escaping, errors, metrics
"""
