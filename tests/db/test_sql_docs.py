"""docs/sql.md and the stored queries: one source, every answer run against a database whose numbers are known."""

import hashlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from db.query import Parameter, number_or_text, run_query
from db.render import Value
from db.session import open_database
from db.stored_queries import RUN, SHIPPED, read_query
from tests.db.conftest import Database
from tests.db.filling import ROUNDS, Filled, fill
from tests.db.odd_night import OddNight, fill_odd_night

ROOT = Path(__file__).parent.parent.parent
DOCUMENT = ROOT / "docs" / "sql.md"
QUERIES = {path.stem: read_query(path) for path in sorted(SHIPPED.glob("*.sql"))}

Rows = list[tuple[Value, ...]]
_ALL = 2 * ROUNDS
# What the first columns of each answer hold, about the last run of `filling`; None: any value.
EXPECTED: dict[str, Rows] = {
    "depths": [],  # tests/orchestrator/test_depths.py has a run with depths
    "aa-floor": [(_ALL, 1.0, 1.0, 1.0)],
    "acceptance": [("draft-8bit", 4, "code", 2.5, 0.5, ROUNDS), ("draft-8bit", 4, "prose", 1.375, 0.125, ROUNDS)],
    "against-control": [("plain-4bit", _ALL, 1.2, _ALL), ("draft-8bit", _ALL, 1.15, ROUNDS)],
    "best-block-size": [
        ("Apple M4", "0.31.0", "smollm2-8bit", "mlx_lm_draft", "all", 2, 1.3, "plain-8bit", 1, 1),
        ("Apple M4", "0.32.4", "smollm2-8bit", "mlx_lm_draft", "all", 4, 1.02, "plain-8bit", 1, 0),
        ("Apple M4", "0.32.4", "smollm2-8bit", "mlx_lm_draft", "code", 4, 1.5, "plain-8bit", 1, 1),
        ("Apple M4", "0.32.4", "smollm2-8bit", "mlx_lm_draft", "prose", 4, 0.8, "plain-8bit", 1, 0),
    ],
    "contradictions": [("cache_contradiction", 4 * ROUNDS)],
    "control-runs": [
        (None, "plain-8bit", "set/code", 0, 50.0, 0.0),
        (None, "plain-8bit", "set/code", 0, 47.5, -0.05),
    ],
    "divergences": [("plain-4bit", "prose-0", 0, 7, "real", " red", " green", 1.0, 0.001)],
    "drift": [(None, "draft-or-quantise", "studio", None, -4.6, 1)] * 2,
    "engagement": [
        ("draft-8bit", _ALL, _ALL, _ALL, _ALL),
        ("plain-4bit", _ALL, 0, 0, 0),
        ("plain-8bit", 2 * _ALL, 0, 0, 0),
    ],
    "engine-gap": [("draft-8bit", None, 0.001, 0), ("plain-4bit", None, 0.001, 0), ("plain-8bit", None, 0.001, 0)],
    "ever-faster": [
        ("draft-or-quantise", "studio", "Apple M4", "draft-8bit 2", "plain-8bit", 1.3, 1),
        ("draft-or-quantise", "studio", "Apple M4", "plain-4bit", "plain-8bit", 1.2, 2),
    ],
    "faults": [
        ("crashed", "mlx_lm_draft", 1, 1, None, "signal 9 (SIGKILL)"),
        ("out_of_memory", "mlx_lm_draft", 1, 1, None, "the worker ran out of memory"),
    ],
    "gate-waits": [],
    "hot-trials": [
        ("2026-03-02 22:04:30.000000", "studio", None, None, 0, 1, 0, "done", None),
        ("2026-03-01 22:04:30.000000", "studio", None, None, 0, 1, 0, "done", None),
        (None, "studio", None, "draft-8bit 2", None, 2, None, "excluded", "thermal: level 2 while it ran, above 1"),
    ],
    "last-night": [(None, "draft-or-quantise", "studio", "done", 30, 1, 2, 1)],
    "left-out": [("draft-8bit", "preflight", "invalid", "out_of_memory", "the worker ran out of memory", 1)],
    "longest-gap": [("draft-8bit", 25.0), ("plain-8bit", 20.0), ("plain-4bit", 16.667)],
    "missing-readings": [("power_mode", "pmset -g names no power mode", 29)],
    "never-engaged": [(None, "draft-or-quantise", "studio", "silent-8bit", "mlx_lm_draft", "smollm2-4bit", 1, 0)],
    "over-time": [
        ("2026-02-09", "studio", "0.31.0", "0.30.1", "24F74", 2, 60.0),
        ("2026-03-01", "studio", "0.32.4", "0.32.2", "24F74", None, 50.0),
        ("2026-03-02", "studio", "0.32.4", "0.32.2", "24F74", None, 50.0),
    ],
    "pass-time": [("draft-8bit", "target", 4, 40.0, 39.0, 42.0, 1.0)],
    "reproduce": [(None, hashlib.sha256(b"{}").hexdigest(), "w" * 64, 1)],
    "runs": [(None, "draft-or-quantise", "studio", "done", None, trials, 0) for trials in (30, 22, 4)],
    "same-answers": [("set/code", 0, 1, 3), ("set/prose", 0, 1, 3)],
    "second-turn": [
        ("studio", "mlx_lm", "smollm2-8bit", 0, 1, 0.5, 100.0, 0.0),
        ("studio", "mlx_lm", "smollm2-8bit", 1, 1, 0.25, 200.0, 0.75),
    ],
    "slower-now": [("plain-8bit", "studio", None, 60.0)],
    "speed": [
        ("draft-8bit", "code", ROUNDS, 75.0),
        ("plain-4bit", "code", ROUNDS, 60.0),
        ("plain-8bit", "code", ROUNDS, 50.0),
        ("plain-4bit", "prose", ROUNDS, 60.0),
        ("plain-8bit", "prose", ROUNDS, 50.0),
        ("draft-8bit", "prose", ROUNDS, 40.0),
    ],
    "verdicts": [
        ("plain-4bit", "all", "supported", "faster", 1.2),
        ("draft-8bit", "all", "could_be_drift", None, 1.02),
        ("draft-8bit", "code", "supported", "faster", 1.5),
        ("draft-8bit", "prose", "supported", "slower", 0.8),
    ],
}
# The same about the odd night, where it has more to say.
ODD: dict[str, Rows] = {
    "gate-waits": [("thermal_level", 2, 16.5, 12.5, 1)],
    "left-out": [
        ("draft-8bit 2", "measured", "excluded", "thermal: level 2 while it ran, above 1", None, 1),
        ("draft-8bit 8", "measured", "invalid", "crashed", "signal 9 (SIGKILL)", 1),
    ],
    "reproduce": [('["interlace","run"]', "odd", "w" * 64, 0)],
}


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, OddNight]]:
    """The filled database with the odd night."""
    url = f"sqlite:///{tmp_path_factory.mktemp('night') / 'interlace.db'}"
    engine = open_database(url)
    fill(engine)
    yield url, fill_odd_night(engine)
    engine.dispose()


def _ask(url: str, name: str, **given: Parameter) -> Rows:
    query = QUERIES[name]
    defaults = {key: text if key == RUN else number_or_text(text) for key, text in query.defaults.items()}
    return list(run_query(url, query.sql, defaults | given).rows)


def _check(found: Rows, expected: Rows) -> None:
    assert len(found) == len(expected)
    for row, wanted in zip(found, expected, strict=True):
        shown = tuple(value if known is not None else None for value, known in zip(row, wanted, strict=False))
        assert [_rounded(value) for value in shown] == [_rounded(value) for value in wanted]


def _rounded(value: Value) -> Value:
    return round(value, 9) if isinstance(value, float) else value


@pytest.mark.parametrize("name", QUERIES)
def test_a_stored_query_answers_as_it_should(name: str, night: tuple[str, OddNight]) -> None:
    given = {"arm": "plain-8bit"} if name == "over-time" else {}
    _check(_ask(night[0], name, **given), EXPECTED[name])


@pytest.mark.parametrize("name", ODD)
def test_a_stored_query_answers_about_another_run(name: str, night: tuple[str, OddNight]) -> None:
    url, odd = night
    _check(_ask(url, name, run=odd.run[-12:]), ODD[name])


def test_parameters_change_the_answers(night: tuple[str, OddNight]) -> None:
    url, _ = night
    assert [row[3] for row in _ask(url, "hot-trials", level=2)] == ["draft-8bit 2"]
    assert _ask(url, "slower-now", percent=50) == []
    assert _ask(url, "second-turn", since="2026-03-01") == []
    assert len(_ask(url, "last-night", hours=24 * 30)) == 3


def test_there_are_more_than_a_dozen_and_none_is_missed() -> None:
    assert len(QUERIES) >= 12
    assert set(EXPECTED) == set(QUERIES)


def test_the_document_is_as_the_files_have_it(tmp_path: Path) -> None:
    copy = tmp_path / "sql.md"
    copy.write_text(DOCUMENT.read_text(encoding="utf-8"), encoding="utf-8")
    script = (ROOT / "docs" / "questions.py").read_text(encoding="utf-8")
    (tmp_path / "questions.py").write_text(script, encoding="utf-8")
    subprocess.run(
        [sys.executable, str(tmp_path / "questions.py")], check=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}
    )
    assert copy.read_text(encoding="utf-8") == DOCUMENT.read_text(encoding="utf-8"), "run: python docs/questions.py"
    assert copy.read_text(encoding="utf-8").count("```sql") == len(QUERIES)


def test_the_tables_and_views_are_those_of_the_database(stored: tuple[Database, Filled]) -> None:
    names = run_query(
        stored[0].url,
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
        " AND name NOT LIKE 'sqlite_%' AND name <> 'interlace_version'",
    )
    text = DOCUMENT.read_text(encoding="utf-8")
    assert [name for (name,) in names.rows if f"`{name}`" not in text] == []


def test_the_example_in_python_runs_as_printed(
    stored: tuple[Database, Filled], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), flags=re.DOTALL)
    database, filled = stored
    monkeypatch.setenv("INTERLACE_DB", str(database.path))
    exec(compile(example, "docs/sql.md", "exec"), {})
    printed = capsys.readouterr().out
    assert re.search(rf"code +draft-8bit +75\.0 +{ROUNDS}", printed)
    assert "could_be_drift" in printed
    assert filled.last_run in printed


def test_the_query_of_ones_own_runs_as_printed(night: tuple[str, OddNight], tmp_path: Path) -> None:
    (example,) = re.findall(r"```text\n(-- Which arms.*?)```", DOCUMENT.read_text(encoding="utf-8"), flags=re.DOTALL)
    path = tmp_path / "floor.sql"
    path.write_text(example, encoding="utf-8")
    query = read_query(path, own=True)
    assert (query.title, query.description) == (
        "Which arms fell below my floor?",
        "Anything else that is worth saying.",
    )
    assert [str(each) for each in query.parameters] == [":run=last", ":floor=30"]
    assert {row[0] for row in run_query(night[0], query.sql, {"floor": 45}).rows} == {"draft-8bit"}
