"""Report what this machine can run and record, the obstacles, and why a reading is missing. Changes nothing."""

import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orchestrator.plan import Gate
from orchestrator.planning.device import read_device
from orchestrator.planning.memory import share_of_memory_bytes
from orchestrator.running.gate import Finding, check
from orchestrator.running.leftovers import describe_orphan, describe_suspect
from orchestrator.running.preflight import start_notes
from workers.environment import versions
from workers.files.leftovers import Abandoned, find_abandoned
from workers.interpreter import Interpreter, read_interpreter
from workers.machine.host import HostFacts, is_translated, read_host
from workers.machine.remedies import remedy
from workers.machine.samples import Sample
from workers.machine.sleep_inhibitor import Awake, keep_awake
from workers.machine.telemetry import RATE_WINDOW_S, MachineReader, Reading
from workers.supervision.orphans import Leftovers, find_leftovers

LEAST_FREE_BYTES = 50_000_000  # a night of eight arms stores about as much


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Everything that the doctor found."""

    host: HostFacts
    interpreter: Interpreter
    device: dict[str, Any]  # see workers.machine.device
    memory_budget_bytes: int | None
    versions: dict[str, str | None]
    readings: tuple[Reading, ...]
    remedies: dict[str, str]  # by field, if a reading is missing and there is a remedy
    awake: Awake
    gate: tuple[Finding, ...]
    leftovers: Leftovers
    unfinished: tuple[Abandoned, ...]  # beside the database
    database: str  # its state in words
    unusable: tuple[str, ...]  # the database and folders that a run needs and cannot use, each in a line
    disk_free_bytes: int | None

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the conditions that slow a run or may end it, with the remedy; none of them prevents the run."""
        return tuple(start_notes(self.readings))

    @property
    def obstacles(self) -> tuple[str, ...]:
        """The reasons for which a run would be refused now."""
        found = [*self.unusable, *(describe_suspect(each) for each in self.leftovers.suspects)]
        if (problem := self.interpreter.problem) is not None:
            found.append(problem)  # it is why MLX cannot be imported
        elif isinstance(error := self.device.get("error"), str):
            found.append(error)
        battery = next((f.problem for f in self.gate if f.name == "power_source" and f.problem), None)
        if self.disk_free_bytes is not None and self.disk_free_bytes < LEAST_FREE_BYTES:
            found.append(f"{self.disk_free_bytes / 1e6:.1f} MB are free for the database; make room on the disk")
        return (*found, *([battery] if battery else []))


def examine(*, database: Path, database_words: str, journal: Path, state: Path, problem: str = "") -> Diagnosis:
    """Examine this machine; takes one or two seconds.

    Args:
        state: the folder in which this user's processes find each other.
        problem: why the database cannot be used, in one line; empty if it can.
    """
    reader = MachineReader()
    samples = [Sample(at_s=time.monotonic(), readings=reader.read())]
    time.sleep(2 * RATE_WINDOW_S)  # rates and growths need a second reading
    samples.append(Sample(at_s=time.monotonic(), readings=reader.read()))
    readings = samples[-1].readings
    host = read_host()
    device = read_device()
    gate = Gate()
    with keep_awake(os.getpid()) as awake:
        return Diagnosis(
            host=host,
            interpreter=read_interpreter(translated=is_translated()),
            device=device,
            memory_budget_bytes=device.get("working_set_bytes") or share_of_memory_bytes(host.memory_bytes),
            versions=versions(),
            readings=readings,
            remedies=_remedies(readings),
            awake=awake,
            gate=tuple(check(gate, samples, now=samples[-1].at_s)),
            leftovers=find_leftovers(journal, large_bytes=int(gate.orphan_bytes)),
            unfinished=tuple(find_abandoned(database.parent)),
            database=database_words,
            unusable=(*([problem] if problem else []), *_unwritable(database, state)),
            disk_free_bytes=_free(database.parent),
        )


def as_json(found: Diagnosis) -> str:
    """All values, for programs."""
    body = asdict(found) | {"notes": list(found.notes), "obstacles": list(found.obstacles)}
    return json.dumps(body, indent=2, default=str) + "\n"


def _remedies(readings: Sequence[Reading]) -> dict[str, str]:
    missing = {each.field: each.reason for each in readings if each.reason is not None}
    helps = {field: remedy(sys.platform, field, reason) for field, reason in missing.items()}
    return {field: words for field, words in helps.items() if words is not None}


def _unwritable(database: Path, state: Path) -> list[str]:
    """The files and folders, or the nearest folder above those to be made, that cannot be written."""
    wanted = {"the database": database, "the database's folder": database.parent, "the state folder": state}
    lines = []
    for name, path in wanted.items():
        existing = next((each for each in (path, *path.parents) if each.exists()), None)
        if existing is not None and not os.access(existing, os.W_OK):
            lines.append(f"{name} {path} cannot be written; make {existing} writable, or name another place")
    return lines


def _free(folder: Path) -> int | None:
    existing = next((each for each in (folder, *folder.parents) if each.exists()), None)
    return None if existing is None else shutil.disk_usage(existing).free


def leftover_lines(found: Leftovers) -> list[str]:
    """Orphans, which the next run ends, and suspects, which it refuses."""
    lines = [f"the next run ends {describe_orphan(each)}" for each in found.orphans]
    lines += [f"in the way: {describe_suspect(each)}" for each in found.suspects]
    return [*lines, *found.notes]


def unfinished_lines(found: Sequence[Abandoned]) -> list[str]:
    """Files that killed commands left beside the database."""
    return [
        f"left by a killed command: {each.path} ({each.size_bytes / 1e6:.1f} MB);"
        " the next backup, export or import removes it"
        for each in found
    ]
