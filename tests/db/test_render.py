"""The five formats, on a terminal and in a pipe."""

import csv
import io
import json
import re
import sys
from pathlib import Path
from typing import cast

import pyarrow.parquet as pq
import pytest
from hypothesis import given

from db.errors import LocationError, QueryError
from db.render import NULL, QueryResult, Value, to_csv, to_json, to_markdown, to_parquet, to_table, write_result
from tests.hostile import CONTROLS, controls

NASTY = "\x1b[31mred\x1b[0m\nline\r\x9b2J\u202eevil | <b> \\ end"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def _result(columns: str, *rows: tuple[Value, ...]) -> QueryResult:
    return QueryResult(columns=tuple(columns.split()), rows=rows)


def _on_terminal(result: QueryResult, monkeypatch: pytest.MonkeyPatch, *, width: int = 80, style: str = "table") -> str:
    """Return the text on a terminal of that width, without our own bold and dim."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    write_result(result, style=style, stream=stream)
    return re.sub("\x1b\\[[012]m", "", stream.getvalue())


RATES = _result(
    "arm rounds decode_tps note", ("plain", 8, 50.123456789, None), ("draft", 12, 7.0, "fine"), ("x", None, 1e9, "")
)


def test_a_piped_table_is_aligned_and_whole() -> None:
    assert to_table(RATES).splitlines() == [
        "arm    rounds  decode_tps  note",
        "─" * 31,
        f"plain       8     50.1235  {NULL}",
        "draft      12           7  fine",
        f"x           {NULL}       1e+09",
    ]


def test_a_piped_table_cuts_nothing_however_wide() -> None:
    row = tuple("v" * 50 for _ in range(20))
    lines = to_table(_result(" ".join(f"column_{n}" for n in range(20)), row)).splitlines()
    assert lines[-1].split() == list(row)


def test_a_table_on_a_terminal_fits_and_cuts_text_but_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    result = _result(
        "run_id experiment decode_tps memory_bytes text",
        ("01a22931-4559-7164-b8f6-6fa32e6e9db8", "draft-or-quantise", 51.2345, 25_276_063_744, "Once upon a time " * 9),
    )
    shown = _on_terminal(result, monkeypatch)
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert "51.2345" in shown
    assert "25276063744" in shown
    assert "draft-or-quantise" in shown  # the widest text gives way first
    assert "…" in shown
    assert "1 row\n" in shown


def test_long_headers_are_broken_at_underscores(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = _on_terminal(_result("engine_decode_tps is_aa", (1.5, 0)), monkeypatch, width=40)
    assert [line.split() for line in shown.splitlines()[:3]] == [["engine_"], ["decode_"], ["tps", "is_aa"]]


def test_what_cannot_fit_is_shown_a_record_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [f"column_{n}" for n in range(30)]
    result = _result(" ".join(columns), tuple(range(30)), (*range(29), None))
    lines = _on_terminal(result, monkeypatch).splitlines()
    assert lines[0] == "row 1"
    assert [line.split() for line in lines[1:31]] == [[name, str(n)] for n, name in enumerate(columns)]
    assert lines[31] == "row 2"
    assert lines[61].split() == ["column_29", NULL]


def test_null_is_dim_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    write_result(_result("x y", (1, None)), style="table", stream=stream)
    assert f"\x1b[2m{NULL}" in stream.getvalue()


@pytest.mark.parametrize("style", ["table", "csv", "json", "markdown"])
def test_no_control_character_of_the_data_reaches_a_terminal(style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = _on_terminal(_result("text n", (NASTY, 1)), monkeypatch, style=style, width=120)
    assert not controls(shown)
    assert {"json": "\\u001b[31mred", "markdown": "␛\\[31mred"}.get(style, "␛[31mred") in shown


def test_markup_in_the_data_is_not_taken_for_style(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "[bold]x[/bold]" in _on_terminal(_result("a b", ("[bold]x[/bold]", 1)), monkeypatch)


def test_json_on_a_terminal_is_still_the_same_json(monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(_on_terminal(_result("text", (NASTY,)), monkeypatch, style="json")) == [{"text": NASTY}]


def test_csv_comes_back_as_it_was() -> None:
    rows = list(csv.reader(io.StringIO(to_csv(_result("text n", (NASTY, 1.5), (None, 2))), newline="")))
    assert rows == [["text", "n"], [NASTY, "1.5"], ["", "2"]]


def test_json_keeps_every_digit_and_null() -> None:
    result = _result("a b c d e", (0.1 + 0.2, None, float("inf"), b"\xff", "ü"))
    assert json.loads(to_json(result)) == [{"a": 0.1 + 0.2, "b": None, "c": None, "d": "ff", "e": "ü"}]
    assert json.loads(to_json(_result("a"))) == []


def test_markdown_cells_cannot_break_out() -> None:
    lines = to_markdown(_result("text n", (NASTY, 1))).splitlines()
    assert lines[:2] == ["| text | n |", "| --- | ---: |"]
    assert lines[2].endswith(r"evil \| \<b\> \\ end | 1 |")
    assert len(lines) == 3
    lines = to_markdown(_result("![i](http://t/x.png) @who", ("#12", "&lt;"))).splitlines()
    assert lines[0] == "| !\\[i\\](http:\u200c//t/x.png) | @\u200cwho |"
    assert lines[2] == "| \\#\u200c12 | \\&lt; |"


def test_parquet_keeps_kinds(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    result = _result("whole real text mixed none", (1, 1.5, "a", 1, None), (None, None, None, "b", None))
    write_result(result, style="parquet", output=path)
    table = pq.read_table(path)
    assert table.to_pylist() == [
        {"whole": 1, "real": 1.5, "text": "a", "mixed": "1", "none": None},
        {"whole": None, "real": None, "text": None, "mixed": "b", "none": None},
    ]
    assert [str(kind) for kind in table.schema.types] == ["int64", "double", "string", "string", "null"]


def test_parquet_of_no_rows_keeps_the_columns() -> None:
    assert pq.read_table(io.BytesIO(to_parquet(_result("a b")))).column_names == ["a", "b"]


def test_without_pyarrow_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(QueryError, match=r"needs pyarrow; run: pip install 'interlace\[parquet\]'"):
        write_result(RATES, style="parquet", output=tmp_path / "x.parquet")
    assert not list(tmp_path.iterdir())


def test_parquet_on_a_terminal_is_refused() -> None:
    with pytest.raises(QueryError, match="cannot be written to a terminal; name a file with -o"):
        write_result(RATES, style="parquet", stream=Terminal())


def test_parquet_may_be_piped(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write_result(RATES, style="parquet", stream=cast(io.TextIOWrapper, sys.stdout))
    assert pq.read_table(io.BytesIO(capfdbinary.readouterr().out)).num_rows == 3


@pytest.mark.parametrize("style", ["table", "csv", "json", "markdown"])
def test_a_file_takes_what_a_pipe_would(style: str, tmp_path: Path) -> None:
    path, stream = tmp_path / "out", io.StringIO()
    write_result(RATES, style=style, output=path)
    write_result(RATES, style=style, stream=stream)
    assert path.read_text(encoding="utf-8") == stream.getvalue()


def test_a_file_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(LocationError, match="cannot be written"):
        write_result(RATES, style="csv", output=tmp_path / "missing" / "x.csv")


@given(CONTROLS)
def test_no_table_holds_a_control_character(text: str) -> None:
    result = QueryResult(columns=(text, "n"), rows=((text, 1), (None, 2)))
    assert not controls(to_table(result))
    assert not controls(to_markdown(result))
    assert len(to_markdown(result).splitlines()) == 4
