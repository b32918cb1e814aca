"""The Python that runs this: who built it, for which processor, and what macOS hides from it.

Standard library only: workers import it in environments of other packages.
"""

import platform
import re
import site
import stat
import sys
import sysconfig
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

# By the folder that holds the interpreter's library, the first that fits. A virtual environment has its maker's.
_ORIGINS = (
    ("Xcode", r"/(?:Xcode[^/]*\.app|CommandLineTools)/.*Python3?\.framework"),
    ("Homebrew", r"/(?:opt/homebrew|Cellar|linuxbrew)/"),
    ("MacPorts", r"^/opt/local/"),
    ("python.org", r"^/Library/Frameworks/PythonT?\.framework/"),
    ("uv", r"/(?:cpython|pypy)-[\d.]+[^/]*-(?:macos|linux)-[^/]+"),
    ("pyenv", r"/\.?pyenv/versions/"),
    ("conda", r"/[^/]*(?:conda|miniforge|mambaforge)[^/]*(?:/|$)"),
    ("setup-python", r"/hostedtoolcache/Python/"),
    ("Nix", r"^/nix/store/"),
    ("the system", r"^/usr(?:/local)?$"),
)
# What helps where MLX has no build for the interpreter's processor.
ARM_PYTHON = "install a Python for arm64, such as `uv python install 3.13`, and interlace with it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """The running Python."""

    version: str
    origin: str  # Homebrew, python.org, uv, Xcode, ...; unknown
    machine: str  # the processor that it was built for: arm64, x86_64
    executable: str
    translated: bool | None  # under Rosetta; None: not known
    hidden_pth: tuple[str, ...] = ()  # .pth files that macOS hides and Python therefore skips

    @property
    def problem(self) -> str | None:
        """Why no model can run in it, with the remedy; None: nothing is known against it."""
        return no_mlx_for(sys.platform, self.machine, translated=self.translated)


def read_interpreter(*, translated: bool | None) -> Interpreter:
    """This interpreter.

    Args:
        translated: see `workers.machine.host.is_translated`.
    """
    return Interpreter(
        version=platform.python_version(),
        origin=origin_of(sys.base_prefix),
        machine=platform.machine(),
        executable=sys.executable,
        translated=translated,
        hidden_pth=tuple(str(path) for path in hidden_pth_files(site_folders())),
    )


def origin_of(base_prefix: str) -> str:
    """Return the builder of the interpreter with this `sys.base_prefix`."""
    return next((name for name, pattern in _ORIGINS if re.search(pattern, base_prefix)), "unknown")


def no_mlx_for(platform_name: str, machine: str, *, translated: bool | None) -> str | None:
    """Why MLX has no build for an interpreter on a Mac, with the remedy; None: it has one, or it is no Mac's."""
    if platform_name != "darwin" or machine != "x86_64":
        return None
    if translated:
        return f"this Python is built for Intel and runs under Rosetta, where MLX cannot run: {ARM_PYTHON}"
    return "this Python is built for Intel, and MLX needs Apple silicon" + (
        "" if translated is False else f"; on such a Mac, {ARM_PYTHON}"
    )


def site_folders() -> list[Path]:
    """The folders in which this interpreter looks for .pth files."""
    found = [sysconfig.get_path("purelib"), *site.getsitepackages()]
    return [Path(folder) for folder in dict.fromkeys(found)]


def _flags(path: Path) -> int:
    return int(getattr(path.stat(), "st_flags", 0))  # only macOS and BSD have flags


def hidden_pth_files(folders: Iterable[Path], *, flags: Callable[[Path], int] = _flags) -> list[Path]:
    """The .pth files that are hidden: what they name cannot be imported, an editable install among it.

    macOS hides what lies in folders with a leading dot in Documents and on the Desktop, and Python skips hidden ones.
    """
    found = []
    for folder in folders:
        try:
            found += [path for path in sorted(folder.glob("*.pth")) if flags(path) & stat.UF_HIDDEN]
        except OSError:
            continue
    return found


def unhide(path: str) -> str:
    """The command that shows the folder of a hidden file again."""
    return f"chflags -R nohidden {Path(path).parent}"
