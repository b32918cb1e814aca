"""`interlace start`: the questions on a terminal, the options instead of them, the command that is kept."""

import os
import pty
import shlex
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator.configuration.first_plan import NEEDS, QUESTIONS, Answers, overrides_for
from orchestrator.errors import InputError
from tests.orchestrator.shells import INTERLACE, Shell, one_line
from workers.weights.dummies import SHAPES, save


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("orchestrator.commands.guided_start.answering", lambda urls: {})
    save(SHAPES["tiny"], tmp_path / "smollm2-8bit")
    save(SHAPES["tiny"], tmp_path / "my tiny")
    return Shell(tmp_path)


FULL = Answers(
    checkpoints=("smollm2-8bit", "./my tiny"),
    engines=("mlx_lm", "mlx_lm_server"),
    setting="engine.prefill_step_size=512,2048",
    pythons=("/opt/other/bin/python",),
    model="qwen3:8b",
)


def test_every_question_has_a_line_and_names_what_it_lacks() -> None:
    assert set(NEEDS) == set(QUESTIONS)
    for question in QUESTIONS:
        assert overrides_for(question, FULL, time="quick")
        if NEEDS[question]:
            with pytest.raises(InputError, match=f"needs --{NEEDS[question][0][0]}"):
                overrides_for(question, Answers(), time="quick")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            ["--question", "bits", "--checkpoint", "smollm2-8bit", "--checkpoint", "./my tiny"],
            "interlace run checkpoint=smollm2-8bit,'./my tiny' sampling.ignore_eos=true workload=quick design=quick",
        ),
        (
            ["--question", "engine", "--checkpoint", "smollm2-8bit", "--engine", "mlx_lm", "--engine", "mlx_lm_server"],
            "interlace run checkpoint=smollm2-8bit engine=mlx_lm,mlx_lm_server workload=quick design=quick",
        ),
        (
            ["--question", "servers", "--engine", "ollama", "--engine", "lm_studio", "--model", "qwen3:8b"],
            "interlace run engine=ollama,lm_studio engine.model='qwen3:8b' workload=quick design=quick",
        ),
        (
            ["--question", "version", "--checkpoint", "smollm2-8bit", "--environment", "mlx-lm==0.31.3"],
            "interlace run checkpoint=smollm2-8bit environment=current,'mlx-lm==0.31.3' workload=quick design=quick",
        ),
        (["--question", "quickstart"], "interlace run sweep=quickstart"),
    ],
)
def test_options_answer_and_the_command_plans(shell: Shell, options: list[str], line: str) -> None:
    if "quickstart" in options:
        save(SHAPES["tiny"], shell.folder / "smollm2-4bit")
    said = shell("start", *options).stdout
    command = shlex.split(said.splitlines()[-1])
    assert command == [word for word in shlex.split(line.replace("'", '"\'"')) if word] or command == shlex.split(
        line.replace("'./my tiny'", "\"'./my tiny'\"")
        .replace("'qwen3:8b'", "\"'qwen3:8b'\"")
        .replace("'mlx-lm==0.31.3'", "\"'mlx-lm==0.31.3'\"")
    )
    assert "memory" in said
    assert "smollm2-8bit" in said
    shell("plan", *command[2:])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "add --question bits|draft"),
        (["--question", "bitz"], "did you mean bits?"),
        (["--question", "bits", "--checkpoint", "smollm2-8bit"], "--checkpoint at least 2 times"),
        (["--question", "draft", "--checkpoint", "smolm2-8bit"], "did you mean smollm2-8bit?"),
        (["--question", "quickstart", "--save", "/"], "DIR/NAME"),
    ],
)
def test_without_a_terminal_what_is_open_is_named(shell: Shell, options: Sequence[str], words: str) -> None:
    save(SHAPES["tiny"], shell.folder / "smollm2-4bit")
    assert words in one_line(shell("start", *options, code=2))


def test_a_plan_is_kept_as_a_sweep(shell: Shell) -> None:
    options = ["--question", "bits", "--checkpoint", "smollm2-8bit", "--checkpoint", "./my tiny", "--save", "lab/mine"]
    said = shell("start", *options).stdout
    assert said.splitlines()[-1].strip() == "interlace run --config-dir lab sweep=mine"
    planned = shell("plan", "--config-dir", "lab", "sweep=mine").stdout
    assert "my tiny" in planned
    assert "is there already" in one_line(shell("start", *options, code=2))
    (shell.folder / "own" / "sweep").mkdir(parents=True)
    other = one_line(shell("start", *options[:-1], "lab/other", "--config-dir", "own", code=2))
    assert "with --config-dir own write own/other" in other


@pytest.mark.slow
def test_on_a_terminal_it_asks(shell: Shell) -> None:
    """A wrong answer is asked for again; a number or a name chooses."""
    typed = b"9\n1\nsmollm2-8bit\nsmollm2-8bit,./my tiny\nquick\nlab/mine\n"
    said = _conversation(shell, ["start"], typed)
    assert "(quickstart)" in said
    assert "9: valid: bits" in said
    assert "at least 2 are needed" in said
    assert "interlace run --config-dir lab sweep=mine" in said
    assert (shell.folder / "lab" / "sweep" / "mine.yaml").is_file()


def _conversation(shell: Shell, arguments: Sequence[str], typed: bytes) -> str:
    """Return what a command shows on a terminal on which this is typed."""
    master, slave = pty.openpty()
    env = shell.env | {"HF_HUB_CACHE": os.environ["HF_HUB_CACHE"], "TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen(
        [*INTERLACE, *arguments], stdin=slave, stdout=slave, stderr=slave, env=env, cwd=shell.folder
    )
    os.close(slave)
    os.write(master, typed)
    shown = b""
    with suppress(OSError):  # the end of a terminal whose last writer is gone
        while piece := os.read(master, 65536):
            shown += piece
    os.close(master)
    assert process.wait(60) == 0, shown.decode()
    return shown.decode()
