"""The packages in a server's environment: by its interpreter, its own report, and the process behind its port."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import pytest

from workers.protocol import Served
from workers.supervision.served_versions import completed, interpreter_of, of_answer, of_command, of_processes


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    """An environment with another MLX and with the program of a server."""
    for name, number in (("mlx", "0.32.3"), ("mlx_lm", "0.31.3"), ("flyto_mlx", "0.7.0")):
        folder = tmp_path / "site" / f"{name}-{number}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {number}\n")
    return {"PYTHONPATH": str(tmp_path / "site")}


def script(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_the_interpreters_environment_is_asked_and_not_our_own(elsewhere: dict[str, str], tmp_path: Path) -> None:
    program = script(tmp_path / "omlx", f"#!{sys.executable}\nraise SystemExit('never run')\n")
    found = of_command([program, "serve", "--port", "1"], elsewhere)
    assert {name: found.versions[name] for name in ("mlx", "mlx-lm", "flyto-mlx")} == {
        "mlx": "0.32.3",
        "mlx-lm": "0.31.3",
        "flyto-mlx": "0.7.0",
    }
    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert (found.source, found.reason) == (f"interpreter {sys.executable}", "")


@pytest.mark.parametrize(
    "text",
    [
        "#!{python}\n",
        "#!/usr/bin/env {python}\n",
        "#!/bin/sh\n'''exec' '{python}' \"$0\" \"$@\"\n' '''\nimport sys\n",
        '#!/bin/bash\nset -e\nexec "{folder}/inner" "$@"\n',
        "#!/bin/sh\nexport A=1\nexec {folder}/inner serve\n",
    ],
)
def test_scripts_lead_to_their_interpreter(tmp_path: Path, text: str) -> None:
    script(tmp_path / "inner", f"#!{sys.executable}\n")
    program = script(tmp_path / "outer", text.format(python=sys.executable, folder=tmp_path))
    (tmp_path / "linked").symlink_to(program)
    for command in (
        [program, "serve"],
        [str(tmp_path / "linked")],
        ["env", "A=b", program, "serve"],
        [sys.executable, program],
    ):
        assert interpreter_of(command) == sys.executable


def test_what_is_no_python_program_leads_nowhere(tmp_path: Path) -> None:
    loops = script(tmp_path / "loops", "#!/bin/sh\nexec " + str(tmp_path / "loops") + "\n")
    silent = script(tmp_path / "silent", "#!/bin/sh\necho no\n")
    for program in (loops, silent, "/bin/ls", "no-such-program-here"):
        assert interpreter_of([program]) is None
        found = of_command([program])
        assert (found.versions, found.python) == ({}, None)
        assert "leads to no Python interpreter" in found.reason
    broken = script(tmp_path / "python3", "#!/bin/sh\nexit 3\n")
    assert of_command([broken]).reason


def test_mlx_lm_servers_words_outweigh_what_lies_in_its_environment() -> None:
    told = of_answer({"system_fingerprint": "0.31.3-0.32.3-macOS-26.0-arm64-arm-64bit-applegpu_g16s"})
    assert told is not None
    assert told.versions == {"mlx-lm": "0.31.3", "mlx": "0.32.3"}
    both = completed(Served(python="3.12.1", versions={"mlx": "0.32.4", "numpy": "2.0"}, source="interpreter x"), told)
    assert both.versions == {"mlx": "0.32.3", "mlx-lm": "0.31.3", "numpy": "2.0"}
    assert both.python == "3.12.1"
    for other in ({}, {"system_fingerprint": "fp_44709d6fcb"}, {"system_fingerprint": "b1234-abcdef"}):
        assert of_answer(other) is None


@contextmanager
def process(code: str) -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, "-c", f"{code}\nprint('there', flush=True)\nimport sys\nsys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as found:
        assert found.stdout is not None
        assert found.stdout.readline()
        yield found.pid
        found.communicate()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads what Linux tells")
def test_a_process_is_known_by_the_libraries_that_it_loaded() -> None:
    """Its interpreter may have an MLX that the server never imports."""
    with process("import mlx.core") as pid:
        found = of_processes([pid])
    assert (found.versions["mlx"], found.versions["mlx-lm"]) == (version("mlx"), version("mlx-lm"))
    assert found.reason == ""
    with process("pass") as pid:
        found = of_processes([pid])
    assert found.versions == {"mlx": None}
    assert "has loaded no MLX" in found.reason


def test_our_own_process_and_one_that_cannot_be_seen_show_nothing() -> None:
    for pids, words in (
        ([os.getpid()], "of this run's own"),
        ([os.getppid()], "of this run's own"),
        ([], "not visible"),
    ):
        found = of_processes(pids)
        assert found.versions == {}
        assert words in found.reason
