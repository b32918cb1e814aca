"""The summary of a night: one Markdown file per night, beside the database. The text is pure."""

import contextlib
import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from db.escaping import in_markdown
from orchestrator.queue.night import Ended
from workers.files.atomic import create_file
from workers.files.private import make_private_folder

FOLDER = "nights"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The result of a night."""

    host: str
    database: str
    began_at: dt.datetime
    ended_at: dt.datetime
    why: str  # the reason why it ended
    runs: Sequence[Ended]
    waiting: int  # runs left

    @property
    def headline(self) -> str:
        """Return the summary in one line."""
        done = sum(run.state == "done" for run in self.runs)
        failed = sum(run.state == "failed" for run in self.runs)
        parts = [f"{done} of {len(self.runs)} runs done" if self.runs else "no run began"]
        parts += [f"{failed} failed"] if failed else []
        parts += [f"{self.waiting} left in the queue"] if self.waiting else []
        return f"interlace on {self.host}: {', '.join(parts)}"


def markdown(summary: Summary) -> str:
    """Render the night for people: the runs, their results, the problems and where to look."""
    return "\n".join(_lines(summary)) + "\n"


def _lines(summary: Summary) -> Iterator[str]:
    yield f"# {in_markdown(summary.headline)}"
    yield ""
    times = f"From {_local(summary.began_at)} to {_local(summary.ended_at)} ({in_markdown(_zone(summary))})"
    yield f"{times}; it ended because {in_markdown(summary.why)}."
    for run in summary.runs:
        yield ""
        yield f"## {in_markdown(run.experiment)}: {_STATES[run.state]}"
        yield ""
        yield f"Run `{run.run_id}`, {_local(run.started_at)} to {_local(run.ended_at)}."
        if run.note:
            yield f"{in_markdown(run.note)}."
        if run.verdicts:
            yield ""
            yield in_markdown(run.verdicts)
        if run.problems:
            yield ""
            yield from (f"- {in_markdown(problem)}" for problem in run.problems)
        yield ""
        yield f"Look: `interlace audit {run.run_id}`, `interlace report {run.run_id} -o FILE.html`"
    yield ""
    yield f"Database: {in_markdown(summary.database)}."
    yield "Waiting runs: `interlace queue list`; the next `interlace work` continues with them."
    if failed := [f"`interlace resume {run.run_id}`" for run in summary.runs if run.state == "failed"]:
        yield f"Failed runs left the queue. Once the cause is removed: {', '.join(failed)}."


_STATES = {"done": "done", "failed": "failed", "waiting": "not finished, keeps its place"}


def _local(moment: dt.datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"


def _zone(summary: Summary) -> str:
    """Return the zone of all times in the file: two names in a night in which the clocks change."""
    ends = (summary.began_at.astimezone(), summary.ended_at.astimezone())
    return ", then ".join(dict.fromkeys(f"{moment:%Z}" for moment in ends))


def write_summary(summary: Summary, database: Path) -> Path:
    """Write the night's file, without overwriting that of another night that ended in the same minute.

    Raises:
        OSError: the file cannot be written.
    """
    folder = database.parent / FOLDER
    make_private_folder(folder)
    content = markdown(summary).encode("utf-8", "backslashreplace")
    name = f"{summary.ended_at.astimezone(dt.UTC):%Y-%m-%dT%H%MZ}"
    for number in count(1):
        path = folder / (f"{name}.md" if number == 1 else f"{name}-{number}.md")
        with contextlib.suppress(FileExistsError):
            create_file(path, content)
            break
    return path
