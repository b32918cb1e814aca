"""The versions in a server's own environment, which made its figures; the worker's own versions did not.

Asked in this order: the interpreter that the launch command leads to; the server's own report; the process
behind its port, by the libraries that it has loaded. What none of them states is unknown, with the reason.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import distributions
from pathlib import Path

import psutil

from workers.environment import METAL_BUILD, recorded
from workers.protocol import Served

_OTHERS = ("flyto-mlx", "vllm", "sglang")  # servers that run models and are no dependency of any engine
_TIMEOUT_S = 60.0
_SCRIPT_BYTES = 4096
_MOST_SCRIPTS = 6  # one that starts another, and so on
# mlx-lm's, MLX's, then the platform and the architecture.
_MLX_LM_FINGERPRINT = re.compile(r"(\d+\.\d+[\w.]*)-(\d+\.\d+[\w.]*)-(?:macOS|Darwin|Linux|Windows)")
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*(?:\.exe)?$")
# What a shell script starts: `exec PROGRAM`, also of the scripts that installers write for long paths.
_EXEC = re.compile(r"""(?:^|\s)'*exec'*\s+(?:-\S+\s+)*["']*([^\s"'$]+)""", re.MULTILINE)
_MLX_LIBRARY = re.compile(r"(?P<site>.+)/mlx/(?:lib/libmlx[^/]*|core\.[^/]*\.so)$")
_CODE = """
import importlib.metadata as m, json, platform, sys
def version(name):
    try: return m.version(name)
    except m.PackageNotFoundError: return None
found = {name: version(name) for name in sys.argv[2:]}
if found.get("mlx-metal"):
    lines = (m.distribution("mlx-metal").read_text("WHEEL") or "").splitlines()
    found[sys.argv[1]] = next((line[5:].strip() for line in lines if line.startswith("Tag: ")), None)
print(json.dumps([platform.python_version(), found]))
"""


def of_command(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Served:
    """The packages of the environment that a command starts in, by its interpreter. MLX itself is not imported.

    Args:
        environment: added to this process's own, as for the server.
    """
    merged = {**os.environ, **(environment or {})}
    python = interpreter_of(command, path=merged.get("PATH"))
    if python is None:
        return unknown(f"{command[0]} leads to no Python interpreter that could be asked")
    try:
        done = subprocess.run(
            [python, "-c", _CODE, METAL_BUILD, *recorded(), *_OTHERS],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
            env=merged | {"PYTHONSAFEPATH": "1"},
        )
        version, found = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        return unknown(f"{python} does not list its packages: {' '.join(str(error).split())[:200]}")
    return Served(python=str(version), versions=dict(found), source=f"interpreter {python}")


def of_answer(response: Mapping[str, object]) -> Served | None:
    """The versions that an answer states; None if it states none."""
    stated = _MLX_LM_FINGERPRINT.match(str(response.get("system_fingerprint", "")))
    if stated is None:
        return None
    return Served(versions={"mlx-lm": stated[1], "mlx": stated[2]}, source="system_fingerprint")


def of_processes(pids: Sequence[int]) -> Served:
    """The packages that the processes behind a port have loaded. Our own processes are left out: their versions are
    ours."""
    if not pids:
        return unknown("the server's process is not visible from here")
    if set(pids) & set(_own_line()):
        return unknown("the server runs in a process of this run's own")
    libraries = list(_libraries(pids))
    site = next((matched["site"] for name in libraries if (matched := _MLX_LIBRARY.match(name))), None)
    if site is not None:
        found: dict[str, str | None] = dict.fromkeys((*recorded(), *_OTHERS))
        found |= {each.name: each.version for each in distributions(path=[site]) if each.name in found}
        return Served(versions=found, source=f"libraries of process {pids[0]}: {site}")
    if not libraries:
        return unknown(f"the libraries of process {pids[0]} cannot be read")
    reason = f"process {pids[0]}, which serves, has loaded no MLX"
    return Served(versions={"mlx": None}, source=f"libraries of process {pids[0]}", reason=reason)


def unknown(reason: str) -> Served:
    """An empty result with the reason."""
    return Served(reason=reason)


def completed(served: Served, reported: Served | None) -> Served:
    """Add the versions that the server states itself; they outweigh those found in its environment."""
    if reported is None:
        return served
    source = " and ".join(part for part in (reported.source, served.source) if part)
    return replace(served, versions=served.versions | reported.versions, source=source, reason="")


def interpreter_of(command: Sequence[str], *, path: str | None = None) -> str | None:
    """The Python that a command finally runs: the command itself, or the interpreter of the scripts that it starts."""
    words = [word for word in command if not word.startswith("-") and "=" not in word]
    for word in words[:3]:  # the program, or what `env`, `nice` and the like start
        if (found := _followed(word, path)) is not None:
            return found
    return None


def _followed(program: str, path: str | None) -> str | None:
    for _ in range(_MOST_SCRIPTS):
        where = shutil.which(program, path=path)
        if where is None:
            return None
        if _PYTHON.search(Path(where).name) and not _is_script(Path(where)):
            return where
        following = _started_by(Path(where))
        if following is None or following == program:
            return None
        program = following
    return None


def _is_script(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def _started_by(script: Path) -> str | None:
    """The program that runs a script, or that a shell's script starts."""
    with script.open("rb") as file:
        text = file.read(_SCRIPT_BYTES).decode("utf-8", errors="replace")
    if not text.startswith("#!"):
        return None
    words = text[2:].splitlines()[0].split()
    named = [word for word in words if not word.startswith("-") and Path(word).name != "env"]
    if not named or _PYTHON.search(Path(named[0]).name):
        return named[0] if named else None
    found = _EXEC.search(text.partition("\n")[2])
    return None if found is None else found[1]


def _own_line() -> Iterator[int]:
    """This process and its ancestors."""
    try:
        own = psutil.Process()
        yield own.pid
        yield from (each.pid for each in own.parents())
    except psutil.Error:
        return


def _libraries(pids: Sequence[int]) -> Iterator[str]:
    """The files that these processes and their children have mapped: a server may compute in a child."""
    for pid in pids:
        try:
            process = psutil.Process(pid)
            family = [process, *process.children(recursive=True)]
        except psutil.Error:
            continue
        for each in family:
            yield from _mapped(each.pid)


def _mapped(pid: int) -> list[str]:
    if sys.platform == "linux":
        try:
            lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
        except OSError:
            return []
        return list(dict.fromkeys(line[line.index("/") :] for line in lines if "/" in line))
    try:
        done = subprocess.run(
            ["lsof", "-n", "-P", "-w", "-p", str(pid), "-Fn"], capture_output=True, text=True, timeout=10.0, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [line[1:] for line in done.stdout.splitlines() if line.startswith("n/")]
