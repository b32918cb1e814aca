"""`interlace query`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.commands.opening import optional_path
from orchestrator.errors import InputError

if TYPE_CHECKING:
    from db.stored_queries import StoredQuery


def query_database(
    asked: str | None, *, file: str | None, url: str | None, params: Sequence[str], style: str, output: str | None
) -> None:
    """`interlace query`: a stored query, a file or SQL; read-only by construction."""
    from db.query import number_or_text, parse_parameters, run_query
    from db.render import write_result
    from db.session import database_url
    from db.stored_queries import RUN

    where = database_url(url)
    query = _query(asked, file=file, url=where)
    defaults = {name: text if name == RUN else number_or_text(text) for name, text in query.defaults.items()}
    result = run_query(where, query.sql, defaults | parse_parameters(params))
    write_result(result, style=style, output=optional_path(output))


def list_queries(*, url: str | None) -> None:
    """`interlace query --list`."""
    from db.session import database_url
    from db.stored_queries import own_folder, stored_queries
    from orchestrator.views.query_view import print_queries
    from orchestrator.views.terminal import console

    where = database_url(url)
    print_queries(stored_queries(where), own_folder=own_folder(where), out=console())


def show_query(asked: str | None, *, file: str | None, url: str | None) -> None:
    """`interlace query --show`: the SQL itself, with its header, to read or to start from."""
    from db.session import database_url

    query = _query(asked, file=file, url=database_url(url))
    text = query.sql if query.path == _TYPED else query.path.read_text(encoding="utf-8-sig")
    sys.stdout.write(text.rstrip("\n") + "\n")


def describe_view(name: str, *, url: str | None) -> None:
    """`interlace query --describe`."""
    from db.columns import describe
    from db.session import database_url
    from orchestrator.views.query_view import print_description
    from orchestrator.views.terminal import console

    print_description(describe(database_url(url), name), out=console())


_TYPED = Path("SQL")  # where SQL on the command line comes from


def _query(asked: str | None, *, file: str | None, url: str) -> "StoredQuery":
    """What was asked for: by one word a stored query, by `.sql` a file, else the SQL itself."""
    from db.stored_queries import find_query, is_file, is_name, parse_query, read_query

    if (asked is None) == (file is None):
        raise InputError("query: give one of a stored query's name, SQL, or a file; see `interlace query --list`")
    if file is not None:
        return read_query(Path(file))
    if asked is None or is_name(asked):
        return find_query(url, asked or "")
    if is_file(asked):
        return read_query(Path(asked).expanduser())
    return parse_query(asked, path=_TYPED)
