"""The targets of the explorer's addresses, and its configuration."""

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from db.columns import views
from db.stored_queries import SHIPPED, parse_query, read_query
from orchestrator.explore.site import HOME, Site, metadata, shown_cell

RUN_ID = "01a2-whole"
QUERIES = [read_query(path) for path in sorted(SHIPPED.glob("*.sql"))]
MINE = parse_query(
    "-- Mine?\n-- `x` counts.\n-- :least = 1.5\n-- :name = a\nSELECT :least, ':least', :name, :run",
    path=Path("mine.sql"),
    own=True,
)
SITE = Site(
    queries={query.name: query for query in [*QUERIES, MINE]},
    resolve_run=lambda name: RUN_ID if name in ("last", "01a2") else None,
)


def _target(path: str, query_string: str = "") -> tuple[str, dict[str, list[str]]]:
    parts = urlsplit(SITE.redirect(path, query_string) or "")
    return parts.path, parse_qs(parts.query, keep_blank_values=True)


def test_the_bare_address_leads_home() -> None:
    assert SITE.redirect("/", "") == HOME
    assert SITE.redirect(HOME, "") is None


def test_a_query_gets_its_defaults_and_the_newest_runs_id() -> None:
    assert _target(f"{HOME}/speed") == (f"{HOME}/speed", {"run": [RUN_ID]})
    assert _target(f"{HOME}/hot-trials.json", "_shape=array") == (
        f"{HOME}/hot-trials.json",
        {"_shape": ["array"], "level": ["1"]},
    )
    assert _target(f"{HOME}/mine")[1] == {"least": ["1.5"], "name": ["a"], "run": [RUN_ID]}


def test_a_run_in_short_is_written_out_and_an_unknown_one_is_left() -> None:
    assert _target(f"{HOME}/speed", "run=01a2")[1] == {"run": [RUN_ID]}
    assert SITE.redirect(f"{HOME}/speed", f"run={RUN_ID}") is None
    assert SITE.redirect(f"{HOME}/speed", "run=xyz") is None


@pytest.mark.parametrize("view", ["trial_flat", "verdict_flat"])
def test_a_view_begins_with_its_first_columns(view: str) -> None:
    path, arguments = _target(f"{HOME}/{view}")
    assert path == f"{HOME}/{view}"
    assert arguments["_col"] == list(views()[view].shown)
    assert arguments["_sort_desc"][0] in views()[view].shown
    assert arguments["_nocount"] == ["1"]
    assert SITE.redirect(f"{HOME}/{view}", "_sort=arm") is None


@pytest.mark.parametrize("path", ["/elsewhere/speed", f"{HOME}/run", f"{HOME}/trial_flat.json/x", "/-/static/app.css"])
def test_other_addresses_are_as_they_are(path: str) -> None:
    assert SITE.redirect(path, "") is None


def test_a_form_sends_text_so_a_number_is_cast() -> None:
    told = metadata([MINE, *QUERIES], path="x.db")["databases"]["interlace"]
    mine = told["queries"]["mine"]
    assert mine["sql"] == "SELECT CAST(:least AS NUMERIC), ':least', :name, :run"
    assert mine["params"] == ["least", "name", "run"]
    assert (mine["title"], mine["description"], mine["group"]) == ("Mine?", "x counts.", "yours")
    assert next(iter(told["queries"])) == "mine"
    assert set(told["tables"]["trial_flat"]["columns"]) == set(views()["trial_flat"].columns)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (54.107142857142854, "54.1071"),
        (0.00012345678, "0.000123457"),
        ("2026-03-02 22:14:00.000000", "2026-03-02 22:14:00"),
        ("2026-03-02", None),
        ("<b>", None),
        (7, None),
        (None, None),
    ],
)
def test_cells_are_written_for_reading(value: object, shown: str | None) -> None:
    assert shown_cell(value) == shown
