"""A night on the terminal, run after run."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from db.queue import Entry
from orchestrator.queue.night import Check, Ended
from orchestrator.running.events import Observer
from orchestrator.views.fetch_view import FetchTeller
from orchestrator.views.progress_view import ProgressObserver
from orchestrator.views.queue_view import SHORT_ID, print_checks

STATES = {"done": "done", "failed": "failed", "waiting": "not finished, keeps its place"}


class NightTeller:
    """Prints the events of a night; if quiet, only the end of each run."""

    def __init__(self, out: Console, *, quiet: bool) -> None:
        self._out, self._quiet = out, quiet

    @contextmanager
    def run_begins(self, entry: Entry) -> Iterator[Observer]:
        self._out.print()
        self._out.print(Text(f"{entry.experiment}: run {entry.run_id}", style="bold"))
        with Observer() if self._quiet else ProgressObserver(self._out) as observer:
            yield observer

    def run_ended(self, ended: Ended) -> None:
        why = "" if ended.note is None else f": {ended.note}"
        self._out.print(Text(f"{ended.experiment} ({ended.run_id[-SHORT_ID:]}) {STATES[ended.state]}{why}"))
        if ended.verdicts:
            self._out.print(Text(ended.verdicts))

    def fetching(self) -> FetchTeller:
        return FetchTeller(self._out, quiet=self._quiet)

    def checking(self, entry: Entry) -> None:
        if not self._quiet:
            self._out.print(Text(f"preflight  {entry.experiment} ({entry.run_id[-SHORT_ID:]})"))

    def checked(self, found: Sequence[Check]) -> None:
        print_checks(found, self._out)

    def noted(self, text: str) -> None:
        self._out.print(Text(f"note     {text}"))
