"""A query's result as a table, CSV, JSON, Markdown or Parquet.

Text written by a model may contain anything, including terminal control sequences. Output to a terminal, and tables
everywhere, show them as visible characters; CSV, JSON and Parquet in a file or a pipe hold the data unchanged.
"""

import csv
import io
import json
import math
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from db.errors import LocationError, QueryError, StorageError
from db.escaping import in_markdown, shown, shown_json, shown_line
from workers.files.atomic import write_file
from workers.files.private import MISNAMED

Value = int | float | str | bytes | None

NULL = "\u2013"  # a dash

_TEXT_WIDTH_MIN = 12
_HEADER_WIDTH_MIN = 8
_GAP = 2  # columns between columns


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """A query's columns, each with a name of its own, and its rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


def write_result(result: QueryResult, *, style: str, output: Path | None = None, stream: TextIO | None = None) -> None:
    """Write a result in one of the `QUERY_FORMATS`, to a file or to a stream (standard output).

    Raises:
        QueryError: Parquet on a terminal, or without pyarrow.
        LocationError, StorageError: the file cannot be written, by its name or as the disk is now.
    """
    if style == "parquet":
        _write_parquet(result, output, stream or sys.stdout)
    elif output is not None:
        _write_file(output, _TEXTS[style](result).encode("utf-8", "surrogateescape"))
    else:
        _write_text(result, style, stream or sys.stdout)


def to_csv(result: QueryResult) -> str:
    """CSV with a header; NULL is empty."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(result.columns)
    writer.writerows([_hex(value) for value in row] for row in result.rows)
    return buffer.getvalue()


def to_json(result: QueryResult) -> str:
    """A JSON array with one object per row, one per line. Infinity and NaN become null."""
    lines = [
        json.dumps(dict(zip(result.columns, map(_jsonable, row), strict=True)), ensure_ascii=False, allow_nan=False)
        for row in result.rows
    ]
    return "[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n"


def to_markdown(result: QueryResult) -> str:
    """A Markdown table; numbers are aligned to the right."""
    rules = ["---:" if column.numeric else "---" for column in _columns(result, break_headers=False)]
    rows = [[in_markdown(_cell(value)) for value in row] for row in result.rows]
    lines = [[in_markdown(name) for name in result.columns], rules, *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def to_table(result: QueryResult) -> str:
    """An aligned text table as wide as it needs to be, for pipes and files."""
    buffer = io.StringIO()
    columns = _columns(result, break_headers=False)
    widths = [column.width for column in columns]
    console = Console(file=buffer, width=sum(widths) + _GAP * len(widths), color_system=None, legacy_windows=False)
    console.print(_table(columns, widths))
    return "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())


def to_parquet(result: QueryResult) -> bytes:
    """A Parquet file; a column that mixes kinds of values becomes text.

    Raises:
        QueryError: pyarrow, an optional package, is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise QueryError("--format parquet needs pyarrow; run: pip install 'interlace[parquet]'") from error

    columns = zip(*result.rows, strict=True) if result.rows else ((),) * len(result.columns)
    table = pa.table({name: _arrow(values) for name, values in zip(result.columns, columns, strict=True)})
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


_TEXTS: dict[str, Callable[[QueryResult], str]] = {
    "table": to_table,
    "csv": to_csv,
    "json": to_json,
    "markdown": to_markdown,
}


# ---- where it goes ----


def _write_text(result: QueryResult, style: str, stream: TextIO) -> None:
    if not stream.isatty():
        _write_to_pipe(_TEXTS[style](result), style, stream)
    elif style == "table":
        console = Console(file=stream, highlight=False)
        console.print(_fitting(result, console.width))
        console.print(Text(f"{len(result.rows)} row{'' if len(result.rows) == 1 else 's'}", style="dim"))
    else:
        stream.write((shown_json if style == "json" else shown)(_TEXTS[style](result)))


def _write_to_pipe(text: str, style: str, stream: TextIO) -> None:
    """CSV and JSON are in UTF-8 whatever the locale is, as in a file: an escape would change the data."""
    if style not in ("csv", "json") or not hasattr(stream, "buffer"):
        stream.write(text)
    else:
        _write_bytes(text.encode("utf-8", "surrogateescape"), stream)


def _write_parquet(result: QueryResult, output: Path | None, stream: TextIO) -> None:
    if output is not None:
        _write_file(output, to_parquet(result))
    elif stream.isatty():
        raise QueryError("Parquet cannot be written to a terminal; name a file with -o FILE.parquet, or pipe it")
    else:
        _write_bytes(to_parquet(result), stream)


def _write_bytes(content: bytes, stream: TextIO) -> None:
    """Write past the stream's encoding. An error names the output as its file, as those of the stream itself do."""
    try:
        stream.flush()
        stream.buffer.write(content)
        stream.buffer.flush()
    except OSError as error:
        error.filename = "the output"
        raise


def _write_file(path: Path, content: bytes) -> None:
    try:
        write_file(path, content)
    except OSError as error:
        kind = LocationError if error.errno in MISNAMED else StorageError
        raise kind(f"{path}: cannot be written ({error.strerror}); name another file with -o") from error


# ---- tables ----


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A column ready to be laid out; widths are in terminal cells."""

    header: str  # one line, or several broken at underscores
    cells: tuple[str | None, ...]  # None: NULL
    numeric: bool
    width: int  # natural
    width_min: int  # numbers are never cut, long text may be


def _columns(result: QueryResult, *, break_headers: bool) -> list[_Column]:
    columns = []
    for position, name in enumerate(result.columns):
        values = [row[position] for row in result.rows]
        cells = tuple(None if value is None else _cell(value) for value in values)
        numeric = any(_is_number(value) for value in values) and all(_is_number(v) or v is None for v in values)
        cells_width = max((cell_len(NULL if cell is None else cell) for cell in cells), default=0)
        header = _broken(shown_line(name), cells_width) if break_headers else shown_line(name)
        width = max(cells_width, *(cell_len(line) for line in header.split("\n")))
        width_min = width if numeric else min(width, _TEXT_WIDTH_MIN)
        columns.append(_Column(header=header, cells=cells, numeric=numeric, width=width, width_min=width_min))
    return columns


def _fitting(result: QueryResult, available: int) -> RenderableType:
    """A table if that width can show every number whole and every text legibly, else a record a row."""
    columns = _columns(result, break_headers=True)
    if sum(column.width_min + _GAP for column in columns) > available:
        return _records(columns)
    return _table(columns, _shrunk(columns, available))


def _shrunk(columns: list[_Column], available: int) -> list[int]:
    """Widths that fit: the widest text gives way first, none below its minimum."""
    widths = [column.width for column in columns]
    for _ in range(sum(widths) + _GAP * len(columns) - available):
        spare = [n for n, column in enumerate(columns) if widths[n] > column.width_min]
        widths[max(spare, key=widths.__getitem__)] -= 1
    return widths


def _table(columns: list[_Column], widths: list[int]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, _GAP - 1, 0, 0), show_edge=False, pad_edge=False)
    for column, width in zip(columns, widths, strict=True):
        table.add_column(
            Text(column.header),
            justify="right" if column.numeric else "left",
            vertical="bottom",
            no_wrap=True,
            overflow="ellipsis",
            width=width,
        )
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*(_styled(cell) for cell in row))
    return table


def _records(columns: list[_Column]) -> Group:
    names = [Text(column.header.replace("\n", ""), style="bold") for column in columns]
    parts: list[RenderableType] = []
    for number, row in enumerate(zip(*(column.cells for column in columns), strict=True), start=1):
        grid = Table.grid(padding=(0, _GAP, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for name, cell in zip(names, row, strict=True):
            grid.add_row(name, _styled(cell))
        parts += [Text(f"row {number}", style="dim"), grid]
    return Group(*parts)


def _styled(cell: str | None) -> Text:
    return Text(NULL, style="dim") if cell is None else Text(cell)


def _broken(header: str, cells_width: int) -> str:
    """A header on several lines, broken after underscores, no wider than its cells where its words allow it."""
    words = re.findall(r"[^_]*_*", header)[:-1] or [header]
    limit = max(cells_width, _HEADER_WIDTH_MIN, *(cell_len(word) for word in words))
    lines = [words[0]]
    for word in words[1:]:
        if cell_len(lines[-1] + word) <= limit:
            lines[-1] += word
        else:
            lines.append(word)
    return "\n".join(lines)


# ---- values ----


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float)


def _cell(value: Value) -> str:
    """A value as people read it: six digits of a fraction, one line without control characters. NULL is the dash."""
    if value is None:
        return NULL
    if isinstance(value, float):
        return f"{value:.6g}"
    return shown_line(str(_hex(value)))


def _hex(value: Value) -> int | float | str | None:
    return value.hex() if isinstance(value, bytes) else value


def _jsonable(value: Value) -> int | float | str | None:
    return None if isinstance(value, float) and not math.isfinite(value) else _hex(value)


def _arrow(values: Iterable[Value]) -> Any:
    import pyarrow as pa

    column = list(values)
    try:
        return pa.array(column)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else str(_hex(value)) for value in column])
