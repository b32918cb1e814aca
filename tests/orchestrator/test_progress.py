import pytest

from orchestrator.progress import StoredTrial, remainder
from orchestrator.schedule import ScheduledTrial, build_schedule

from .plans import arm, plan

SCHEDULE = build_schedule(plan(arm("a"), arm("b")))
ROUNDS = 6
UNITS = ROUNDS + 2  # and the control runs at both ends


def stored(trial: ScheduledTrial, *, attempt: int = 0, counts: bool = True) -> StoredTrial:
    return StoredTrial(
        sequence=trial.sequence,
        round=trial.round,
        attempt=None if trial.round is None else attempt,
        counts=counts,
    )


def in_round(index: int) -> list[ScheduledTrial]:
    return [trial for trial in SCHEDULE if trial.round == index]


def test_a_new_run_has_everything_left_in_order() -> None:
    left = remainder(SCHEDULE, [])
    assert len(left.units) == UNITS
    assert [unit.round for unit in left.units] == [None, 0, 1, 2, 3, 4, 5, None]
    assert all(unit.attempt == 0 for unit in left.units)
    assert left.broken_rounds == ()


def test_warm_ups_are_not_part_of_it() -> None:
    assert all(trial.kind != "warmup" for unit in remainder(SCHEDULE, []).units for trial in unit.trials)


def test_finished_trials_are_not_run_again() -> None:
    done = [stored(trial) for trial in SCHEDULE]
    assert remainder(SCHEDULE, done).units == ()


def test_a_round_cut_short_is_replayed_whole() -> None:
    done = [stored(trial) for trial in [*in_round(0), *in_round(1)[:2]]]
    left = remainder(SCHEDULE, done)
    assert left.broken_rounds == (1,)
    replayed = next(unit for unit in left.units if unit.round == 1)
    assert (replayed.attempt, len(replayed.trials)) == (1, 3)
    assert all(unit.round != 0 for unit in left.units)


def test_a_replay_cut_short_is_replayed_again() -> None:
    first = [stored(trial, counts=False) for trial in in_round(1)[:2]]
    second = [stored(trial, attempt=1) for trial in in_round(1)[:1]]
    left = remainder(SCHEDULE, first + second)
    assert next(unit for unit in left.units if unit.round == 1).attempt == 2


def test_an_excluded_half_leaves_nothing_to_exclude() -> None:
    half = [stored(trial, counts=False) for trial in in_round(1)[:2]]
    assert remainder(SCHEDULE, half).broken_rounds == ()


def test_rounds_are_complete_without_a_dropped_arm() -> None:
    done = [stored(trial) for trial in SCHEDULE if trial.arm == "a"]
    assert remainder(SCHEDULE, done, dropped=frozenset({"b"})).units == ()


@pytest.mark.parametrize("finished", range(len(SCHEDULE)))
def test_wherever_it_stopped_each_trial_ends_up_stored_once(finished: int) -> None:
    measured = [trial for trial in SCHEDULE if trial.kind != "warmup"]
    done = [stored(trial) for trial in measured[:finished]]
    left = remainder(SCHEDULE, done)
    kept = {row.sequence for row in done if row.round not in left.broken_rounds or row.round is None}
    replayed = [trial.sequence for unit in left.units for trial in unit.trials]
    assert sorted([*kept, *replayed]) == [trial.sequence for trial in measured]
