"""The stored queries and the meaning of columns, on the terminal."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from db.escaping import shown_line
from db.stored_queries import in_groups

if TYPE_CHECKING:
    from db.columns import Description
    from db.stored_queries import StoredQuery

_INDENT = 2
_NAME_WIDTH = 18


def print_queries(queries: "Sequence[StoredQuery]", *, own_folder: Path, out: Console) -> None:
    """Print each query's name, question and parameters: the user's own first, then by subject."""
    own = [query for query in queries if query.own]
    if own:
        out.print(Text(f"yours, in {own_folder}", style="bold"), soft_wrap=True)
        out.print(_listed(own))
    for group, members in in_groups(query for query in queries if not query.own):
        out.print(Text(group, style="bold"))
        out.print(_listed(members))
    out.print()
    out.print("interlace query NAME              runs one; --show prints its SQL instead")
    out.print("  --param NAME=VALUE              sets it; :run is an id, part of one, or last")
    if not own:
        out.print(Text(f"your own: NAME.sql in {own_folder}"), soft_wrap=True)


def print_description(found: "Description", *, out: Console) -> None:
    """Print a table's or a view's columns."""
    out.print(Text(f"{found.name}: {found.meaning}" if found.meaning else found.name, style="bold"))
    grid = Table.grid(padding=(0, _INDENT, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for column in found.columns:
        grid.add_row(column.name, column.kind.lower().partition("(")[0], column.meaning)
    out.print(Padding(grid, (0, 0, 0, _INDENT)))


def _listed(queries: "Sequence[StoredQuery]") -> Table:
    grid = Table.grid(padding=(0, _INDENT, 0, 0))
    grid.add_column(no_wrap=True, width=_NAME_WIDTH)
    grid.add_column(overflow="fold")
    for query in queries:
        words = Text(shown_line(query.title))
        if query.parameters:
            words.append("  " + "  ".join(str(parameter) for parameter in query.parameters), style="dim")
        grid.add_row(f"  {query.name}", words)
    return grid
