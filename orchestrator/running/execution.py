"""Execute a stored run on this machine, from its first unfinished round on.

Modules that need pandas are imported late: a resumed run reaches its first trial a second earlier.
"""

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from db.errors import StorageError
from orchestrator.configuration.secrets import watch_references
from orchestrator.environments.provision import ready, recorded_packages
from orchestrator.errors import HeldError, IncompleteError, InputError, RefusedError
from orchestrator.plan import Plan
from orchestrator.planning.weights import ArmWeights, find_weights
from orchestrator.running.crew import Crew
from orchestrator.running.events import Observer, Several
from orchestrator.running.leases import leased
from orchestrator.running.leftovers import journal_beside
from orchestrator.running.monitor import watched
from orchestrator.running.preflight import warn
from orchestrator.running.progress import Remainder, remainder, under_way
from orchestrator.running.provenance import refuse_other_plan
from orchestrator.running.recorder import Recorder
from orchestrator.running.run_state import Chronicle, Heartbeat
from orchestrator.running.runner import AfterRounds, Runner
from orchestrator.running.stored import Stored, log_folder, stored_trials
from orchestrator.schedule import ScheduledTrial, build_schedule, replay_seed
from workers.files.private import make_private_folder
from workers.machine.host import read_host
from workers.machine.memory import wait_until_settled
from workers.machine.process_identity import current_lease


def _probes(plan: Plan, recorder: Recorder, crew: Crew) -> None:
    from orchestrator.running.probes import probe_run

    probe_run(plan, recorder, crew)


def carry_out(
    recorder: Recorder,
    *,
    observer: Observer,
    should_stop: Callable[[], bool] = lambda: False,
    after_rounds: AfterRounds | None = _probes,
) -> None:
    """Execute the rest of a stored run. The run's state records how it ended.

    Raises:
        HeldError: another process runs it; nothing was changed.
        KeyboardInterrupt: interrupted, by Ctrl-C, by SIGTERM or by the end of the terminal.
        Exception: any other error that ended it; the finished trials are stored.
    """
    with leased(recorder.database, recorder.run_id):
        _carry_out(recorder, observer, should_stop, after_rounds)


def _carry_out(
    recorder: Recorder, observer: Observer, should_stop: Callable[[], bool], after_rounds: AfterRounds | None
) -> None:
    try:
        with ending_signals_as_interrupts():
            run_recorded(recorder, observer=observer, should_stop=should_stop, after_rounds=after_rounds)
    except HeldError:
        raise
    except KeyboardInterrupt:
        _leave(recorder, "interrupted", note="interrupted by hand")
        raise
    except InputError as error:
        _leave(recorder, "failed", note=str(error))
        raise
    except (IncompleteError, RefusedError) as error:
        _leave(recorder, "interrupted", note=str(error))
        raise
    except Exception as error:
        _leave(recorder, "interrupted", note=f"{type(error).__name__}: {error}")
        raise
    recorder.finish("done")


def _leave(recorder: Recorder, status: str, *, note: str) -> None:
    """Store how the run ended. If that fails, its lease still shows that the process is gone."""
    try:
        recorder.finish(status, note=note)
    except StorageError as error:
        warn(f"the end of run {recorder.run_id} cannot be stored ({error})")


def run_recorded(
    recorder: Recorder,
    *,
    observer: Observer,
    should_stop: Callable[[], bool] = lambda: False,
    after_rounds: AfterRounds | None = None,
) -> None:
    """Execute the rest of a stored run.

    Args:
        should_stop: called before each round; a round that has begun is finished.
        after_rounds: called after the last trial, before the workers end.

    Raises:
        HeldError: another process runs it.
        NotOursError: its plan came from elsewhere, or is not the one that was stored.
        InterlaceError: see `orchestrator.running.runner.Runner.run`.
    """
    refuse_other_plan(recorder.database, recorder.run_id, recorder.plan)
    plan, schedule = recorder.plan, build_schedule(recorder.plan)
    stored = stored_trials(recorder.database, recorder.run_id)
    if plan.control in stored.dropped:
        raise IncompleteError(f"the control {plan.control} takes no further part: mend it, and start a new run")
    if stored.finished and not _left(recorder, schedule, stored).remainder.units:
        return
    recorder.take_lease(current_lease())
    found = _go_on(recorder, schedule)
    if not found.remainder.units and after_rounds is None:
        return
    weights = find_weights(plan)
    observers = Several([Chronicle(recorder.database, recorder.run_id, plan.design.rounds), observer])
    with (
        Heartbeat(recorder.database, recorder.run_id),
        watched(plan, observers.waiting) as (lookout, keeper),
    ):
        Runner(
            plan=plan,
            schedule=schedule,
            recorder=recorder,
            crew=crew_of(recorder, weights, note=observer.noted),
            host=read_host(),
            observer=observers,
            lookout=lookout,
            keeper=keeper,
            planned_bytes={name: each.planned_bytes for name, each in weights.items()},
            dropped=set(found.dropped),
            decisions=lambda: _decided(recorder),
            decided=set(found.decided),
            should_stop=should_stop,
            after_rounds=after_rounds,
        ).run(found.remainder)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """The point from which a run is resumed."""

    remainder: Remainder
    dropped: frozenset[str]
    decided: frozenset[str]


def _go_on(recorder: Recorder, schedule: Sequence[ScheduledTrial]) -> _Point:
    """Settle what a former process left: the trial in which it died, and a round that was cut short."""
    stored = stored_trials(recorder.database, recorder.run_id)
    seed = replay_seed(recorder.plan)
    if (died_in := under_way(schedule, stored.trials, stored.current, seed=seed)) is not None:
        recorder.save_interrupted(died_in)
        stored = stored_trials(recorder.database, recorder.run_id)
    point = _left(recorder, schedule, stored)
    for index in point.remainder.broken_rounds:
        recorder.exclude_round(index, reason="round_cut_short: replayed whole")
    return point


def _left(recorder: Recorder, schedule: Sequence[ScheduledTrial], stored: Stored) -> _Point:
    decided = frozenset(_decided(recorder))
    left = remainder(
        schedule,
        stored.trials,
        dropped=stored.dropped | decided,
        replays=recorder.plan.gate.replays,
        seed=replay_seed(recorder.plan),
    )
    return _Point(remainder=left, dropped=stored.dropped, decided=decided)


def _decided(recorder: Recorder) -> dict[str, str]:
    if recorder.plan.design.stop != "early":
        return {}
    from orchestrator.judging import decisions
    from orchestrator.stored_run import StoredRun

    run = StoredRun(database=recorder.database, run_id=recorder.run_id, plan=recorder.plan)
    return decisions(run.trials, run.plan)


def crew_of(
    recorder: Recorder, weights: Mapping[str, ArmWeights], *, note: Callable[[str], None], swap: bool | None = None
) -> Crew:
    """Return the run's workers, none of them loaded yet.

    Args:
        swap: whether one is loaded at a time; None: as planned.
    """
    plan = recorder.plan
    watch_references(plan.arms)
    log_dir = log_folder(recorder.database, recorder.run_id)
    make_private_folder(log_dir)
    return Crew(
        run_id=recorder.run_id,
        log_dir=log_dir,
        deadlines=plan.design.deadlines,
        swap=plan.design.residency == "swap" if swap is None else swap,
        weights={name: found.for_worker for name, found in weights.items()},
        journal_path=journal_beside(Path(recorder.database.url.database or ".")),
        note=note,
        interpreters=ready(plan, note),
        packages=recorded_packages(plan),
        settle=None if recorder.simulated else lambda: wait_until_settled(plan.gate.settle_s),
    )


@contextmanager
def ending_signals_as_interrupts() -> Iterator[None]:
    """Let SIGTERM, and SIGHUP of a closing terminal, end a run as Ctrl-C does: it can be resumed, workers end."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
