import pytest

from orchestrator.running.progress import StoredTrial, remainder, under_way
from orchestrator.schedule import ScheduledTrial, build_schedule
from tests.orchestrator.plans import arm, plan

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
    kinds = {trial.kind for unit in remainder(SCHEDULE, []).units for trial in unit.trials}
    assert kinds == {"bracket", "measured"}


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


def test_a_round_with_a_trial_left_out_is_replayed_up_to_the_limit() -> None:
    rest = [stored(trial) for trial in SCHEDULE if trial.round != 2]
    one_out = [stored(trial, counts=trial.position != 1) for trial in in_round(2)]
    left = remainder(SCHEDULE, rest + one_out, replays=1)
    assert [(unit.round, unit.attempt) for unit in left.units] == [(2, 1)]
    again = [stored(trial, attempt=1, counts=trial.position != 0) for trial in in_round(2)]
    assert remainder(SCHEDULE, rest + one_out + again, replays=1).units == ()
    assert [unit.attempt for unit in remainder(SCHEDULE, rest + one_out + again, replays=2).units] == [2]


def test_without_replays_a_round_with_a_trial_left_out_is_done() -> None:
    left_out = [stored(trial, counts=trial.sequence % 5 != 0) for trial in SCHEDULE]
    assert remainder(SCHEDULE, left_out).units == ()


def test_a_control_run_that_was_left_out_is_run_again_up_to_the_limit() -> None:
    first = next(trial for trial in SCHEDULE if trial.kind == "bracket")
    rest = [stored(trial) for trial in SCHEDULE if trial is not first]
    out = stored(first, counts=False)
    assert [unit.trials for unit in remainder(SCHEDULE, [*rest, out], replays=1).units] == [(first,)]
    assert remainder(SCHEDULE, [*rest, out, out], replays=1).units == ()


def test_the_newest_attempt_counts_and_not_the_ones_before() -> None:
    rest = [stored(trial) for trial in SCHEDULE if trial.round != 2]
    before = [stored(trial) for trial in in_round(2)]
    half = [stored(trial, attempt=1) for trial in in_round(2)[:1]]
    left = remainder(SCHEDULE, rest + before + half)
    assert [(unit.round, unit.attempt) for unit in left.units] == [(2, 2)]
    assert left.broken_rounds == (2,)


def test_a_replay_draws_its_order_anew_and_the_same_on_every_machine() -> None:
    (first, *_) = [unit for unit in remainder(SCHEDULE, [], seed=7).units if unit.round is not None]
    orders = [first.order]
    unit = first
    for attempt in range(1, 9):
        unit = unit.again(seed=7)
        assert unit.attempt == attempt
        assert sorted(trial.sequence for trial in unit.trials) == sorted(trial.sequence for trial in first.trials)
        assert [trial.position for trial in unit.trials] == list(range(len(unit.trials)))
        orders.append(unit.order)
    assert len(set(orders)) > 1
    assert first.again(seed=7).order == orders[1]
    assert first.again(seed=None).order == first.order


def test_a_round_that_goes_on_elsewhere_has_the_order_of_its_attempt() -> None:
    (first, *_) = [unit for unit in remainder(SCHEDULE, [], seed=7).units if unit.round is not None]
    again = first.again(seed=7)
    started = {"sequence": again.trials[1].sequence, "attempt": 1, "started_at": "2026-11-30T00:00:00+00:00"}
    found = under_way(SCHEDULE, [], started, seed=7)
    assert found is not None
    assert found.unit.order == again.order
    assert found.trial.position == 1
