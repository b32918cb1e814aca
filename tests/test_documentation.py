"""The documentation's commands can be typed, its site lists every page, and its reference is up to date."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from docs import articles, python_reference, settings
from docs.commands import PAGE, page
from orchestrator.cli import cli
from orchestrator.configuration.compose import make_plan

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
PLANNING = ("plan", "run", "queue", "bisect")


def commands_of(text: str) -> Iterator[list[str]]:
    """The words of each line in a console block that calls interlace; a comment at its end is the shell's."""
    for block in re.findall(r"^```(?:console|bash)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words[:1] == ["interlace"]:
                yield words[1:]


TYPED = [
    pytest.param(words, id=f"{path.name}: {' '.join(words)[:60]}", marks=[pytest.mark.slow] * (words[0] in PLANNING))
    for path in (ROOT / "README.md", *(DOCS / name for name in PAGES))
    if path.name != "configuration.md"  # its examples plan with their files: tests/test_configuration_docs.py
    for words in commands_of(path.read_text(encoding="utf-8"))
]


def resolve(words: list[str]) -> click.Context:
    """The context of the command that a line calls, with its options parsed.

    Raises:
        click.UsageError: there is no such command, or it has no such option.
    """
    group, context = cli, click.Context(cli, info_name="interlace", **cli.context_settings)
    while True:
        name, command, words = group.resolve_command(context, words)
        assert command is not None
        if not isinstance(command, click.Group):
            return command.make_context(name, list(words), parent=context)
        group, context = command, click.Context(command, info_name=name, parent=context)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with the files that the pages show: blocks of YAML that begin with a path."""
    text = "\n".join((DOCS / name).read_text(encoding="utf-8") for name in PAGES)
    for block in re.findall(r"^```yaml\n(# lab/.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
        path = tmp_path / block.splitlines()[0].removeprefix("# ")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block, encoding="utf-8")
    (tmp_path / "lab" / "weights" / "mine-4bit").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("words", TYPED)
@pytest.mark.usefixtures("folder")
def test_a_command_of_the_documentation_can_be_typed(words: list[str]) -> None:
    context = resolve(words)
    overrides: Any = context.params.get("overrides")
    if words[0] in PLANNING and overrides:
        config_dir = context.params["config_dir"]
        make_plan(list(overrides), config_dir=Path(config_dir) if config_dir else None)


def test_every_page_is_in_the_site_s_navigation() -> None:
    site = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))
    assert sorted(_files(site["project"]["nav"])) == PAGES


def _files(entries: list[dict[str, Any]]) -> Iterator[str]:
    for entry in entries:
        for value in entry.values():
            yield from [value] if isinstance(value, str) else _files(value)


def test_the_commands_page_is_what_help_prints() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python docs/commands.py"


def test_the_settings_page_is_what_the_declarations_say() -> None:
    assert settings.PAGE.read_text(encoding="utf-8") == settings.page(), "python docs/settings.py"


def test_the_python_page_is_what_the_docstrings_say() -> None:
    assert python_reference.PAGE.read_text(encoding="utf-8") == python_reference.page(), (
        "python docs/python_reference.py"
    )


def test_the_articles_page_has_the_plans_figures() -> None:
    """Made without a network: every model that is not here has a published size."""
    text = articles.PAGE.read_text(encoding="utf-8")
    assert text == articles.rewritten(text), "python docs/articles.py"
    assert "unknown" not in text.partition("table: written")[2].partition("end of table")[0]
