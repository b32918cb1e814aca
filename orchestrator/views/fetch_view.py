"""The progress of a fetch on the terminal: one live line there, and a line every quarter of a minute in a log."""

import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from db.escaping import shown_line
from orchestrator.planning.estimate import about
from workers.weights.hub_download import Progress as Fetched

LOG_INTERVAL_S = 15.0


def fetched_words(fetched: Fetched) -> str:
    """The state of a fetch in one line: how much, how fast, how long."""
    size = f"{size_words(fetched.done_bytes)} of {size_words(fetched.total_bytes)}"
    rate = "" if not fetched.bytes_per_s else f", {size_words(fetched.bytes_per_s)}/s"
    left = "" if not fetched.left_s else f", {about(fetched.left_s)} left"
    return f"{fetched.hub_id}: {size}{f', {fetched.note}' if fetched.note else rate + left}"


def size_words(size_bytes: float) -> str:
    """A size for people: 13.2 GB, 240 MB, 7 kB."""
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.1f} {name}"
    return f"{size_bytes / 1e3:.0f} kB"


class Paced:
    """Passes lines on at most every quarter of a minute, and each that begins or ends a repository."""

    def __init__(self, say: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._said_at = -LOG_INTERVAL_S
        self._said = ""

    def __call__(self, fetched: Fetched) -> None:
        ends = fetched.done_bytes >= fetched.total_bytes and not fetched.note
        line = fetched_words(fetched)
        if (ends or self._clock() - self._said_at >= LOG_INTERVAL_S) and line != self._said:
            self._said_at, self._said = self._clock(), line
            self._say(line)


class FetchTeller:
    """Shows a fetch. A context manager; called with its progress."""

    def __init__(self, out: Console, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._paced = None if out.is_terminal else Paced(lambda line: out.print(Text(shown_line(f"fetching {line}"))))
        self._bar = Progress(
            TextColumn("fetching", markup=False),
            BarColumn(bar_width=16),
            TextColumn("{task.description}", markup=False),
            console=out,
            disable=quiet or not out.is_terminal,
        )
        self._task: TaskID | None = None
        self._hub_id = ""

    def __enter__(self) -> "FetchTeller":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, fetched: Fetched) -> None:
        if self._quiet:
            return
        if self._paced is not None:
            self._paced(fetched)
            return
        if self._task is None or self._hub_id != fetched.hub_id:
            self._task, self._hub_id = self._bar.add_task("", total=max(1, fetched.total_bytes)), fetched.hub_id
        done = fetched.done_bytes if fetched.total_bytes else 1
        self._bar.update(self._task, completed=done, description=shown_line(fetched_words(fetched)))
