"""The worker processes of a run: one per arm, resident or swapped. Independent of rounds and results."""

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from orchestrator.plan import Arm, Deadlines
from orchestrator.planning.weights import Weights
from orchestrator.secrecy import secret_variables
from workers.errors import WorkerFault
from workers.machine.memory import available_bytes, compressed_bytes, unreturned_bytes
from workers.machine.telemetry import Reading
from workers.protocol import Generate, Generation, Hello, Load, Loaded, Probe, ProbeAnswer
from workers.supervision.worker_process import StopReport, WorkerProcess, WorkerSpec

# Keys of an engine's configuration that are not settings: its identity, its other weights and its interpreter.
NOT_SETTINGS = ("_target_", "name", "draft", "python")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A loaded worker."""

    process: WorkerProcess
    deadlines: Deadlines
    hello: Hello
    loaded: Loaded

    @property
    def log_path(self) -> Path:
        return self.process.spec.log_path

    def generate(self, request: Generate) -> list[Generation]:
        """Run one conversation: one generation per turn.

        Raises:
            workers.errors.WorkerFault: holds the turns that were answered before it.
        """
        return self.process.generate(request, self.deadlines)

    def probe(self, request: Probe) -> ProbeAnswer:
        """Ask the engine about its model. A worker that outlives the probe's own budget gets as long
        again as a first token may take.

        Raises:
            workers.errors.WorkerFault: its `alive` states whether the worker still runs.
        """
        return self.process.probe(request, limit_s=request.budget_s + self.deadlines.first_token_s)


@dataclass(slots=True)
class Crew:
    """Loads arms on demand. With `swap`, one arm is loaded at a time: the others' processes end before."""

    run_id: str
    log_dir: Path
    deadlines: Deadlines
    swap: bool
    weights: Mapping[str, Weights]  # by arm
    journal_path: Path
    note: Callable[[str], None] = lambda text: None  # called with lines for people when a worker ends
    settle: Callable[[], object] | None = None  # called between one swapped arm's end and the next one's load
    available_bytes: Callable[[], int] = available_bytes
    compressed_bytes: Callable[[], int] = compressed_bytes
    interpreters: Mapping[str, str] = field(default_factory=dict)  # of the arms with an environment of their own
    packages: Sequence[str] = ()  # distributions whose versions each worker records besides the usual ones
    # Called with a swapped arm that did not end when it had to make room for the next one, and what happened.
    hung: Callable[[str, str], None] = lambda arm, words: None
    members: dict[str, Member] = field(default_factory=dict)
    survivors: set[psutil.Process] = field(default_factory=set)  # that no signal ended
    unreturned_bytes: int | None = None  # of what the last swapped arm held; None: unknown, or none was ended yet

    def member(self, arm: Arm, *, on_load: Callable[[Member], None]) -> Member:
        """Return the arm's worker. If it has to be loaded first, `on_load` is called with it.

        Raises:
            workers.errors.WorkerFault: it did not load.
        """
        if arm.name in self.members:
            return self.members[arm.name]
        if self.swap and self.members:
            self._hand_over()
        member = self._load(arm)
        self.members[arm.name] = member
        try:
            on_load(member)
        except WorkerFault:
            self.discard(arm)  # a half-warmed-up worker does not count as loaded
            raise
        return member

    def _load(self, arm: Arm) -> Member:
        process = WorkerProcess(
            WorkerSpec(
                run_id=self.run_id,
                arm=arm.name,
                log_path=self.log_dir / f"{_file_name(arm.name)}.log",
                journal_path=self.journal_path,
                python=self._interpreter(arm),
                packages=self.packages,
                environment=arm.engine.get("environment") or {},
                secret_names=secret_variables(os.environ),
            )
        )
        weights = self.weights[arm.name]
        request = Load(
            target=arm.engine["_target_"],
            settings={key: value for key, value in arm.engine.items() if key not in NOT_SETTINGS},
            checkpoint=weights.checkpoint,
            draft=weights.draft,
            sampling=arm.sampling,
        )
        loaded = process.load(request, self.deadlines)
        if process.hello is None:
            raise RuntimeError("a worker that loaded said hello before")  # the protocol's order
        return Member(process=process, deadlines=self.deadlines, hello=process.hello, loaded=loaded)

    def _interpreter(self, arm: Arm) -> str:
        if arm.environment is not None:
            return self.interpreters[arm.name]
        return arm.engine.get("python") or sys.executable

    def discard(self, arm: Arm) -> str | None:
        """End the arm's worker; the next use loads it anew. Return how it hung, or None if it ended as asked."""
        if member := self.members.pop(arm.name, None):
            return self._hang(self._stop(arm.name, member))
        return None

    def close(self) -> None:
        """End all workers."""
        self._close()

    def _close(self) -> dict[str, StopReport]:
        return {name: self._stop(name, self.members.pop(name)) for name in list(self.members)}

    def _hand_over(self) -> None:
        """Make room for the next swapped arm: end the former and let its memory be returned."""
        before, compressed = self.available_bytes(), self.compressed_bytes()
        reports = self._close()
        for arm, report in reports.items():
            if (words := self._hang(report)) is not None:
                self.hung(arm, words)
        if self.settle is None:
            return
        self.settle()
        held = [report.held_bytes for report in reports.values() if report.held_bytes is not None]
        if not held:
            self.unreturned_bytes = None
            return
        # What was compressed took less room than a footprint says.
        uncompressed = sum(held) - max(compressed - self.compressed_bytes(), 0)
        grown = self.available_bytes() - before
        self.unreturned_bytes = unreturned_bytes(held_bytes=max(uncompressed, 0), grown_bytes=grown)
        if self.unreturned_bytes:
            missing = f"{self.unreturned_bytes / 1e9:.2f} of the {uncompressed / 1e9:.2f} GB that it held"
            self.note(
                f"{', '.join(reports)}: ended, but {missing} are not available again; the next arm has that much less"
            )

    def memory_reading(self) -> Reading:
        """Return a telemetry reading of the memory that an ended swapped arm has not returned."""
        reason = "no arm has been swapped out yet" if self.unreturned_bytes is None else None
        source = "available memory before and after a swapped arm's end"
        value = None if self.unreturned_bytes is None else float(self.unreturned_bytes)
        return Reading(field="unreturned_bytes", value=value, source=source, reason=reason)

    def _hang(self, report: StopReport) -> str | None:
        if not report.hung:
            return None
        how = f"ended by {report.signals[-1]}" if report.signals else "gone by then"
        return f"did not stop within {self.deadlines.teardown_s:g} s, {how}"

    def _stop(self, arm: str, member: Member) -> StopReport:
        """Stop a worker. One that had to be signalled has answered all the same; the note is for people."""
        report = member.process.stop(self.deadlines.teardown_s)
        self.survivors |= set(report.survivors)
        if report.survivors:
            self.note(f"{arm}: processes {report.surviving_pids} survive SIGKILL; their memory stays occupied")
        elif report.open_ports:
            self.note(f"{arm}: ended, but there still is an answer on ports {report.open_ports} of its servers")
        elif (words := self._hang(report)) is not None:
            self.note(f"{arm}: {words}")
        elif report.signals and not _ended_in_a_request(report):
            self.note(f"{arm}: left processes behind, ended by {report.signals[-1]}")
        return report


def _ended_in_a_request(report: StopReport) -> bool:
    """Return whether a request was running: such a worker gets a signal at once, which is no sign of leftovers."""
    return report.signals == (signal.SIGTERM.name,) and report.returncode == -signal.SIGTERM


def _file_name(arm: str) -> str:
    """Turn an arm's name into an ASCII file name: not every locale allows other letters."""
    return "".join(map(_letter, arm))


def _letter(character: str) -> str:
    if not character.isascii():
        return f"u{ord(character):x}"
    return character if character.isalnum() or character in "-._=" else "_"
