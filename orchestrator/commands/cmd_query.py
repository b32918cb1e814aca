"""`interlace query`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands import completing, options
from orchestrator.errors import InputError
from orchestrator.vocabulary import QUERY_FORMATS

if TYPE_CHECKING:
    from db.stored_queries import StoredQuery

_TYPED = Path("SQL")  # where SQL on the command line comes from


@click.command("query")
@click.argument("asked", shell_complete=completing.queries, metavar="[NAME|FILE.sql|SQL]", required=False)
@options.db
@click.option("--list", "listing", is_flag=True, help="List the stored queries.")
@click.option("--show", is_flag=True, help="Print the query instead of running it.")
@click.option("--describe", "described", metavar="VIEW", help="Print what the columns of a view or table mean.")
@click.option("--file", type=options.FILE, metavar="FILE", help="A query in a file of any name.")
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="Value of :NAME in the SQL. Repeatable.")
@click.option("--format", "style", type=click.Choice(QUERY_FORMATS), default="table")
@click.option("-o", "--output", type=options.FILE, help="Write to a file.")
def command(
    asked: str | None,
    url: str | None,
    described: str | None,
    file: Path | None,
    params: tuple[str, ...],
    style: str,
    output: Path | None,
    *,
    listing: bool,
    show: bool,
) -> None:
    """Ask the database, read-only: a stored query by its name, a file, or SQL.

    \b
      interlace query --list
      interlace query speed --param run=last
      interlace query "SELECT arm, avg(decode_tps) FROM trial_flat GROUP BY arm"

    :run in a query is the newest run unless --param names another. Views: trial_flat (one row per generation) and
    verdict_flat (one row per comparison).
    """
    from db.session import database_url

    where = database_url(url)
    if listing:
        _list(where)
    elif described is not None:
        _describe(described, where)
    elif show:
        _show(_query(asked, file=file, url=where))
    else:
        _run(_query(asked, file=file, url=where), where, params, style=style, output=output)


def _run(query: "StoredQuery", where: str, params: tuple[str, ...], *, style: str, output: Path | None) -> None:
    from db.query import number_or_text, parse_parameters, run_query
    from db.render import write_result
    from db.stored_queries import RUN

    defaults = {name: text if name == RUN else number_or_text(text) for name, text in query.defaults.items()}
    result = run_query(where, query.sql, defaults | parse_parameters(params))
    write_result(result, style=style, output=output)


def _list(where: str) -> None:
    """The stored queries."""
    from db.stored_queries import own_folder, stored_queries
    from orchestrator.views.query_view import print_queries
    from orchestrator.views.terminal import console

    print_queries(stored_queries(where), own_folder=own_folder(where), out=console())


def _show(query: "StoredQuery") -> None:
    """The SQL itself, with its header, to read or to start from."""
    text = query.sql if query.path == _TYPED else query.path.read_text(encoding="utf-8-sig")
    sys.stdout.write(text.rstrip("\n") + "\n")


def _describe(name: str, where: str) -> None:
    """The columns of a view or table."""
    from db.columns import describe
    from orchestrator.views.query_view import print_description
    from orchestrator.views.terminal import console

    print_description(describe(where, name), out=console())


def _query(asked: str | None, *, file: Path | None, url: str) -> "StoredQuery":
    """Return the query: one word names a stored query, `.sql` a file, other text is the SQL itself."""
    from db.stored_queries import find_query, is_file, is_name, parse_query, read_query

    if (asked is None) == (file is None):
        raise InputError("query: give one of a stored query's name, SQL, or a file; see `interlace query --list`")
    if file is not None:
        return read_query(file)
    if asked is None or is_name(asked):
        return find_query(url, asked or "")
    if is_file(asked):
        return read_query(Path(asked).expanduser())
    return parse_query(asked, path=_TYPED)
