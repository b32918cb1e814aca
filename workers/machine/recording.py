"""A machine's answers, kept as they came and without anything personal, and a machine that gives them again.

Names, paths, addresses and serial numbers are replaced before anything is kept: a report may be posted in public.
"""

import contextlib
import getpass
import os
import platform
import pwd
import re
import socket
import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from workers.machine.macos import PHOTOS, SPOTLIGHT
from workers.machine.system import System, Unreadable, Wrapped

Kept = TypeVar("Kept", str, list[str], int)

HIDDEN = "hidden"
OURS = "PID"  # in a recorded command, for the number of our own process

_HEX = "[0-9A-Fa-f]"
_ADDRESSES = (
    re.compile(r"(?<=://)[^\s\"'<>]+"),  # of a page, with what may stand before its @
    re.compile(rf"\b(?:{_HEX}{{2}}[:-]){{5}}{_HEX}{{2}}\b"),  # of a network card
    re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b"),
    re.compile(rf"(?<![\w:])(?:{_HEX}{{1,4}}(?::{_HEX}{{1,4}})*)?::(?:{_HEX}{{1,4}}(?::{_HEX}{{1,4}})*)?(?:%\w+)?"),
    re.compile(rf"\b(?:{_HEX}{{1,4}}:){{3,7}}{_HEX}{{1,4}}\b"),
    re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+"),
    re.compile(r"\b[\w-]+(?:\.[\w-]+)*\.(?:local|lan|home|corp|internal|intranet)(?:\.[\w-]+)*\b"),
)
_IDENTITIES = (
    re.compile(r'("(?:IOPlatformUUID|IOPlatformSerialNumber|[^"]*[Ss]erial[^"]*|[^"]*UUID|mlb-serial-number)" ?= ?).*'),
    re.compile(r"(^(?:kern\.uuid|kern\.hostname|kern\.bootsessionuuid): ).*", re.MULTILINE),
    re.compile(r"((?:Serial Number[^:\n]*|UUID|UDID): *).*"),
    re.compile(r"(InternalBattery-\d+ \(id=)\d+"),
    re.compile(r"(prevented by )[^)\n]*"),  # of programs
    re.compile(r"(\b(?:hf|sk|ghp)[_-])\w{8,}"),
)
_UUID = re.compile(r"\b[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\b")
# To its end, which may hold spaces: to a quote, another mark or the end of the line.
_PLACES = "Users|home|root|Volumes|Network|Applications|opt|srv|mnt|media|nix|tmp|private|var/folders"
_PATH = re.compile(rf"/(?:{_PLACES})(?![\w.-])(?:/(?:[^\n\"'\\,;:()]|'(?=\w))*)?")
_CREATOR = re.compile(r'("IOUserClientCreator" = "pid \d+, ).*?(")')
_PROGRAM_LINE = re.compile(r"^(\s*\d+\s+[\d:.-]+\s+)(.+)$", re.MULTILINE)


Found = str | int | list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer of the machine: the text or number, or the reason why it is missing."""

    kind: str  # run, read, list, notify, footprint, peak
    asked: str
    found: Found | None = None
    reason: str | None = None
    ms: float = 0.0


def redacted(text: str, *, names: Iterable[str] = ()) -> str:
    """The text without names of people, machines and their programs, without paths and addresses.

    Args:
        names: what else must not stand in it, such as the user's name.
    """
    text = unicodedata.normalize("NFC", text)
    text = _CREATOR.sub(rf"\1{HIDDEN}\2", text)
    for pattern in _IDENTITIES:
        text = pattern.sub(rf"\1{HIDDEN}", text)
    text = _UUID.sub("00000000-0000-0000-0000-000000000000", text)
    text = _PATH.sub(f"/{HIDDEN}", text)
    for pattern in _ADDRESSES:
        text = pattern.sub(HIDDEN, text)
    for name in sorted((unicodedata.normalize("NFC", name) for name in names), key=len, reverse=True):
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", HIDDEN, text, flags=re.IGNORECASE)
    return text


def personal_names() -> tuple[str, ...]:
    """This user's and this machine's names: what a report must not hold."""
    found = {platform.node(), platform.node().partition(".")[0], socket.gethostname(), Path.home().name}
    try:
        found.add(getpass.getuser())
    except (KeyError, OSError):
        pass  # a user without a name
    with contextlib.suppress(KeyError, OSError):
        full = pwd.getpwuid(os.getuid()).pw_gecos.partition(",")[0]
        found |= {full, *(part for part in full.split() if len(part) > 3)} if " " in full else set()
    return tuple(
        sorted(name for name in found if len(name) > (2 if name.isascii() else 1) and name not in ("root", "localhost"))
    )


class Recording(Wrapped):
    """A `System` that asks another one and keeps each answer, redacted."""

    def __init__(self, system: System, *, names: Sequence[str] | None = None) -> None:
        super().__init__(system)
        self._names = personal_names() if names is None else tuple(names)
        self.answers: list[Answer] = []

    def run(self, *command: str) -> str:
        return self._kept("run", _asked(command), partial(super().run, *command))

    def read(self, path: str) -> str:
        return self._kept("read", path, partial(super().read, path))

    def list(self, pattern: str) -> list[str]:
        return self._kept("list", pattern, partial(super().list, pattern))

    def notify_state(self, key: str) -> int:
        return self._kept("notify", key, partial(super().notify_state, key))

    def footprint_bytes(self, pid: int) -> int:
        return self._kept("footprint", OURS, partial(super().footprint_bytes, pid))

    def peak_footprint_bytes(self, pid: int) -> int:
        return self._kept("peak", OURS, partial(super().peak_footprint_bytes, pid))

    def _kept(self, kind: str, asked: str, ask: Callable[[], Kept]) -> Kept:
        started_s = time.monotonic()
        try:
            found = ask()
        except Unreadable as error:
            self._keep(kind, asked, started_s, reason=redacted(str(error), names=self._names))
            raise
        shown = _programs_hidden(asked, found) if isinstance(found, str) else found
        self._keep(kind, asked, started_s, found=_redacted_value(shown, self._names))
        return found

    def _keep(self, kind: str, asked: str, started_s: float, **values: Any) -> None:
        ms = round(1000 * (time.monotonic() - started_s), 3)
        self.answers.append(Answer(kind=kind, asked=redacted(asked, names=self._names), ms=ms, **values))


def _asked(command: Sequence[str]) -> str:
    words = [Path(command[0]).name, *(OURS if word == str(os.getpid()) else word for word in command[1:])]
    return " ".join(words)


def _programs_hidden(asked: str, text: str) -> str:
    """A list of processes without the names of the user's programs: those that are counted by name stay."""
    if not asked.startswith("ps -A"):
        return text

    def shown(match: re.Match[str]) -> str:
        name = match[2].strip().rsplit("/", 1)[-1]
        known = SPOTLIGHT.fullmatch(name) or PHOTOS.fullmatch(name)
        return match[1] + (name if known else HIDDEN)

    return _PROGRAM_LINE.sub(shown, text)


def _redacted_value(value: Any, names: Sequence[str]) -> Any:
    if isinstance(value, str):
        return redacted(value, names=names)
    if isinstance(value, list):
        return [redacted(str(each), names=names) for each in value]
    return value


class Replayed:
    """A `System` that gives a recorded machine's answers again, in their order; the last one from then on."""

    def __init__(self, platform_name: str, answers: Iterable[Answer]) -> None:
        self.platform = platform_name
        self.root_pid = os.getpid()
        self._answers: dict[tuple[str, str], list[Answer]] = {}
        for answer in answers:
            self._answers.setdefault((answer.kind, answer.asked), []).append(answer)

    def run(self, *command: str) -> str:
        return str(self._next("run", _asked(command)))

    def read(self, path: str) -> str:
        return str(self._next("read", redacted(path)))

    def list(self, pattern: str) -> list[str]:
        found = self._next("list", pattern)
        return [str(each) for each in found] if isinstance(found, list) else []

    def notify_state(self, key: str) -> int:
        return _whole(self._next("notify", key))

    def footprint_bytes(self, pid: int) -> int:
        return _whole(self._next("footprint", OURS))

    def peak_footprint_bytes(self, pid: int) -> int:
        return _whole(self._next("peak", OURS))

    def _next(self, kind: str, asked: str) -> Found:
        waiting = self._answers.get((kind, asked))
        if not waiting:
            raise Unreadable(f"the report does not hold {asked}")
        answer = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if answer.found is None:
            raise Unreadable(answer.reason or "no reason recorded")
        return answer.found


def _whole(value: object) -> int:
    if type(value) is not int:
        raise Unreadable(f"the report holds {value!r} instead of a whole number")
    return value


def as_values(answers: Iterable[Answer]) -> list[dict[str, Any]]:
    """The answers as JSON values, each without its empty keys."""
    return [{key: value for key, value in asdict(answer).items() if value is not None} for answer in answers]


def from_values(values: Iterable[Mapping[str, Any]]) -> list[Answer]:
    """The answers of a report.

    Raises:
        TypeError: an entry has other keys.
    """
    return [Answer(**value) for value in values]
