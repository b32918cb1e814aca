"""Read a file of another tool. Only this module opens the file and fills in the information that it lacks.

Times without a zone are taken to be of this machine's zone unless another is named; results without any time are dated
as the file is. A note reports either.
"""

import datetime as dt
import hashlib
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from db.errors import in_one_line
from orchestrator.errors import InputError
from orchestrator.importers.foreign_run import ForeignResults
from orchestrator.importers.formats import choose_format
from orchestrator.importers.json_values import MOST_BYTES, decode
from orchestrator.importers.plausibility import require_possible

_SQLITE = b"SQLite format 3\x00"
_EARLIEST = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
_LONGEST_S = 30 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The user's choices for an import. None: as the file states, or as described for each field."""

    format: str = "auto"
    timezone: str | None = None  # of times without one; None: this machine's
    host: str | None = None  # the machine's name; None: unknown
    experiment: str | None = None  # None: the file's name
    metric: str | None = None  # what an audit compares; None: what most arms have
    control: str | None = None  # an arm's name; None: the first in the file


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The file that results came from."""

    name: str
    sha256: str
    modified_at: dt.datetime


def read_results(file: Path, choices: Choices) -> tuple[Source, ForeignResults]:
    """Read a file of another tool, with every time in UTC.

    Raises:
        InputError: no such file, of no known format, or one that does not hold what its format promises.
    """
    content, modified_at = _content(file)
    source = Source(name=file.name, sha256=hashlib.sha256(content).hexdigest(), modified_at=modified_at)
    decoded = decode(content, name=str(file))
    chosen = choose_format(decoded.body, choices.format, name=str(file))
    try:
        results = chosen.read(decoded.body)
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        IndexError,
        ArithmeticError,
        RecursionError,
        OSError,
    ) as error:
        why = in_one_line(f"{type(error).__name__}: {error}")
        raise InputError(f"{file}: not as {chosen.FILE} should be ({why}); is it whole?") from error
    if not results.trials:
        raise InputError(f"{file}: holds no result ({chosen.NAME}); give a file of a finished benchmark")
    require_possible(results, name=str(file))
    results = replace(results, notes=(*decoded.notes, *results.notes))
    zone = _zone(choices.timezone)
    try:
        results = in_utc(results, zone=zone, named=choices.timezone, fallback=modified_at)
    except (ValueError, OverflowError, OSError) as error:
        raise InputError(
            f"{file}: a time in it is at the end of the calendar ({error}); the file is damaged"
        ) from error
    _require_likely_times(results, file)
    return source, results


def _require_likely_times(results: ForeignResults, file: Path) -> None:
    """Require times between 2000 and the day after tomorrow, as for other databases: a page draws the whole span."""
    latest = dt.datetime.now(dt.UTC) + dt.timedelta(days=2)
    for at in (results.started_at, *(trial.started_at for trial in results.trials)):
        if at is not None and not _EARLIEST <= at <= latest:
            raise InputError(f"{file}: a time in it is {at:%Y-%m-%d}, before 2000 or in the future; correct it there")
    if any(trial.wall_s is not None and trial.wall_s > _LONGEST_S for trial in results.trials):
        raise InputError(f"{file}: a trial in it lasts longer than 30 days; correct its times there")


def in_utc(results: ForeignResults, *, zone: dt.tzinfo, named: str | None, fallback: dt.datetime) -> ForeignResults:
    """Results whose times are all in UTC, with notes on what was assumed. Pure.

    Args:
        zone: of times without one.
        named: the zone's name, where a person chose it.
        fallback: the time of a file that has none.
    """
    notes: Sequence[str] = ()
    times = [results.started_at, *(trial.started_at for trial in results.trials)]
    if any(at is not None and at.tzinfo is None for at in times):
        said = named or "this machine's, --timezone names another"
        notes = (f"times in the file have no zone; taken to be of {zone if named else 'the local zone'} ({said})",)

    def utc(at: dt.datetime | None) -> dt.datetime | None:
        if at is None:
            return None
        return (at.replace(tzinfo=zone) if at.tzinfo is None else at).astimezone(dt.UTC)

    started_at = utc(results.started_at)
    if started_at is None:
        started_at = fallback
        notes = (*notes, f"no time in the file; taken to be that of the file itself, {fallback:%Y-%m-%d %H:%M} UTC")
    trials = tuple(replace(trial, started_at=utc(trial.started_at)) for trial in results.trials)
    return replace(results, started_at=started_at, trials=trials, notes=(*results.notes, *notes))


def _content(file: Path) -> tuple[bytes, dt.datetime]:
    try:
        about = file.stat()
        if not stat.S_ISREG(about.st_mode):
            raise InputError(f"{file}: is not a regular file; give the file that the tool wrote")
        if about.st_size > MOST_BYTES:
            raise InputError(
                f"{file}: {about.st_size / 1e6:.0f} MB are too much for a result file; give the tool's JSON"
            )
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}); give the file that the tool wrote") from error
    if content.startswith(_SQLITE):
        raise InputError(f"{file}: is a database; take its runs with `interlace db merge {file}`")
    return content, dt.datetime.fromtimestamp(about.st_mtime, dt.UTC)


def _zone(name: str | None) -> dt.tzinfo:
    """A named zone, or this machine's own with its changes over the year."""
    if name is None:
        return _Local()
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InputError(f"--timezone {name}: no such time zone; give one such as Europe/Berlin, or UTC") from error


class _Local(dt.tzinfo):
    """This machine's zone: what the system says of each moment, summer time included."""

    def utcoffset(self, at: dt.datetime | None) -> dt.timedelta:
        if at is None:
            return dt.timedelta(0)
        offset = at.replace(tzinfo=None).astimezone().utcoffset()
        return dt.timedelta(0) if offset is None else offset

    def dst(self, at: dt.datetime | None) -> dt.timedelta | None:
        return None

    def tzname(self, at: dt.datetime | None) -> str:
        return "local"
