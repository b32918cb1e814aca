"""Before a run: is the machine fit to start?

What earlier runs left here is ended where it is surely ours; what only looks like it stands in the way, as does a
battery where mains power is wanted.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from db.redaction import REDACTED, literals
from orchestrator.errors import RefusedError
from orchestrator.plan import Gate
from workers.files.private import tighten
from workers.machine.telemetry import Reading
from workers.supervision.orphans import Orphan, Suspect, end_orphans, find_leftovers

GRACE_S = 5.0  # after each signal
STATE_FOLDER, JOURNAL_NAME = "state", "workers.jsonl"
_OURS = ("logs/*", "nights/*.md", "*.backup.db")
# A run's id, a night's time, or a backup's: folders called `logs` and the like may hold things of the user's too.
_GIVEN_NAME = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT\d{4}Z(-\d+)?\.md|.+-\d{8}-\d{6}\.backup\.db"
)


def journal_beside(database: Path) -> Path:
    """The journal of all runs of one database."""
    return database.parent / STATE_FOLDER / JOURNAL_NAME


def tighten_beside(database: Path) -> None:
    """Take the rights of others from what earlier versions left readable beside the database: only what bears a name
    that we give, and belongs to this user."""
    for pattern in _OURS:
        for path in database.parent.glob(pattern):
            if _GIVEN_NAME.fullmatch(path.name):
                tighten(path)


def clear_leftovers(journal: Path, gate: Gate, say: Callable[[str], None], *, grace_s: float = GRACE_S) -> None:
    """End the orphans of earlier runs, and refuse to start beside what may be one.

    Args:
        say: told of each orphan that was ended, with the memory that it held.

    Raises:
        RefusedError: an orphan that no signal ends, or a suspect; with its pid, its memory and the remedy.
    """
    found = find_leftovers(journal, large_bytes=int(gate.orphan_bytes))
    for note in found.notes:
        say(note)
    survivors = end_orphans(found.orphans, grace_s=grace_s, journal=journal)
    for orphan in found.orphans:
        if orphan not in survivors:
            say(f"ended a leftover: {describe_orphan(orphan)}")
    if survivors:
        raise RefusedError(
            f"{describe_orphan(survivors[0])} survives SIGKILL: restart the machine, for its memory stays taken"
        )
    for suspect in found.suspects:
        if gate.orphans == "block":
            raise RefusedError(
                f"{describe_suspect(suspect)}: end it (kill {suspect.pid}) if it is a leftover,"
                " or say gate.orphans=report"
            )
        say(f"may be a leftover: {describe_suspect(suspect)}")


def refuse_battery(gate: Gate, readings: Sequence[Reading]) -> None:
    """A run that wants mains power does not start on a battery. What cannot be read passes.

    Raises:
        RefusedError: with the remedy.
    """
    source = next((each.value_text for each in readings if each.field == "power_source"), None)
    if gate.power_source == "mains" and source not in (None, "mains"):
        raise RefusedError(f"power comes from {source}: plug in, or say gate.power_source=any")


def start_notes(readings: Sequence[Reading]) -> Iterator[str]:
    """What slows or ends a run that starts like this, with the remedy; nothing of it refuses the run.

    zsh starts background jobs at nice +5, and macOS then serves their GPU work late. With a closed lid a MacBook sleeps
    whatever caffeinate asserts, unless a display and mains power are connected.
    """
    by_field = {each.field: each for each in readings}
    found = (by_field.get(name) for name in ("nice", "priority"))
    nice = next((each for each in found if each is not None and each.source == "getpriority"), None)
    if nice is not None and nice.value is not None and nice.value > 0:
        yield (
            f"this process runs at nice {nice.value:+g}, so others are served first: start it in the foreground,"
            " or in zsh after `unsetopt BG_NICE`"
        )
    if (lid := by_field.get("lid")) is not None and lid.value_text == "closed":
        yield "the lid is closed: this Mac may sleep during the run; open it, or connect a display and mains power"


def describe_orphan(orphan: Orphan) -> str:
    """One line: who it is, whose it was, what it holds."""
    return (
        f"process {orphan.pid} ({hidden(orphan.title)}), arm {orphan.arm} of run {orphan.run_id},"
        f" held {_memory(orphan.memory_bytes)}"
    )


def describe_suspect(suspect: Suspect) -> str:
    """One line: who it is, why it is suspected, what it holds."""
    return f"process {suspect.pid} ({hidden(suspect.title)}) {suspect.why}, holds {_memory(suspect.memory_bytes)}"


def hidden(title: str) -> str:
    """A process's command line without the secrets in it, whoever's they are."""
    for secret in literals(title):
        title = title.replace(secret, REDACTED)
    return title


def _memory(held_bytes: int | None) -> str:
    return "unknown memory" if held_bytes is None else f"{held_bytes / 1e9:.2f} GB"
