"""The queue on the terminal: the waiting runs, their durations and ends, and the results of their preflight."""

import datetime as dt
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from orchestrator.planning.estimate import about
from orchestrator.queue.agenda import Slot
from orchestrator.queue.clock_times import spoken
from orchestrator.views.terminal import table

if TYPE_CHECKING:
    from orchestrator.queue.night import Check

SHORT_ID = 12  # characters of a run's id, from its end


def print_queue(slots: Sequence[Slot], out: Console, *, now: dt.datetime, until: dt.datetime | None = None) -> None:
    """Print the waiting runs in order, each with its duration, and the end of the whole queue."""
    if not slots:
        out.print("nothing waits on this machine: add a run with `interlace queue add`")
        return
    made = table("", "run", "experiment", "trials", "takes", "ends about", "", right=("", "trials"))
    for number, slot in enumerate(slots, start=1):
        waiting = slot.waiting
        duration = waiting.duration.duration_s
        made.add_row(
            str(number),
            waiting.entry.run_id[-SHORT_ID:],
            Text(waiting.entry.experiment),
            str(waiting.left) if waiting.left == waiting.trials else f"{waiting.left} of {waiting.trials}",
            "unknown" if duration is None else about(duration).removeprefix("about "),
            "unknown" if slot.ends_at is None else spoken(slot.ends_at, now=now),
            _state(slot),
        )
    out.print(made)
    for slot in slots:
        if slot.waiting.duration.duration_s is None:
            out.print(Text(f"{slot.waiting.entry.run_id[-SHORT_ID:]}: {slot.waiting.duration.assumption}"))
    out.print(Text(total_line(slots, now=now, until=until), style="bold"))


def _state(slot: Slot) -> str:
    if slot.waiting.runs:
        return "runs"
    return "goes on" if slot.waiting.entry.run_status in ("running", "interrupted") else ""


def total_line(slots: Sequence[Slot], *, now: dt.datetime, until: dt.datetime | None = None) -> str:
    """State when the whole queue ends, and what is done by `until`. Pure."""
    count = "1 run" if len(slots) == 1 else f"{len(slots)} runs"
    known = [slot.waiting.duration.duration_s for slot in slots]
    seconds = sum(each for each in known if each is not None)
    ends_at = slots[-1].ends_at
    if ends_at is None:
        line = f"{count}: not all durations are known; the others take {about(seconds)}"
    else:
        line = f"{count}, {about(seconds)}: ends about {spoken(ends_at, now=now)}"
    if until is None:
        return line
    if ends_at is not None and ends_at <= until:
        return f"{line}, before {spoken(until, now=now)}"
    whole = sum(slot.ends_at is not None and slot.ends_at <= until for slot in slots)
    return f"{line}; stops at {spoken(until, now=now)} after the current round, {whole} of {count} done by then"


def print_checks(checks: "Sequence[Check]", out: Console) -> None:
    """Print the preflight's problems in one table, or one line if there are none."""
    if not checks:
        return
    failing = [check for check in checks if any(check.found.values())]
    arms = sum(len(check.found) for check in checks)
    if not failing:
        out.print(Text(f"preflight  ✓ all {arms} arms of {len(checks)} runs load, answer and show their evidence"))
        return
    made = table("run", "experiment", "arm", "problem")
    for check in failing:
        for arm, problem in check.found.items():
            if problem is not None:
                made.add_row(check.entry.run_id[-SHORT_ID:], Text(check.entry.experiment), Text(arm), Text(problem))
    out.print(Text("preflight  ✗ found before the night:", style="bold"))
    out.print(made)
    for check in failing:
        what = "is left out of this night" if check.refused else "starts without these arms"
        out.print(Text(f"{check.entry.experiment} ({check.entry.run_id[-SHORT_ID:]}) {what}"))
