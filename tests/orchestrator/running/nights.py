"""A machine's night on a clock of its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from db.engine import Database
from orchestrator.plan import Gate, Plan
from orchestrator.planning.weights import find_weights
from orchestrator.running.crew import Crew
from orchestrator.running.gate import Gatekeeper
from orchestrator.running.monitor import Lookout
from orchestrator.running.progress import remainder
from orchestrator.running.recorder import Recorder, create_run
from orchestrator.running.runner import Clocks, Runner
from orchestrator.running.stored import log_folder
from orchestrator.schedule import ScheduledTrial, build_schedule
from tests.orchestrator.plans import arm, plan
from tests.orchestrator.running.trials import Witness
from workers.machine.host import read_host
from workers.machine.samples import Sample, Sampler
from workers.machine.telemetry import Reading

TICK_S = 200.0  # every look at the monotonic clock; a trial takes three
EPOCH_S = 1_790_000_000.0
QUIET = {"thermal_level": 0.0, "cpu_cores_others": 0.1, "swap_used_bytes": 0.0}
State = dict[str, float]


@dataclass
class Night:
    """The machine, and what is done to it: by the hour, or at a trial of this number."""

    state: Callable[[float], State] = lambda at_s: QUIET
    jumps: dict[int, float] = field(default_factory=dict)  # by trial: how far the wall clock moves while it runs
    epoch_s: float = EPOCH_S
    now_s: float = 0.0
    offset_s: float = 0.0
    started: int = 0
    wall_looks: int = 0

    def monotonic(self) -> float:
        self.now_s += TICK_S
        return self.now_s

    def wall(self) -> float:
        """Called three times per trial: before the gate, at its start, at its end. The jump comes before the third."""
        self.wall_looks += 1
        if self.wall_looks == 3:
            self.offset_s += self.jumps.pop(self.started, 0.0)
        return self.epoch_s + self.now_s + self.offset_s

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def readings(self) -> tuple[Reading, ...]:
        found = {"power_source": "mains"} | self.state(self.now_s)
        return tuple(
            Reading(field=name, value_text=value) if isinstance(value, str) else Reading(field=name, value=value)
            for name, value in found.items()
        )

    @property
    def problem(self) -> str | None:
        return None

    def since(self, at_s: float) -> Sequence[Sample]:
        """As the sampler: once every ten seconds."""
        times = range(int(max(at_s, 0.0)), int(self.now_s) + 1, 10)
        return [
            Sample(
                at_s=float(second),
                readings=tuple(Reading(field=k, value=v, source="night") for k, v in self.state(second).items()),
            )
            for second in times
        ]


class Watcher(Witness):
    def __init__(self, night: Night) -> None:
        super().__init__()
        self.waits: list[str] = []
        self._night = night

    def trial_started(self, trial: ScheduledTrial) -> None:
        self._night.started += 1
        self._night.wall_looks = 0

    def waiting(self, text: str) -> None:
        self.waits.append(text)


def run_night(database: Database, planned: Plan, tmp_path: Path, night: Night) -> tuple[Recorder, Watcher]:
    recorder = create_run(database, planned, host=read_host(), weights=find_weights(planned), log_root=tmp_path)
    schedule = build_schedule(planned)
    watcher = Watcher(night)
    lookout = Lookout(readings=night.readings, sampler=cast(Sampler, night), clock=night.clock)
    log_folder(recorder.database, recorder.run_id).mkdir(parents=True)
    Runner(
        plan=planned,
        schedule=schedule,
        recorder=recorder,
        crew=Crew(
            run_id=recorder.run_id,
            log_dir=log_folder(recorder.database, recorder.run_id),
            deadlines=planned.design.deadlines,
            swap=False,
            weights={name: found.for_worker for name, found in find_weights(planned).items()},
            journal_path=tmp_path / "journal",
        ),
        host=read_host(),
        observer=watcher,
        lookout=lookout,
        keeper=Gatekeeper(
            gate=planned.gate,
            samples=lookout.recent,
            clock=night.clock,
            sleep=night.sleep,
            notify=watcher.waiting,
            platform="darwin",
        ),
        clocks=Clocks(wall=night.wall, monotonic=night.monotonic),
    ).run(remainder(schedule, []))
    return recorder, watcher


def planned(gate: Gate | None = None, *, rounds: int = 8, **settings: Any) -> Plan:
    """Two arms of which one is a tenth faster, on a machine whose speed drifts."""
    arms = (arm("a", **settings), arm("faster", effect=1.1, **settings))
    return replace(plan(*arms, rounds=rounds), gate=gate or Gate())
