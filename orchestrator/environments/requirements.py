"""Read the packages that an environment names: what pip accepts, without options, in a form that a plan can hold."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from orchestrator.errors import InputError

MOST_LABELS = 2  # of more packages an arm's name would say too much
_OPERATORS = {"==": "", ">=": "from ", "<=": "to ", ">": "above ", "<": "below ", "~=": "like ", "!=": "not "}
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LONGEST_REVISION = 12
_PYTHON = re.compile(r"3\.\d+(\.\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """One package that an environment names."""

    text: str  # as the plan holds it: a requirement, an absolute path, or git+URL
    line: str  # as uv and pip read it
    name: str | None  # normalised; None: known only when the source tree or repository is built
    label: str  # for the arm's name: "mlx-lm 0.31.3"
    exact: bool  # the same thing whenever it is resolved


def read(text: str, *, folder: Path | None = None) -> Named:
    """Read one package.

    Args:
        folder: where a relative path starts; None: the working directory.

    Raises:
        InputError: an option of pip, a reference to a variable, no such file, or no requirement at all.
    """
    given = text.strip()
    if not given or given.startswith("-") or any(ord(letter) < ord(" ") for letter in given):
        raise _bad(text, "is not a package; options of pip are not taken")
    if "${" in given or "$(" in given:
        raise _bad(text, "refers to a variable, which is never looked up here; write the value")
    if given.startswith(("git+", "hg+", "svn+", "bzr+", "http://", "https://", "file://")):
        return _from_address(given)
    if _is_path(given):
        return _from_path(given, folder)
    return _from_index(given)


def is_package(text: str) -> bool:
    """Return whether a text on the override line means a package rather than an option's name."""
    return _is_path(text) or any(sign in text for sign in ("=", "<", ">", "~", "!", "@", "+", "://"))


def label(packages: Sequence[str], *, otherwise: str) -> str:
    """The name of an environment by its packages; by `otherwise` if it names none, or too many."""
    if not packages or len(packages) > MOST_LABELS:
        return otherwise
    return " + ".join(read(each).label for each in packages)


def check_python(python: str | None) -> None:
    """Raises:
    InputError: neither a version of Python 3 nor the absolute path of an interpreter.
    """
    if python is None or _PYTHON.fullmatch(python) or Path(python).is_absolute():
        return
    raise InputError(
        f"environment.python={python} is not valid: write a version such as 3.12, or the path of an interpreter"
    )


def _from_index(given: str) -> Named:
    try:
        requirement = Requirement(given)
    except InvalidRequirement as error:
        raise _bad(given, f"is not a requirement ({str(error).splitlines()[0]})") from error
    if requirement.url is not None:
        found = _from_address(requirement.url)
        name = canonicalize_name(requirement.name)
        return Named(
            text=given,
            line=str(requirement),
            name=name,
            label=f"{requirement.name} {found.label}",
            exact=found.exact,
        )
    pins = [each for each in requirement.specifier if each.operator == "==" and not each.version.endswith(".*")]
    words = " ".join(f"{_OPERATORS.get(each.operator, each.operator)}{each.version}" for each in requirement.specifier)
    return Named(
        text=given,
        line=str(requirement),
        name=canonicalize_name(requirement.name),
        label=f"{requirement.name} {words or 'newest'}",
        exact=bool(pins),
    )


def _from_address(address: str) -> Named:
    split = urlsplit(address)
    if split.password or (split.username and "ssh" not in split.scheme):
        raise InputError(
            "environment.packages: an address holds a login, and a plan is stored, exported and shown; "
            "let git find it: a credential helper, or git+ssh://"
        )
    if split.scheme == "file":
        return _from_path(split.path, None)
    path, _, revision = split.path.rpartition("@") if "@" in split.path else (split.path, "", "")
    last = path.rstrip("/").rpartition("/")[2]
    if last.endswith(".whl"):
        name, version = _wheel(last)
        return Named(text=address, line=address, name=name, label=f"{name} {version}", exact="sha256=" in address)
    egg = re.search(r"(?:^|&)egg=([\w.-]+)", split.fragment)
    named = canonicalize_name(egg.group(1)) if egg else None
    shown = revision[:_LONGEST_REVISION] or "newest commit"
    exact = _COMMIT.fullmatch(revision) is not None
    return Named(text=address, line=address, name=named, label=f"{last.removesuffix('.git')} {shown}", exact=exact)


def _is_path(text: str) -> bool:
    return text.startswith((".", "/", "~")) or text.endswith(".whl") or ("/" in text and "@" not in text)


def _from_path(given: str, folder: Path | None) -> Named:
    path = Path(given).expanduser()
    path = path if path.is_absolute() else (folder or Path.cwd()) / path
    path = Path(path.absolute().as_posix())
    if path.suffix == ".whl":
        name, version = _wheel(path.name)
        if not path.is_file():
            raise InputError(f"environment.packages: no such wheel {path}; name one that exists")
        return Named(
            text=str(path), line=f"{name} @ {path.as_uri()}", name=name, label=f"{name} {version}", exact=False
        )
    if not path.is_dir():
        raise InputError(f"environment.packages: {path} is not a wheel or a folder with a source tree")
    if not any((path / each).is_file() for each in ("pyproject.toml", "setup.py")):
        raise InputError(f"environment.packages: {path} holds no pyproject.toml: name a folder with a source tree")
    static = _static_name(path)
    line = path.as_uri() if static is None else f"{static} @ {path.as_uri()}"
    return Named(text=str(path), line=line, name=static, label=f"{static or path.name} in {path.name}", exact=False)


def _wheel(file: str) -> tuple[str, str]:
    try:
        name, version, _, _ = parse_wheel_filename(file)
    except InvalidWheelFilename as error:
        raise _bad(file, "is not the name of a wheel") from error
    return name, str(version)


def _static_name(folder: Path) -> str | None:
    try:
        name = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return canonicalize_name(name) if isinstance(name, str) else None


def _bad(text: str, problem: str) -> InputError:
    return InputError(
        f"environment.packages: {text!r} {problem};"
        " write name==version, the path of a wheel or of a source tree, or git+URL"
    )
