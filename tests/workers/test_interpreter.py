"""The Python that runs this: its maker, Rosetta, and .pth files that macOS hides."""

import platform
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.workers.machines import Recorded
from workers import environment, interpreter
from workers.environment import explained_when_missing
from workers.errors import EngineError
from workers.interpreter import hidden_pth_files, no_mlx_for, origin_of, read_interpreter
from workers.machine.host import is_translated

TRANSLATED = "sysctl -n sysctl.proc_translated"


@pytest.mark.parametrize(
    ("base_prefix", "origin"),
    [
        ("/opt/homebrew/opt/python@3.14/Frameworks/Python.framework/Versions/3.14", "Homebrew"),
        ("/opt/homebrew/Cellar/python@3.13/3.13.9/Frameworks/Python.framework/Versions/3.13", "Homebrew"),
        ("/usr/local/Cellar/python@3.12/3.12.1/Frameworks/Python.framework/Versions/3.12", "Homebrew"),  # for Intel
        ("/Library/Frameworks/Python.framework/Versions/3.14", "python.org"),
        ("/Library/Frameworks/PythonT.framework/Versions/3.14", "python.org"),  # without the GIL
        ("/Users/ada/.local/share/uv/python/cpython-3.13.1-macos-aarch64-none", "uv"),
        ("/Applications/Xcode.app/Contents/Developer/Library/Frameworks/Python3.framework/Versions/3.9", "Xcode"),
        ("/Library/Developer/CommandLineTools/Library/Frameworks/Python3.framework/Versions/3.9", "Xcode"),
        ("/Users/ada/.pyenv/versions/3.12.4", "pyenv"),
        ("/Users/ada/miniforge3/envs/mlx", "conda"),
        ("/Users/runner/hostedtoolcache/Python/3.13.1/arm64", "setup-python"),
        ("/opt/local/Library/Frameworks/Python.framework/Versions/3.13", "MacPorts"),
        ("/usr", "the system"),
        ("/Users/ada/built/here", "unknown"),
    ],
)
def test_who_built_it(base_prefix: str, origin: str) -> None:
    assert origin_of(base_prefix) == origin


def test_this_interpreter() -> None:
    found = read_interpreter(translated=False)
    assert (found.version, found.machine) == (platform.python_version(), platform.machine())
    assert found.problem is None or sys.platform == "darwin"


@pytest.mark.parametrize(
    ("answers", "translated"), [({TRANSLATED: "1\n"}, True), ({TRANSLATED: "0\n"}, False), ({}, None)]
)
def test_rosetta_is_what_the_kernel_says(answers: dict[str, str], translated: bool | None) -> None:
    assert is_translated(Recorded(platform="darwin", commands=answers)) is translated
    assert is_translated(Recorded(platform="linux")) is False


@pytest.mark.parametrize(
    ("system", "machine", "translated", "says"),
    [
        ("darwin", "x86_64", True, "runs under Rosetta, where MLX cannot run: install a Python for arm64"),
        ("darwin", "x86_64", False, "MLX needs Apple silicon"),
        ("darwin", "x86_64", None, "MLX needs Apple silicon; on such a Mac, install a Python for arm64"),
        ("darwin", "arm64", False, None),
        ("linux", "x86_64", False, None),
    ],
)
def test_a_python_for_intel_cannot_run_mlx(
    system: str, machine: str, translated: bool | None, says: str | None
) -> None:
    found = no_mlx_for(system, machine, translated=translated)
    assert (found is None) == (says is None)
    assert (says or "") in (found or "")


def test_an_engine_that_misses_mlx_under_rosetta_is_not_told_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment.sys, "platform", "darwin")
    monkeypatch.setattr(environment.platform, "machine", lambda: "x86_64")
    with pytest.raises(EngineError) as caught, explained_when_missing("mlx_lm"):
        raise ModuleNotFoundError("No module named 'mlx_lm'", name="mlx_lm")
    assert "Python for arm64" in str(caught.value)
    assert "pip install" not in str(caught.value)


@pytest.mark.parametrize(("module", "packages"), [("mtplx", "mlx-lm mtplx"), ("dflash", "mlx-lm 'dflash[local]'")])
def test_a_package_that_does_not_fit_ours_gets_an_environment_of_its_own(module: str, packages: str) -> None:
    with pytest.raises(EngineError) as caught, explained_when_missing(module):
        raise ModuleNotFoundError(f"No module named '{module}'", name=module)
    assert f"uv pip install --python ENV/bin/python {packages}, and set engine.python=ENV/bin/python" in str(
        caught.value
    )


def test_the_extras_that_are_offered_exist() -> None:
    """And nothing else is offered: an extra that no resolver can satisfy beside our own packages is none."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    offered = {extra for _, extra in environment._PACKAGES.values() if extra}  # noqa: SLF001
    assert offered <= project["optional-dependencies"].keys()
    assert "mtp" not in project["optional-dependencies"]


def test_hidden_files_are_found_and_what_they_name_is_missed_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_editable.pth", "plain.pth"):
        (tmp_path / name).write_text("/somewhere\n")

    def flags(path: Path) -> int:
        return stat.UF_HIDDEN if path.name.startswith("_") else 0

    assert [path.name for path in hidden_pth_files([tmp_path, tmp_path / "absent"], flags=flags)] == ["_editable.pth"]
    assert hidden_pth_files([tmp_path]) == []
    monkeypatch.setattr(environment, "hidden_pth_files", lambda folders: [tmp_path / "_editable.pth"])
    with pytest.raises(EngineError) as caught, explained_when_missing("dflash"):
        raise ModuleNotFoundError("No module named 'dflash'", name="dflash")
    assert f"chflags -R nohidden {tmp_path}, since Python skips _editable.pth" in str(caught.value)


def test_an_environment_of_other_packages_needs_none_of_ours_for_it() -> None:
    """A worker in it imports `workers.environment`, which needs no psutil."""
    code = "import sys; sys.modules['psutil'] = None; import workers.environment"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_all_makers_have_a_name_of_their_own() -> None:
    names = [name for name, _ in interpreter._ORIGINS]  # noqa: SLF001
    assert len(set(names)) == len(names)
