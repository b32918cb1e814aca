"""The answers of docs/sql.md, run as they are printed, against a database whose numbers are known."""

import re
from pathlib import Path

import pytest

from db.query import run_query
from db.result import Value
from tests.db.conftest import Database
from tests.db.filling import ROUNDS, Filled

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "sql.md"
ANSWERS = dict(  # SQL by question
    re.findall(r"^### (.+?)\n\n```sql\n(.*?)```", DOCUMENT.read_text(), flags=re.MULTILINE | re.DOTALL)
)
PARAMETERS = {"arm": "plain-8bit"}

_ALL = 2 * ROUNDS
# What the first columns of some answers must hold; None: any value.
EXPECTED: dict[str, list[tuple[Value, ...]]] = {
    "How fast is each arm, in each prompt class?": [
        ("draft-8bit", "code", ROUNDS, 75.0),
        ("plain-4bit", "code", ROUNDS, 60.0),
        ("plain-8bit", "code", ROUNDS, 50.0),
        ("plain-4bit", "prose", ROUNDS, 60.0),
        ("plain-8bit", "prose", ROUNDS, 50.0),
        ("draft-8bit", "prose", ROUNDS, 40.0),
    ],
    "How does each arm compare with the control of its own round?": [
        ("plain-4bit", _ALL, 1.2, _ALL),
        ("draft-8bit", _ALL, 1.15, ROUNDS),
    ],
    "Which differences are real?": [
        ("plain-4bit", "all", "supported", "faster", 1.2),
        ("draft-8bit", "all", "could_be_drift", None, 1.02),
        ("draft-8bit", "code", "supported", "faster", 1.5),
        ("draft-8bit", "prose", "supported", "slower", 0.8),
    ],
    "In which experiments was anything ever faster, and on which machine?": [
        ("draft-or-quantise", "studio", "Apple M4", "plain-4bit", "plain-8bit", 1.2, 2)
    ],
    "How well does the draft guess, and for which prompts?": [
        ("draft-8bit", 4, "code", 2.5, 0.5),
        ("draft-8bit", 4, "prose", 1.375, 0.125),
    ],
    "Did speculation run wherever it was asked for?": [
        ("draft-8bit", _ALL, _ALL, _ALL, _ALL),
        ("plain-4bit", _ALL, 0, 0, 0),
        ("plain-8bit", 2 * _ALL, 0, 0, 0),
    ],
    "What failed, and why?": [
        ("draft-8bit", "preflight", "invalid", "out_of_memory", "the worker ran out of memory", 1)
    ],
    "How much did the machine itself drift?": [
        (None, "plain-8bit", 50.0, 0.0),
        (None, "plain-8bit", 47.5, -0.05),
    ],
    "How different is the control from itself?": [(_ALL, 1.0, 1.0, 1.0)],
    "Did anything get hot?": [(None, None, None, 0, 1, 0)],
    "Which readings of the machine are missing, and why?": [("power_mode", "pmset -g names no power mode")],
    "How has the same configuration done over time, and under which versions?": [
        ("2026-03-01", "plain-8bit", "0.32.4", "0.32.2", "24F74", 50.0),
        ("2026-03-02", "plain-8bit", "0.32.4", "0.32.2", "24F74", 50.0),
    ],
    "Which generations contradict themselves?": [("cache_contradiction", 4 * ROUNDS)],
    "How long was the longest wait between two tokens?": [(None, 20.0)] * 3,
    "Did two arms write the same text?": [("set/code", 0, 1, 3), ("set/prose", 0, 1, 3)],
}


def test_there_are_a_dozen_answers_and_none_is_missed() -> None:
    text = DOCUMENT.read_text()
    assert len(ANSWERS) >= 12
    assert len(ANSWERS) == text.count("```sql") == len(re.findall("^### ", text, flags=re.MULTILINE))
    assert set(EXPECTED) <= set(ANSWERS)


@pytest.mark.parametrize("question", ANSWERS)
def test_an_answer_runs_as_printed(question: str, stored: tuple[Database, Filled]) -> None:
    database, _ = stored
    rows = run_query(database.url, ANSWERS[question], PARAMETERS).rows
    assert rows
    expected = EXPECTED.get(question)
    if expected is not None:
        assert len(rows) == len(expected)
        for row, wanted in zip(rows, expected, strict=True):
            shown = tuple(found if value is not None else None for found, value in zip(row, wanted, strict=False))
            assert [_rounded(value) for value in shown] == [_rounded(value) for value in wanted]


def _rounded(value: Value) -> Value:
    return round(value, 9) if isinstance(value, float) else value


def test_the_tables_and_views_are_those_of_the_database(stored: tuple[Database, Filled]) -> None:
    names = run_query(
        stored[0].url,
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
        " AND name NOT LIKE 'sqlite_%' AND name <> 'interlace_version'",
    )
    text = DOCUMENT.read_text()
    assert [name for (name,) in names.rows if f"`{name}`" not in text] == []
