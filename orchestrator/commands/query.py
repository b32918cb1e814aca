"""`interlace query`."""

from collections.abc import Sequence

from orchestrator.commands.opening import optional_path


def query_database(sql: str, *, url: str | None, params: Sequence[str], style: str, output: str | None) -> None:
    """`interlace query`: read-only by construction."""
    from db.query import parse_parameters, run_query
    from db.render import write_result
    from db.session import database_url

    result = run_query(database_url(url), sql, parse_parameters(params))
    write_result(result, style=style, output=optional_path(output))
