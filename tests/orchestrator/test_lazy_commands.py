"""Commands load when they are called; lists, hints and completions need none of them."""

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from orchestrator.cli import SUMMARIES, WORDS, cli
from orchestrator.commands import lazy_group

SCRIPT = """
import sys
sys.argv = ["interlace", *sys.argv[1:]]
from orchestrator.cli import main
try:
    main()
finally:
    sys.stderr.write(str([name for name in sys.modules if name.startswith("orchestrator.commands.cmd_")]))
"""


def interlace(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A call of the command; the modules of commands that it loaded end its standard error."""
    command = [sys.executable, "-c", SCRIPT, *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_summary_is_the_first_sentence_of_the_help(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name
    assert command.get_short_help_str(200).removesuffix(".") == SUMMARIES[name].removesuffix(".")


def test_there_is_a_module_for_each_command_and_no_other() -> None:
    folder = Path(lazy_group.__file__).parent
    assert {path.stem.removeprefix("cmd_") for path in folder.glob("cmd_*.py")} == set(SUMMARIES)


def test_help_and_hints_load_no_command() -> None:
    shown, hinted = interlace("--help"), interlace("reprot")
    assert "Judge a run" in shown.stdout
    assert "Did you mean 'report'?" in hinted.stderr
    assert hinted.returncode == 2
    assert shown.stderr.endswith("[]")
    assert hinted.stderr.endswith("[]")


@pytest.mark.parametrize(
    ("shell", "typed", "offered"),
    [("bash", "st", "plain,status"), ("zsh", "sim", "Try your design"), ("bash", "--v", "plain,--version")],
)
def test_completing_a_name_loads_no_command(shell: str, typed: str, offered: str) -> None:
    done = interlace(_INTERLACE_COMPLETE=f"{shell}_complete", COMP_WORDS=f"interlace {typed}", COMP_CWORD="1")
    assert offered in done.stdout
    assert done.stderr.endswith("[]")


def test_completion_goes_on_within_a_command() -> None:
    done = interlace(_INTERLACE_COMPLETE="bash_complete", COMP_WORDS="interlace queue mo", COMP_CWORD="2")
    assert done.stdout.strip() == "plain,move"
    assert done.stderr.endswith("['orchestrator.commands.cmd_queue']")


@pytest.mark.parametrize("word", WORDS)
def test_words_of_other_tools_lead_to_a_command_that_exists(word: str) -> None:
    assert word not in SUMMARIES
    done = CliRunner().invoke(cli, [word, "last"])
    assert done.exit_code == 2
    said = " ".join(done.output.split())
    assert f"Did you mean `interlace {WORDS[word]}`?" in said
    for typed in re.findall(r"interlace ([a-z -]+)|, `([a-z -]+)`|or `([a-z -]+)", said.partition("Did you mean")[2]):
        command = next(filter(None, typed)).split(" -")[0].split(" last")[0].split()
        if command and not command[0].startswith("-"):
            assert CliRunner().invoke(cli, [*command, "--help"]).exit_code == 0


def test_an_unknown_word_is_left_to_click() -> None:
    assert "Did you mean 'audit'?" in CliRunner().invoke(cli, ["audti"]).output
