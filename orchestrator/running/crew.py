"""The worker processes of a run: one an arm, resident or swapped. Knows nothing of rounds or results."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.plan import Arm, Deadlines
from workers.errors import WorkerFault
from workers.process import WorkerProcess, WorkerSpec
from workers.protocol import Generate, Generation, Hello, Load, Loaded

# Of an engine's configuration: who it is, its other weights, and the interpreter that runs it.
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
        """Run one conversation: one generation a turn.

        Raises:
            workers.errors.WorkerFault: with the turns that were answered before it.
        """
        return self.process.generate(request, self.deadlines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """An arm's checkpoints as the worker needs them: paths absolute."""

    checkpoint: dict[str, Any]
    draft: dict[str, Any] | None


@dataclass(slots=True)
class Crew:
    """Loads arms on demand. `swap` keeps one arm at a time: the others' processes end before it is loaded."""

    run_id: str
    log_dir: Path
    deadlines: Deadlines
    swap: bool
    weights: Mapping[str, Weights]  # by arm
    journal_path: Path
    note: Callable[[str], None] = lambda text: None  # told what a person should know of a worker's end
    settle: Callable[[], object] | None = None  # called between one swapped arm's end and the next one's load
    members: dict[str, Member] = field(default_factory=dict)

    def member(self, arm: Arm, *, on_load: Callable[[Member], None]) -> Member:
        """The arm's worker, loaded first if it is not there; then `on_load` is called before it is returned.

        Raises:
            workers.errors.WorkerFault: it did not load.
        """
        if arm.name in self.members:
            return self.members[arm.name]
        if self.swap and self.members:
            self.close()
            if self.settle is not None:
                self.settle()
        member = self._load(arm)
        self.members[arm.name] = member
        try:
            on_load(member)
        except WorkerFault:
            self.discard(arm)  # half warmed up is not loaded
            raise
        return member

    def _load(self, arm: Arm) -> Member:
        process = WorkerProcess(
            WorkerSpec(
                run_id=self.run_id,
                arm=arm.name,
                log_path=self.log_dir / f"{_file_name(arm.name)}.log",
                journal_path=self.journal_path,
                python=arm.engine.get("python") or sys.executable,
                environment=arm.engine.get("environment") or {},
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

    def discard(self, arm: Arm) -> None:
        """End the arm's worker; the next use loads it anew."""
        if member := self.members.pop(arm.name, None):
            self._stop(arm.name, member)

    def close(self) -> None:
        """End all workers."""
        for name in list(self.members):
            self._stop(name, self.members.pop(name))

    def _stop(self, arm: str, member: Member) -> None:
        """A worker that has to be signalled has answered all the same: its trials count, and the note is for people."""
        report = member.process.stop(self.deadlines.teardown_s)
        if report.survivors:
            self.note(f"{arm}: processes {report.survivors} survive SIGKILL; what they hold stays taken")
        elif report.open_ports:
            self.note(f"{arm}: ended, and yet somebody answers on ports {report.open_ports} of its servers")
        elif report.signals:
            self.note(f"{arm}: did not stop within {self.deadlines.teardown_s:g} s, ended by {report.signals[-1]}")


def _file_name(arm: str) -> str:
    """An arm's name as a file's."""
    return "".join(character if character.isalnum() or character in "-._=" else "_" for character in arm)
