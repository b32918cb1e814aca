"""A worker's own interpreter and environment: what is installed there, and whether what was asked of it holds."""

import ctypes
import importlib.util
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution, distributions, version
from pathlib import Path

from workers.errors import EngineError, FaultKind
from workers.interpreter import hidden_pth_files, no_mlx_for, site_folders, unhide

PACKAGES_MARK = "INTERLACE_PACKAGES"  # further distributions whose versions a worker records, separated by commas
VERSION_MARK = "INTERLACE_VERSION"  # the parent's, for an interpreter that has no interlace installed
# Everything whose version can change a speed, or what is recorded of it.
DISTRIBUTIONS = (
    "interlace",
    "mlx",
    "mlx-metal",
    "mlx-cpu",
    "mlx-cuda-12",
    "mlx-cuda-13",
    "mlx-lm",
    "mlx-vlm",
    "mlx-dspark",
    "dflash",
    "dflash-mlx",
    "mtplx",
    "omlx",
    "transformers",
    "tokenizers",
    "safetensors",
    "numpy",
    "httpx",
    "psutil",
)
# What a worker of another environment needs beside its engine's packages: `workers` itself is run from where it lies.
WORKER_PACKAGES = ("httpx", "huggingface-hub", "numpy", "platformdirs", "psutil", "safetensors", "tokenizers")
# By module: the distribution that has it, and interlace's extra that brings it (empty: it comes with interlace).
_PACKAGES = {
    "mlx": ("mlx", ""),
    "mlx_lm": ("mlx-lm", ""),
    "mlx_dspark": ("mlx-dspark", "lookup"),
    "dflash_mlx": ("dflash-mlx", "dflash"),
    "dflash": ("dflash", ""),
    "mtplx": ("mtplx", ""),
}
# Their pins exclude interlace's own packages: what to install into an environment of its own.
_ELSEWHERE = {"dflash": "mlx-lm 'dflash[local]'", "mtplx": "mlx-lm mtplx"}


# One version of mlx-metal has several builds, with different kernels: only the one for macOS 26 has those of the M5's
# neural accelerators, and a Python that reports macOS 26 as 16.0 gets an older one.
METAL_BUILD = "mlx-metal build"


def recorded() -> tuple[str, ...]:
    """The distributions whose versions are recorded: those of `DISTRIBUTIONS` and those that the run asks for."""
    asked = os.environ.get(PACKAGES_MARK, "").split(",")
    return tuple(dict.fromkeys([*DISTRIBUTIONS, *(name for name in asked if name)]))


def versions() -> dict[str, str | None]:
    """The installed versions, by distribution; None: not installed. On a Mac also the build of MLX's Metal kernels."""
    found = {name: installed(name) for name in recorded()}
    return found if found["mlx-metal"] is None else found | {METAL_BUILD: wheel_tag("mlx-metal")}


def wheel_tag(name: str) -> str | None:
    """The tag of a package's wheel, such as `py3-none-macosx_26_0_arm64`; None: not installed, or no wheel."""
    try:
        text = distribution(name).read_text("WHEEL") or ""
    except PackageNotFoundError:
        return None
    return next((line.removeprefix("Tag: ").strip() for line in text.splitlines() if line.startswith("Tag: ")), None)


def versions_by_files(python: Path) -> dict[str, str]:
    """The installed versions of a virtual environment, read from its folders: nothing is run.

    Empty for one whose packages lie elsewhere.
    """
    environment = python.parent.parent
    if not (environment / "pyvenv.cfg").is_file():
        return {}
    folders = [str(folder) for folder in environment.glob("lib*/python3*/site-packages")]
    found = {name: next(iter(distributions(name=name, path=folders)), None) for name in DISTRIBUTIONS}
    return {name: each.version for name, each in found.items() if each is not None}


def installed(distribution: str) -> str | None:
    """A distribution's version in this interpreter's environment. interlace's is that of the code that runs."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return os.environ.get(VERSION_MARK) if distribution == "interlace" else None


@contextmanager
def explained_when_missing(engine: str) -> Iterator[None]:
    """Turn a missing package of an engine into one line with the command that installs it.

    Raises:
        EngineError: package_missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or str(error)).partition(".")[0]
        distribution, extra = _PACKAGES.get(module, (module, ""))
        raise EngineError(
            FaultKind.package_missing,
            f"engine {engine} needs {distribution}, which {sys.executable} does not have",
            remedy=_remedy(distribution, extra),
        ) from error


def _remedy(distribution: str, extra: str) -> str:
    """Return what makes the package importable: another interpreter, unhiding a file, or its installation."""
    if distribution.startswith("mlx") and (why := no_mlx_for(sys.platform, platform.machine(), translated=None)):
        return why
    if hidden := hidden_pth_files(site_folders()):
        return f"run: {unhide(str(hidden[0]))}, since Python skips {hidden[0].name}, which is hidden"
    if distribution in _ELSEWHERE and _has_interlace():
        made = f"uv venv ENV && uv pip install --python ENV/bin/python {_ELSEWHERE[distribution]}"
        return f"it does not fit interlace's own packages: run {made}, and set engine.python=ENV/bin/python"
    return f"run: {_install_command(distribution, extra)}"


def _install_command(distribution: str, extra: str) -> str:
    """The install command for this interpreter: its pip, or uv, whose environments come without pip."""
    wanted = f"'interlace[{extra}]'" if extra and _has_interlace() else distribution
    if importlib.util.find_spec("pip") is None:
        return f"uv pip install --python {sys.executable} {wanted}"
    return f"{sys.executable} -m pip install {wanted}"


def _has_interlace() -> bool:
    try:
        return bool(version("interlace"))
    except PackageNotFoundError:
        return False


def require_environment(wanted: Mapping[str, str]) -> tuple[str, ...]:
    """Notes on the arm's own environment variables, once they are known to hold in this process.

    Raises:
        EngineError: a variable has another value here, or a library of LD_PRELOAD was not loaded: the dynamic linker
            only prints a line about that and goes on.
    """
    if not wanted:
        return ()
    for name, value in wanted.items():
        if os.environ.get(name) != value:
            raise EngineError(
                FaultKind.unsupported_setting,
                f"engine.environment.{name}={value} is {os.environ.get(name)!r} in the worker",
                remedy="leave it to interlace, or choose another name",
            )
    if sys.platform == "linux":
        _require_preloaded(wanted.get("LD_PRELOAD", ""))
    return ("environment: " + ", ".join(f"{name}={value}" for name, value in wanted.items()),)


def _require_preloaded(libraries: str) -> None:
    """Check that each library is already in this process, without loading it."""
    for library in libraries.replace(":", " ").split():
        try:
            ctypes.CDLL(library, mode=os.RTLD_NOLOAD)
        except OSError as error:
            raise EngineError(
                FaultKind.unsupported_setting,
                f"engine.environment.LD_PRELOAD: {library} was not loaded",
                remedy="install it (OpenBLAS on Debian: apt-get install libopenblas0-pthread), or leave it out",
            ) from error
