"""uv, or pip where there is no uv: what resolves and installs packages. No index is named: the user's own applies.

Both take requirements as lines of a file, never as arguments, and report what they chose; what they say of a failure is
classified here into what only another request can mend and what may work later.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from packaging.markers import Environment, default_environment
from packaging.pylock import Pylock
from packaging.tags import Tag, compatible_tags, cpython_tags, sys_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from orchestrator.errors import InputError, RefusedError
from orchestrator.plan import LockedPackage

UV_VARIABLE = "INTERLACE_UV"  # a program; empty: pip even where uv is there
_MESSAGE_CHARACTERS = 600
_UNRESOLVABLE = re.compile(
    r"No solution found|unsatisfiable|not found in the package registry|No matching distribution|ResolutionImpossible"
    r"|conflicting dependencies|Could not find a version|Invalid requirement|is not a valid|Distribution not found"
    r"|does not appear to be a Python project|has no wheels|No interpreter found|requires a different Python"
)
# Said of an index that does not answer: uv's and pip's words.
_UNREACHABLE = re.compile(
    r"error sending request|Failed to fetch|Connection refused|[Cc]onnection (broken|error|reset)|timed out|dns error"
    r"|Name or service|Temporary failure|NewConnectionError|Network is unreachable|network was disabled|offline"
    r"|Could not connect|Could not resolve host|unable to access"
)
_FULL = re.compile(r"No space left on device|os error 28|Disk quota exceeded")
_ADDRESS = re.compile(r"\bhttps?://[^\s`'\"<>)]+")


class UnavailableError(RefusedError):
    """The index does not answer or the disk is full: nothing is wrong with what was asked for."""


class Tool(Protocol):
    """A tool that resolves and installs."""

    @property
    def name(self) -> str:
        """As shown to people."""
        ...

    def resolve(self, lines: Sequence[str], keep: Mapping[str, str], python: str) -> list[LockedPackage]:
        """Choose a version of everything that these requirements need.

        Args:
            keep: the version of each package that stays if it can, by normalised name.
            python: the interpreter that the environment is for.

        Raises:
            InputError: nothing fulfils them. RefusedError: no network, a full disk, a build that failed.
        """
        ...

    def find_python(self, wanted: str | None) -> str:
        """The interpreter for a wanted version; this one's for None.

        Raises:
            InputError: there is none.
        """
        ...

    def create(self, folder: Path, python: str) -> None:
        """An empty environment in an empty folder."""
        ...

    def install(self, folder: Path, packages: Sequence[LockedPackage]) -> None:
        """Put exactly these packages into the environment, each checked against its hash.

        Raises:
            RefusedError: one is gone, differs from what was locked, or does not build here.
        """
        ...


def tool() -> Tool:
    """uv if it is there, otherwise pip."""
    chosen = os.environ.get(UV_VARIABLE)
    found = shutil.which("uv" if chosen is None else chosen) if chosen != "" else None
    return Pip() if found is None else Uv(found)


@dataclass(frozen=True, slots=True)
class Uv:
    """Resolves, and installs by hard links or clones from its own cache where the disk allows."""

    program: str
    name: str = "uv"

    def resolve(self, lines: Sequence[str], keep: Mapping[str, str], python: str) -> list[LockedPackage]:
        with _scratch() as folder:
            asked, pins, lock = (folder / each for each in ("asked.in", "pins.txt", "pylock.toml"))
            asked.write_text("\n".join(lines) + "\n", encoding="utf-8")
            # An output file that is there holds what uv prefers: nothing moves that need not.
            pins.write_text("".join(f"{name}=={version}\n" for name, version in keep.items()), encoding="utf-8")
            common = [self.program, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python", python]
            run([*common, str(asked), "-o", str(pins)], what="resolve")
            run([*common, "--no-deps", "--format", "pylock.toml", str(pins), "-o", str(lock)], what="resolve")
            return list(_of_pylock(tomllib.loads(lock.read_text(encoding="utf-8")), python))

    def find_python(self, wanted: str | None) -> str:
        if wanted is None:
            return sys.executable
        return run([self.program, "python", "find", "--no-project", wanted], what="find Python").strip()

    def create(self, folder: Path, python: str) -> None:
        run([self.program, "venv", "--quiet", "--no-project", "--python", python, str(folder)], what="create")

    def install(self, folder: Path, packages: Sequence[LockedPackage]) -> None:
        python = folder / "bin" / "python"
        common = [self.program, "pip", "install", "--quiet", "--no-deps", "--python", str(python)]
        for lines, options in _installed_by(packages):
            # A source tree's files may change without uv's cache noticing.
            fresh = ["--refresh"] if options == () else []
            with _lines(lines) as file:
                run([*common, *options, *fresh, "-r", str(file)], what="install")


@dataclass(frozen=True, slots=True)
class Pip:
    """pip of this interpreter, else of a virtual environment made for it."""

    name: str = "pip"

    def resolve(self, lines: Sequence[str], keep: Mapping[str, str], python: str) -> list[LockedPackage]:
        try:
            return self._report(lines, keep, python)
        except InputError:
            # pip knows no preferences but for what is installed, which it keeps where it can.
            moved = {each.name: each.version for each in self._report(lines, {}, sys.executable, over_installed=True)}
            wanted = {name: version for name, version in (dict(keep) | moved).items() if version is not None}
            return self._report(lines, wanted, python)

    def _report(
        self, lines: Sequence[str], keep: Mapping[str, str], python: str, *, over_installed: bool = False
    ) -> list[LockedPackage]:
        own = {canonicalize_name(re.split(r"[\s@=<>!~\[;]", line, maxsplit=1)[0]) for line in lines if "@" in line}
        with _scratch() as folder, _lines(lines) as asked:
            kept, report = folder / "keep.txt", folder / "report.json"
            pins = (f"{name}=={version}\n" for name, version in keep.items() if name not in own)
            kept.write_text("".join(pins), encoding="utf-8")
            options = ["--dry-run", "--report", str(report), "-r", str(asked), "-c", str(kept)]
            options += [] if over_installed else ["--ignore-installed"]
            run([*self._pip(python), "install", "--retries", "1", "-q", *options], what="resolve")
            chosen = json.loads(report.read_text(encoding="utf-8"))["install"]
        return [_of_report(each) for each in chosen]

    def find_python(self, wanted: str | None) -> str:
        if wanted is None:
            return sys.executable
        name = wanted if os.sep in wanted else f"python{'.'.join(wanted.split('.')[:2])}"
        if (found := shutil.which(name)) is None:
            raise InputError(f"environment.python={wanted}: there is no {name}; install it, or name its path")
        return found

    def create(self, folder: Path, python: str) -> None:
        run([python, "-m", "venv", "--without-pip", str(folder)], what="create")

    def install(self, folder: Path, packages: Sequence[LockedPackage]) -> None:
        command = [*self._pip(str(folder / "bin" / "python")), "install", "-q", "--no-deps", "--no-compile"]
        for lines, options in _installed_by(packages):
            with _lines(lines) as file:
                run([*command, *options, "-r", str(file)], what="install")

    def _pip(self, python: str) -> list[str]:
        """The command of this interpreter's pip, working on another one."""
        return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--python", python]


# ---- what they chose ----


def _of_pylock(body: Mapping[str, Any], python: str) -> Iterator[LockedPackage]:
    lock = Pylock.from_dict(body)
    environment, tags = _target(python)
    for package, chosen in lock.select(environment=environment, tags=tags):
        path, url = (getattr(chosen, each, None) for each in ("path", "url"))
        version = None if package.version is None else str(package.version)
        common: dict[str, Any] = {"name": canonicalize_name(package.name), "version": version}
        if package.directory is not None:
            yield LockedPackage(**common, source=str(path))
        elif package.vcs is not None:
            yield LockedPackage(**common, source=f"{package.vcs.type}+{url or path}@{package.vcs.commit_id}")
        else:
            file = str(getattr(chosen, "name", None) or Path(str(url or path).split("#")[0]).name)
            source = _direct(path, url) if package.archive is not None else None
            sha256 = (getattr(chosen, "hashes", None) or {}).get("sha256")
            yield LockedPackage(**common, file=file, sha256=sha256, tag=wheel_tag(file), source=source)


def _of_report(entry: Mapping[str, Any]) -> LockedPackage:
    metadata, info = entry["metadata"], entry["download_info"]
    common: dict[str, Any] = {"name": canonicalize_name(metadata["name"]), "version": str(metadata["version"])}
    url = str(info["url"])
    if "vcs_info" in info:
        return LockedPackage(**common, source=f"{info['vcs_info']['vcs']}+{url}@{info['vcs_info']['commit_id']}")
    if "dir_info" in info:
        return LockedPackage(**common, source=_direct(None, url))
    file = Path(url.split("#")[0]).name
    sha256 = info.get("archive_info", {}).get("hashes", {}).get("sha256")
    source = _direct(None, url) if entry.get("is_direct") else None
    return LockedPackage(**common, file=file, sha256=sha256, tag=wheel_tag(file), source=source)


def _direct(path: str | None, url: str | None) -> str:
    """Return the place of a file that was named by it: a path, or an address."""
    if path is not None or url is None:
        return str(path)
    return unquote(urlsplit(url).path) if url.startswith("file:") else url


def wheel_tag(file: str) -> str | None:
    """The compatibility tag of a wheel's name, such as cp311-cp311-macosx_14_0_arm64; None: no wheel."""
    try:
        tags = parse_wheel_filename(file)[3]
    except InvalidWheelFilename:
        return None
    return None if not tags else "-".join(file.removesuffix(".whl").split("-")[-3:])


def _target(python: str) -> tuple[Environment, Sequence[Tag]]:
    """The markers and wheel tags of an interpreter."""
    environment = default_environment()
    if Path(python) == Path(sys.executable):
        return environment, list(sys_tags())
    full = python_version(python)
    major, minor = (int(each) for each in full.split(".")[:2])
    environment |= {"python_full_version": full, "python_version": f"{major}.{minor}"}
    return environment, [*cpython_tags((major, minor)), *compatible_tags((major, minor))]


def python_version(python: str) -> str:
    """An interpreter's version in full.

    Raises:
        RefusedError: it does not run.
    """
    return run([python, "-I", "-c", "import platform; print(platform.python_version())"], what="run Python").strip()


# ---- their input ----


def _installed_by(packages: Sequence[LockedPackage]) -> Iterator[tuple[list[str], tuple[str, ...]]]:
    """(lines, options) of each installation: files checked against their hashes, then what is built from source."""
    hashed = [each for each in packages if each.file is not None and each.sha256 is not None]
    built = [each for each in packages if each not in hashed]
    if hashed:
        yield [f"{_line(each)} --hash=sha256:{each.sha256}" for each in hashed], ("--require-hashes",)
    if built:
        yield [_line(each) for each in built], ()


def _line(package: LockedPackage) -> str:
    if package.source is None:
        return f"{package.name}=={package.version}"
    place = Path(package.source).as_uri() if package.source.startswith("/") else package.source
    return f"{package.name} @ {place}"


# ---- running them ----


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="interlace-") as folder:
        yield Path(folder)


@contextlib.contextmanager
def _lines(lines: Sequence[str]) -> Iterator[Path]:
    with _scratch() as folder:
        file = folder / "requirements.txt"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        yield file


def run(command: Sequence[str], *, what: str) -> str:
    """Run a tool and return what it printed.

    Raises:
        InputError: nothing fulfils the request. RefusedError: anything else that failed.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", check=False, stdin=subprocess.DEVNULL
        )
    except OSError as error:
        raise RefusedError(f"cannot {what} an environment: {command[0]}: {error.strerror or error}") from error
    if done.returncode == 0:
        return done.stdout
    raise failure(done.stderr or done.stdout, what=what)


def failure(said: str, *, what: str) -> InputError | RefusedError:
    """The error for what uv or pip said of a failure, without any index's address. Pure."""
    text = " ".join(_ADDRESS.sub("the package index", line.strip()) for line in said.splitlines() if line.strip())
    text = text.removeprefix("error: ").removeprefix("ERROR: ")
    shown = text if len(text) <= _MESSAGE_CHARACTERS else f"{text[:_MESSAGE_CHARACTERS]} ..."
    if _FULL.search(said):
        return UnavailableError(
            f"cannot {what} an environment, the disk is full: {shown}; `interlace environment list`"
        )
    if _UNREACHABLE.search(said):
        return UnavailableError(f"cannot {what} an environment, the package index does not answer: {shown}")
    if _UNRESOLVABLE.search(said):
        return InputError(f"cannot {what} an environment: {shown}")
    return RefusedError(f"cannot {what} an environment: {shown}")
