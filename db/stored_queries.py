"""Stored queries: questions with a name, one .sql file each.

    -- Which trials ran hot? [the machine]          the question, and what it belongs to
    --
    -- Over all runs, newest first.                 more about it, as many lines as it takes
    --
    -- :level = 1 (the least thermal level)         a parameter: its default and its meaning, both optional
    SELECT ...

Those of interlace are in `db/queries`, the user's own in a folder of theirs: `INTERLACE_QUERIES`, else `queries` beside
the database. A name of the user's own goes before one of interlace's.
"""

import difflib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from db.errors import LocationError, QueryError
from db.location import database_path

ENVIRONMENT_VARIABLE = "INTERLACE_QUERIES"
SHIPPED = Path(__file__).parent / "queries"
SUFFIX = ".sql"
# What questions belong to, in the order of their listing; others follow.
GROUPS = ("runs", "what is faster", "speculation", "the machine", "faults and doubts")
OTHERS = "others"
RUN = "run"  # a parameter of this name is a run, wherever it stands

_NAME = re.compile(r"[\w-]+")
# What may hold a colon that begins no parameter, then a parameter.
_SKIPPED = r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\[[^\]]*\]|`[^`]*`|--[^\n]*|/\*.*?(?:\*/|$)"
_PARAMETER = re.compile(rf"{_SKIPPED}|:([A-Za-z_]\w*)", flags=re.DOTALL)
_HEADER_PARAMETER = re.compile(r":([A-Za-z_]\w*)(?:\s*=\s*([^\s(]*))?\s*(?:\((.*)\))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryParameter:
    """A `:name` of the SQL."""

    name: str
    default: str | None = None  # as typed; None: it must be given
    meaning: str = ""

    def __str__(self) -> str:
        return f":{self.name}" + ("" if self.default is None else f"={self.default}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredQuery:
    """A question and the SQL that answers it."""

    name: str
    title: str
    group: str
    description: str
    parameters: tuple[QueryParameter, ...]  # in the SQL's order
    sql: str  # without the header
    path: Path
    own: bool  # the user's

    @property
    def defaults(self) -> dict[str, str]:
        """The parameters that need not be given."""
        return {each.name: each.default for each in self.parameters if each.default is not None}


def parse_query(text: str, *, path: Path, own: bool = False) -> StoredQuery:
    """Read a .sql file's header and statement; a file without a header is a query all the same."""
    comments, sql = _split(text)
    described = {match[1]: match for line in comments if (match := _HEADER_PARAMETER.fullmatch(line))}
    words = [line for line in comments if not _HEADER_PARAMETER.fullmatch(line)]
    title = re.fullmatch(r"(.*?)(?:\s*\[(.+)\])?", words[0] if words else path.stem)
    return StoredQuery(
        name=path.stem,
        title=title[1] if title else path.stem,
        group=(title and title[2]) or OTHERS,
        description="\n".join(words[1:]).strip(),
        parameters=tuple(_parameter(name, described.get(name)) for name in parameter_names(sql)),
        sql=sql,
        path=path,
        own=own,
    )


def parameter_names(sql: str) -> tuple[str, ...]:
    """The names after a colon, each once, in order; not those in texts, quoted names and comments."""
    return tuple(dict.fromkeys(match[1] for match in _PARAMETER.finditer(sql) if match[1]))


def replace_parameters(sql: str, replacements: dict[str, str]) -> str:
    """The SQL with other text where a parameter of that name stood."""
    return _PARAMETER.sub(lambda match: replacements.get(match[1] or "", match[0]), sql)


def read_query(path: Path, *, own: bool = False) -> StoredQuery:
    """A query from its file.

    Raises:
        LocationError: the file cannot be read, or is not text.
    """
    try:
        return parse_query(path.read_text(encoding="utf-8-sig"), path=path, own=own)
    except OSError as error:
        raise LocationError(f"{path}: cannot be read ({error.strerror}); see `interlace query --list`") from error
    except UnicodeDecodeError as error:
        raise LocationError(f"{path}: is not UTF-8 text ({error.reason}); save it as UTF-8") from error


def own_folder(url: str) -> Path:
    """The folder of the user's own queries; it need not exist."""
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    return Path(named).expanduser().absolute() if named else database_path(url).parent / "queries"


def stored_queries(url: str) -> tuple[StoredQuery, ...]:
    """All stored queries, by name; the user's own first.

    Raises:
        LocationError: INTERLACE_QUERIES names no folder, or a file cannot be read.
    """
    folder = own_folder(url)
    if os.environ.get(ENVIRONMENT_VARIABLE) and not folder.is_dir():
        raise LocationError(f"{folder}: no such folder; set {ENVIRONMENT_VARIABLE} to one with .sql files")
    own = [read_query(path, own=True) for path in _files(folder)]
    taken = {query.name for query in own}
    shipped = [read_query(path) for path in _files(SHIPPED) if path.stem not in taken]
    return (*own, *shipped)


def in_groups(queries: Iterable[StoredQuery]) -> list[tuple[str, list[StoredQuery]]]:
    """The queries by what they belong to, groups in their order, queries by name."""
    found: dict[str, list[StoredQuery]] = {group: [] for group in GROUPS}
    for query in sorted(queries, key=lambda query: query.name):
        found.setdefault(query.group, []).append(query)
    return [(group, members) for group, members in found.items() if members]


def find_query(url: str, name: str) -> StoredQuery:
    """The stored query of that name.

    Raises:
        QueryError: no stored query has this name.
        LocationError: see `stored_queries`.
    """
    known = {query.name: query for query in stored_queries(url)}
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "see `interlace query --list`"
    raise QueryError(f"query {name!r}: no stored query, no .sql file and no SQL; {hint}")


def is_name(text: str) -> bool:
    """True if the text can only be a stored query's name: SQL takes more than one word."""
    return _NAME.fullmatch(text) is not None


def is_file(text: str) -> bool:
    """True if the text can only be a file name: no SQL ends like this."""
    return text.lower().endswith(SUFFIX) and "\n" not in text


def _files(folder: Path) -> list[Path]:
    found = folder.glob(f"*{SUFFIX}") if folder.is_dir() else ()
    return sorted(path for path in found if is_name(path.stem))


def _split(text: str) -> tuple[list[str], str]:
    """The comment lines at the beginning, without their dashes, and the statement."""
    lines = text.strip().splitlines()
    header = next((number for number, line in enumerate(lines) if not line.startswith("--")), len(lines))
    return [line.removeprefix("--").strip() for line in lines[:header]], "\n".join(lines[header:]).strip()


def _parameter(name: str, described: re.Match[str] | None) -> QueryParameter:
    default, meaning = (described[2], described[3]) if described else (None, None)
    if name == RUN:
        default, meaning = default or "last", meaning or "the run"
    return QueryParameter(name=name, default=default, meaning=meaning or "")
