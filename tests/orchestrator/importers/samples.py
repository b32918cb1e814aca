"""The samples of tests/fixtures/foreign: numbers of our own in the tools' shapes."""

import json
from pathlib import Path
from typing import Any

from orchestrator.importers.foreign_run import ForeignResults, ForeignTrial
from orchestrator.importers.formats import choose_format
from orchestrator.importers.json_values import decode

FOLDER = Path(__file__).parents[2] / "fixtures" / "foreign"
FILES = sorted(FOLDER.iterdir())


def body(name: str) -> Any:
    """The JSON of a sample, to be changed at will."""
    return decode((FOLDER / name).read_bytes(), name=name).body


def read(name: str) -> ForeignResults:
    return read_body(body(name))


def read_body(value: Any) -> ForeignResults:
    plain = json.loads(json.dumps(value))
    return choose_format(plain, "auto", name="sample").read(plain)


def of_arm(results: ForeignResults, arm: str) -> list[ForeignTrial]:
    return [trial for trial in results.trials if trial.arm == arm]


def said(results: ForeignResults, words: str) -> bool:
    return any(words in note for note in results.notes)
