"""Every example of docs/configuration.md plans, with the files that it shows."""

import re
import shlex
from pathlib import Path

import pytest

from conf.store import GROUP_SCHEMAS
from orchestrator.configuration.compose import make_plan
from orchestrator.configuration.groups import SHIPPED_DIR
from orchestrator.configuration.workload import parse_prompts

TEXT = (Path(__file__).parent.parent / "docs" / "configuration.md").read_text(encoding="utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
COMMANDS = [line for kind, body in BLOCKS if kind == "console" for line in body.splitlines()]
PROMPTS = next(body for kind, body in BLOCKS if kind == "json")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with what the document shows and names."""
    for kind, body in BLOCKS:
        if kind == "yaml":
            path = tmp_path / body.splitlines()[0].removeprefix("# ")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(body, encoding="utf-8")
    for place in ("weights", "lab/weights/mine-4bit", "lab/prompts"):
        (tmp_path / place).mkdir(parents=True)
    for file in ("my.jsonl", "lab/prompts/support.jsonl"):
        (tmp_path / file).write_text(PROMPTS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_an_example_plans(command: str, folder: Path) -> None:
    program, verb, *words = shlex.split(command)
    assert (program, verb) == ("interlace", "plan")
    config_dir = None
    if "--config-dir" in words:
        place = words.index("--config-dir")
        config_dir = folder / words[place + 1]
        del words[place : place + 2]
    plan = make_plan(words, config_dir=config_dir).plan
    assert plan.arms
    assert plan.prompts


def test_the_note_shown_is_the_note_given() -> None:
    plan = make_plan(shlex.split(COMMANDS[1])[2:]).plan
    assert [line.split("note")[1].strip() for kind, body in BLOCKS if kind == "text" for line in body.splitlines()] == [
        note for note in plan.notes if "merged" in note
    ]


def test_the_prompt_examples_are_prompts() -> None:
    assert len(parse_prompts(PROMPTS, where="docs", name="docs", max_tokens=9)) == 2


def test_the_table_names_every_group_and_the_shipped_options() -> None:
    rows = {
        row[0]: row[1] for row in re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \| [^|]+ \|$", TEXT, flags=re.MULTILINE)
    }
    assert set(GROUP_SCHEMAS) <= set(rows)
    for group in set(GROUP_SCHEMAS) - {"checkpoint"}:
        assert set(re.findall(r"`([\w-]+)`", rows[group])) == {
            path.stem for path in (SHIPPED_DIR / group).glob("*.yaml")
        }
