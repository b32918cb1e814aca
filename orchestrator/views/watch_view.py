"""A run in progress: its current step, the time left, its problems, and its results so far."""

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from db.live import Life, Problem
from orchestrator.planning.estimate import about
from orchestrator.queue.agenda import own_end
from orchestrator.queue.clock_times import spoken

ENDED = ("done", "failed", "interrupted", "cancelled")
SILENT_AFTER_S = 60.0  # several heartbeats

STATES = {
    "preflight": "preflight of {label}",
    "loading": "{label}: about to start",
    "gate": "{label}: waiting for {waiting}",
    "running": "{label}: running",
    "after": "the rounds are done; probes follow",
}


def watched(life: Life, problems: Sequence[Problem], verdicts: str, *, now: dt.datetime) -> RenderableType:
    """Render the state of one moment."""
    return Group(*(Text(line, style=style) for line, style in _lines(life, problems, verdicts, now)))


def _lines(life: Life, problems: Sequence[Problem], verdicts: str, now: dt.datetime) -> Iterator[tuple[str, str]]:
    yield f"{life.experiment}: run {life.run_id}", "bold"
    if life.simulated:
        yield "SIMULATED: a fake clock, nothing is measured", "bold red"
    yield at_line(life, now=now) if life.status not in ENDED else _ended(life), ""
    if life.status not in ENDED and (silence := _silence(life, now)) is not None:
        yield silence, "bold red"
    for problem in problems:
        yield str(problem), "yellow"
    if verdicts:
        yield "", ""
        yield f"interim, not final: {verdicts}", ""


def _ended(life: Life) -> str:
    """Say that the run is over, why, and what to type next."""
    why = "" if life.note is None else f": {life.note}"
    after = "audit" if life.status == "done" else "resume"
    return f"{life.status}{why}; interlace {after} {life.run_id}"


def at_line(life: Life, *, now: dt.datetime) -> str:
    """Describe a run's current step in one line. Pure."""
    current: dict[str, Any] = life.current or {}
    words = STATES.get(str(current.get("state")), "not started yet")
    parts = [words.format(label=current.get("label"), waiting=current.get("waiting"))]
    if current.get("round") is not None:
        parts.append(f"round {current['round'] + 1} of {life.rounds}")
    elif current.get("kind") == "bracket":
        parts.append("control run")
    if current.get("attempt"):
        parts.append(f"attempt {current['attempt'] + 1}")
    if current.get("total"):
        parts.append(f"{current['done']} of {current['total']} trials")
    if (ends_at := own_end(life)) is not None:
        left_s = max(0.0, (ends_at - now).total_seconds())
        parts.append(f"{about(left_s)} left, ends about {spoken(max(ends_at, now), now=now)}")
    return "; ".join(parts)


def _silence(life: Life, now: dt.datetime) -> str | None:
    """Describe a process that lives but sends no more heartbeats: it is stopped, or stuck in a system call."""
    if life.heartbeat_at is None:
        return None
    silent_s = (now - life.heartbeat_at).total_seconds()
    if silent_s < SILENT_AFTER_S:
        return None
    return f"process {life.runner_pid} has sent no heartbeat for {about(silent_s)}"
