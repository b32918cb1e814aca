"""Lines that a newcomer types: a bare run, a name alone, an experiment for a run, another file's ending, Tab."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from db.errors import RunNotFoundError
from db.runs import choose_run
from tests.orchestrator.shells import SIMULATED, Shell, one_line


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.mark.parametrize("command", [["run"], ["queue", "add"]])
def test_a_bare_run_shows_how_to_name_what_to_compare(shell: Shell, command: list[str]) -> None:
    said = shell(*command, code=2).stderr
    assert "name what to compare; nothing was started" in said
    assert f"interlace {' '.join(command)} sweep=quickstart" in said
    assert all(len(line) <= 100 for line in said.splitlines())
    assert not shell.db.exists()


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("quickstart", "did you mean sweep=quickstart?"),
        ("quikstart", "did you mean sweep=quickstart?"),
        ("smollm2-8bit", "did you mean checkpoint=smollm2-8bit?"),
        ("mlx_lm_draft", "did you mean engine=mlx_lm_draft?"),
        ("two_turns", "did you mean workload=two_turns?"),
        ("zzzzzz", "write key=value"),
    ],
)
def test_a_name_alone_gets_its_group(shell: Shell, word: str, meant: str) -> None:
    for command in ("run", "plan"):
        assert meant in one_line(shell(command, word, code=2))


def test_verdicts_and_experiments_are_understood_as_people_write_them(shell: Shell) -> None:
    arguments = ["run", *SIMULATED, "engine.effect=1.0,1.2", "design.rounds=6", "--quiet"]
    shell(*arguments, "experiment=first")
    shell(*arguments, "experiment=second")
    shell(*arguments, "experiment=First evening")
    for words in ("could-be-drift", "Could be drift", "could_be_drift", "NOT-ENGAGED"):
        shell("audit", "first", "--fail-on", words)
    assert "could_be_drift" in shell("audit", "--fail-on", "could-be-drifting", code=2).stderr
    (newest,) = shell.ask("SELECT run_id FROM trial_flat WHERE experiment = 'second' LIMIT 1")
    assert str(newest["run_id"]) in shell("audit", "second", "--format", "json").stdout
    shell("audit", "first evening")


RUNS = [("0b9c", "first", "done"), ("0a77", "second", "done"), ("0a12", "first", "failed"), ("0f10", "0a12", "done")]


def test_an_experiment_stands_for_its_newest_run_where_that_is_asked_for() -> None:
    assert choose_run(RUNS, "first", by_experiment=True) == "0b9c"
    assert choose_run(RUNS, "0a7", by_experiment=True) == "0a77"
    assert choose_run(RUNS, "0a12", by_experiment=True) == "0a12"  # an id goes before an experiment of that name
    with pytest.raises(RunNotFoundError):
        choose_run(RUNS, "first")
    with pytest.raises(RunNotFoundError):
        choose_run(RUNS, "fir", by_experiment=True)


@pytest.mark.parametrize(
    ("file", "words"),
    [("x.pdf", "print"), ("x.PDF", "x.html"), ("x.md", "--markdown"), ("x.png", "--images"), ("x.csv", "query")],
)
def test_a_report_is_a_page_and_nothing_else(shell: Shell, file: str, words: str) -> None:
    line = one_line(shell("report", "-o", file, code=2))
    assert words in line
    assert "a report is a web page" in line
    assert not (shell.folder / file).exists()


# ---- completion ----


def offered(shell: Shell, *words: str) -> list[str]:
    """Return the words that zsh gets for the last word."""
    env = {"_INTERLACE_COMPLETE": "zsh_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    lines = _completed(shell, env)
    return lines[1::3]


def _completed(shell: Shell, env: dict[str, str]) -> list[str]:
    shell.env = shell.env | env
    done = shell()
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "some"),
    [
        (["interlace", "che"], ["checkpoint"]),
        (["interlace", "checkpoint", "fe"], ["fetch"]),
        (["interlace", "run", "check"], ["checkpoint="]),
        (["interlace", "run", "engine.blo"], ["engine.block_size="]),
        (["interlace", "run", "checkpoint=smollm2-8"], ["checkpoint=smollm2-8bit"]),
        (["interlace", "plan", "checkpoint=smollm2-8bit,smollm2-4"], ["checkpoint=smollm2-8bit,smollm2-4bit"]),
        (["interlace", "run", "sweep=quick"], ["sweep=quickstart"]),
        (["interlace", "run", "engine=oll"], ["engine=ollama"]),
        (["interlace", "run", "--qu"], ["--quiet"]),
        (["interlace", "query", "spee"], ["speed"]),
        (["interlace", "engine", "show", "mtp"], ["mtp"]),
        (["interlace", "audit", "x"], []),
    ],
)
def test_tab_offers_groups_options_and_queries(shell: Shell, words: list[str], some: list[str]) -> None:
    found = offered(shell, *words)
    assert found[: len(some)] == some if some else found == []


def test_tab_offers_runs(shell: Shell) -> None:
    shell("run", *SIMULATED, "engine.effect=1.0,1.2", "design.rounds=6", "--quiet", "experiment=mine")
    (row,) = shell.ask("SELECT id FROM run")
    assert offered(shell, "interlace", "audit", "") == ["last", "mine", str(row["id"])]


def test_bash_completes_after_an_equal_sign(shell: Shell) -> None:
    env = {
        "_INTERLACE_COMPLETE": "bash_complete",
        "COMP_WORDS": "interlace run checkpoint = smollm2-8",
        "COMP_CWORD": "4",
    }
    assert _completed(shell, env) == ["plain,smollm2-8bit"]


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_the_shell_reads(shell: Shell, name: str) -> None:
    script = shell("completion", name).stdout
    assert "_INTERLACE_COMPLETE" in script
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not installed")
    done = subprocess.run([program, "-n"], input=script, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_bash_completes_a_typed_line(shell: Shell) -> None:
    """The whole way: the script, the function that it defines, the command that it calls."""
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    line = (
        'eval "$(interlace completion bash)"; COMP_WORDS=(interlace run sweep = quick); COMP_CWORD=4;'
        ' _interlace_completion interlace; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # where the command is installed
    env = os.environ | shell.env | {"PATH": path}
    done = subprocess.run(["bash", "-c", line], text=True, capture_output=True, env=env, check=False)
    assert done.stdout.split() == ["quickstart"], done.stderr
