"""The gate on a fake clock: what it waits for, how long, and what becomes of a trial when its time is over."""

from collections.abc import Callable

import pytest

from orchestrator.plan import Gate
from orchestrator.running.gate import ORPHAN, Finding, Gatekeeper, Passage, gate_words
from orchestrator.running.trial import Circumstances, excluded_reason
from orchestrator.schedule import build_schedule
from tests.orchestrator.composing import plan_of
from workers.machine.samples import Sample
from workers.machine.telemetry import Reading

QUIET = {
    "thermal_level": 0.0,
    "power_source": "mains",
    "cpu_cores_others": 0.1,
    "gpu_ms_per_s_others": 2.0,
    "vm_pressure": 1.0,
    "stalled_memory_us": 0.0,
    "swap_used_bytes": 1e9,
}
State = dict[str, float | str]


class Machine:
    """A machine whose state is a function of the time, looked at once a second for the last minute."""

    def __init__(self, state: Callable[[float], State]) -> None:
        self.now = 1000.0
        self._state = state
        self.said: list[str] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def samples(self) -> list[Sample]:
        return [_sample(self.now - back, self._state(self.now - back - 1000.0)) for back in range(60, -1, -1)]

    def keeper(self, gate: Gate, *, platform: str = "darwin") -> Gatekeeper:
        return Gatekeeper(
            gate=gate,
            samples=self.samples,
            clock=self.clock,
            sleep=self.sleep,
            notify=self.said.append,
            platform=platform,
        )


def _sample(at_s: float, state: State) -> Sample:
    readings = [
        Reading(field=name, value_text=value) if isinstance(value, str) else Reading(field=name, value=value)
        for name, value in state.items()
    ]
    return Sample(at_s=at_s, readings=tuple(readings))


def always(**changes: float | str) -> Callable[[float], State]:
    return lambda _: QUIET | changes


def until(end_s: float, **changes: float | str) -> Callable[[float], State]:
    """Disturbed until so many seconds after the start."""
    return lambda at_s: QUIET | changes if at_s < end_s else QUIET


def test_a_quiet_machine_passes_at_once() -> None:
    passage = Machine(always()).keeper(Gate()).wait()
    assert (passage.waited_s, passage.state, passage.unreadable) == (0.0, "open", {})


def test_a_machine_that_reports_nothing_passes_with_the_reasons() -> None:
    def mute(_: float) -> State:
        return {}

    passage = Machine(mute).keeper(Gate()).wait()
    assert passage.state == "open"
    assert set(passage.unreadable) == set(QUIET)
    assert passage.unreadable["thermal_level"] == "not read on this platform"


def test_the_reason_that_a_reading_gives_is_the_one_stored() -> None:
    reading = Reading(field="thermal_level", reason="no thermal zones here")
    keeper = Machine(always()).keeper(Gate())
    keeper.samples = lambda: [Sample(at_s=1000.0, readings=(reading,))]
    assert keeper.wait().unreadable["thermal_level"] == "no thermal zones here"


def test_heat_is_waited_for_until_it_has_been_gone_for_half_a_minute() -> None:
    machine = Machine(until(12, thermal_level=2.0))
    passage = machine.keeper(Gate()).wait()
    assert passage.state == "waited"
    assert passage.waited_s == pytest.approx(12 + 30, abs=2)
    assert passage.waited_for == {"thermal_level": pytest.approx(passage.waited_s)}
    assert machine.said[0] == "thermal level 2, waiting for 0 for 30 s (420 s left)"
    assert machine.said[1] == "thermal level 2, waiting for 0 for 30 s (419 s left)"


def test_a_machine_that_stays_hot_starts_after_the_time_out_and_is_marked() -> None:
    passage = Machine(always(thermal_level=3.0)).keeper(Gate()).wait()
    assert passage.waited_s == 420.0
    assert passage.hot_start == "thermal level 3, waiting for 0 for 30 s after 420 s"
    assert (passage.state, passage.hot_kinds, passage.skipped) == ("hot_start", ("heat",), False)


def test_or_is_skipped_by_choice() -> None:
    passage = Machine(always(thermal_level=3.0)).keeper(Gate(on_timeout="skip")).wait()
    assert (passage.state, passage.skipped) == ("skipped", True)


def test_every_trial_waits_for_heat_again() -> None:
    keeper = Machine(always(thermal_level=1.0)).keeper(Gate(timeout_s=60))
    assert [keeper.wait().waited_s for _ in range(3)] == [60.0, 60.0, 60.0]


@pytest.mark.parametrize(
    ("disturbed", "says"),
    [
        ({"cpu_cores_others": 1.5}, "others use 1.5 cores, waiting for 0.5"),
        ({"gpu_ms_per_s_others": 300.0}, "others use 300 ms/s of the GPU, waiting for 60"),
        ({"vm_pressure": 2.0}, "memory pressure 2, waiting for 1"),
        ({"stalled_memory_us": 500_000.0}, "tasks wait for memory 50% of the time, waiting for 1%"),
        ({"power_source": "battery"}, "power from battery, waiting for mains"),
    ],
)
def test_each_condition_says_what_it_sees_and_wants(disturbed: State, says: str) -> None:
    machine = Machine(until(20, **disturbed))
    passage = machine.keeper(Gate()).wait()
    assert machine.said[0].startswith(says)
    assert passage.state == "waited"
    assert list(passage.waited_for) == list(disturbed)


def test_a_power_mode_is_waited_for_where_one_is_named() -> None:
    machine = Machine(always(power_mode="low"))
    assert machine.keeper(Gate()).wait().state == "open"
    passage = machine.keeper(Gate(power_mode="high", timeout_s=3)).wait()
    assert passage.hot_start == "power mode low, waiting for high after 3 s"


def test_swap_must_not_grow() -> None:
    machine = Machine(lambda at_s: QUIET | {"swap_used_bytes": 1e9 + 1e7 * min(at_s, 8.0)})
    passage = machine.keeper(Gate()).wait()
    assert list(passage.waited_for) == ["swap_used_bytes"]
    assert 8 < passage.waited_s < 15


def test_a_load_is_its_mean_over_the_window() -> None:
    """One busy second in five is no reason to wait."""
    blip = Machine(lambda at_s: QUIET | {"cpu_cores_others": 2.0 if int(at_s) % 5 == 0 else 0.0})
    assert blip.keeper(Gate()).wait().state == "open"


def test_on_a_shared_machine_other_load_holds_the_whole_run_up_for_20_seconds_at_most() -> None:
    keeper = Machine(always(cpu_cores_others=2.0)).keeper(Gate(), platform="linux")
    passages = [keeper.wait() for _ in range(50)]
    assert [passage.waited_s for passage in passages[:5]] == [5.0, 5.0, 5.0, 5.0, 0.0]
    assert sum(passage.waited_s for passage in passages) == 20.0
    assert {passage.hot_kinds for passage in passages} == {("busy",)}


def test_on_a_mac_it_waits_as_for_heat_and_both_are_settings() -> None:
    assert Machine(always(cpu_cores_others=2.0)).keeper(Gate()).wait().waited_s == 420.0
    gate = Gate(busy_timeout_s=7, busy_budget_s=10)
    keeper = Machine(always(cpu_cores_others=2.0)).keeper(gate)
    assert [keeper.wait().waited_s for _ in range(3)] == [7.0, 3.0, 0.0]


BROWSING = {"power_source": "battery", "cpu_cores_others": 1.4, "gpu_ms_per_s_others": 90.0, "thermal_level": 1.0}


def test_the_quickstart_on_a_battery_beside_a_browser_waits_for_minutes_at_most_and_keeps_its_trials() -> None:
    plan = plan_of("sweep=quickstart")
    trials = len(build_schedule(plan))
    machine = Machine(always(**BROWSING))
    keeper = machine.keeper(plan.gate)
    passages = [keeper.wait() for _ in range(trials)]
    assert sum(passage.waited_s for passage in passages) <= 5.0 * trials < 300.0
    assert all(passage.hot_start for passage in passages)
    newest = machine.samples()[-1]
    assert {excluded_reason(plan.gate, during(passage, newest)) for passage in passages} == {None}
    machine = Machine(always(**BROWSING | {"thermal_level": 0.0}))
    keeper = machine.keeper(plan.gate)
    assert sum(keeper.wait().waited_s for _ in range(trials)) == 20.0


def during(passage: Passage, sample: Sample) -> Circumstances:
    readings = sample.readings
    return Circumstances(passage=passage, wall_s=5.0, monotonic_s=5.0, before=readings, during=readings, after=readings)


@pytest.mark.parametrize(
    ("gate", "platform", "words"),
    [
        (Gate(), "darwin", "waits up to 420 s per trial for a cool machine and mains power, 420 s per trial and"),
        (Gate(), "linux", "5 s per trial and 20 s per run for other load; then the trial runs, flagged hot_start"),
        (Gate(power_source="any"), "darwin", "waits up to 420 s per trial for a cool machine, 420 s"),
        (Gate(power_source="any"), "darwin", "; any power source"),
        (Gate(on_timeout="skip"), "darwin", "then the trial is skipped"),
        (Gate(exclude_hot_start="none"), "darwin", "flagged hot_start and counted: what that costs shows in the A/A"),
        (Gate(power_mode="high"), "darwin", "mains power and power mode high"),
        (Gate(timeout_s=0.0, busy_timeout_s=0.0), "darwin", "waits for nothing"),
    ],
)
def test_a_gate_says_how_long_it_can_hold_a_trial_up(gate: Gate, platform: str, words: str) -> None:
    assert words in gate_words(gate, platform=platform)


def test_the_canary_holds_up_a_machine_that_is_slower_than_cold() -> None:
    ratios = iter([0.90, 0.95, 0.98])
    machine = Machine(always())
    keeper = machine.keeper(Gate(canary_tokens=16))
    passage = keeper.wait(canary=lambda: next(ratios))
    assert machine.said[0].startswith("the canary runs at 90.0% of its cold speed, waiting for 97%")
    assert passage.waited_s == 20.0  # a canary every ten seconds, not with every look
    assert keeper.canary_ratio == 0.98


def test_no_canary_warms_a_machine_that_is_to_cool() -> None:
    """Its first decode is the reference: on a hot machine it would be none, and each one keeps it hot."""

    def cooling(at_s: float) -> State:
        return QUIET | {"thermal_level": 2.0 if at_s < 100 else 0.0}

    machine, ran_at = Machine(cooling), []

    def canary() -> float:
        ran_at.append(machine.now - 1000.0)
        return 1.0

    passage = machine.keeper(Gate(canary_tokens=16)).wait(canary=canary)
    assert passage.state == "waited"
    assert ran_at == [passage.waited_s]
    assert passage.waited_s >= 100


def test_a_machine_that_stays_hot_runs_no_canary_at_all() -> None:
    keeper = Machine(always(thermal_level=2.0)).keeper(Gate(canary_tokens=16))
    assert keeper.wait(canary=lambda: pytest.fail("it ran")).state == "hot_start"
    assert keeper.canary_ratio is None


def test_a_canary_without_a_result_passes() -> None:
    passage = Machine(always()).keeper(Gate(canary_tokens=1)).wait(canary=lambda: None)
    assert passage.state == "open"
    assert "canary" in passage.unreadable


def test_cooldown_comes_first() -> None:
    assert Machine(always()).keeper(Gate(cooldown_s=30)).wait().waited_s == 30.0


def test_nothing_is_waited_for_where_every_condition_is_off() -> None:
    off = Gate(
        thermal_level_max=None,
        power_source="any",
        cpu_cores_others_max=None,
        gpu_ms_per_s_others_max=None,
        vm_pressure_max=None,
        memory_stalled_max=None,
        swap_growth_bytes_max=None,
        timeout_s=0.0,
    )
    awful = always(thermal_level=4.0, power_source="battery", cpu_cores_others=9.0, vm_pressure=4.0)
    assert Machine(awful).keeper(off).wait() == Passage()


def leftover(keeper: Gatekeeper, machine: Machine, *, until_s: float) -> list[float]:
    """Lets something look like a leftover until then; the moments at which it was looked for."""
    looks: list[float] = []

    def look() -> Finding:
        looks.append(machine.now - 1000.0)
        problem = "process 4711 listens on port 8080" if machine.now - 1000.0 < until_s else None
        return Finding(name="orphan", kind=ORPHAN, problem=problem)

    keeper.leftovers = look
    return looks


def test_what_looks_like_a_leftover_is_waited_for_and_looked_at_anew() -> None:
    machine = Machine(always())
    keeper = machine.keeper(Gate())
    looks = leftover(keeper, machine, until_s=10)
    passage = keeper.wait()
    assert (passage.state, passage.waited_for) == ("waited", {"orphan": 10.0})
    assert looks == [float(second) for second in range(11)]
    assert machine.said[0] == "process 4711 listens on port 8080 (420 s left)"


def test_one_that_stays_holds_the_night_up_once_and_marks_its_trials() -> None:
    machine = Machine(always())
    keeper = machine.keeper(Gate(timeout_s=60))
    leftover(keeper, machine, until_s=1e9)
    passages = [keeper.wait() for _ in range(4)]
    assert [passage.waited_s for passage in passages] == [60.0, 0.0, 0.0, 0.0]
    assert {passage.hot_kinds for passage in passages} == {("orphan",)}
    assert all("process 4711" in (passage.hot_start or "") for passage in passages)


def test_time_that_is_waited_for_heat_as_well_does_not_spend_the_runs_budget_for_load() -> None:
    """A run that cools down anyway loses nothing to the load meanwhile."""
    keeper = Machine(until(20, thermal_level=2.0, cpu_cores_others=1.5)).keeper(Gate())
    passage = keeper.wait()
    assert passage.waited_for["cpu_cores_others"] > 0
    assert keeper.busy_spent_s == 0.0


def test_time_that_is_waited_for_load_alone_spends_it() -> None:
    keeper = Machine(until(20, cpu_cores_others=1.5)).keeper(Gate())
    passage = keeper.wait()
    assert keeper.busy_spent_s == passage.waited_for["cpu_cores_others"] == passage.waited_s > 0
    assert keeper.orphan_spent_s == 0.0


def test_a_leftover_spends_its_own_budget_whatever_else_is_waited_for() -> None:
    machine = Machine(always(thermal_level=2.0, cpu_cores_others=1.5))
    keeper = machine.keeper(Gate(timeout_s=100, busy_timeout_s=10))
    keeper.leftovers = lambda: Finding(name="orphans", kind=ORPHAN, problem="a worker of an earlier run lives")
    first = keeper.wait()
    assert first.waited_for == {"thermal_level": 100.0, "cpu_cores_others": 10.0, "orphans": 100.0}
    assert (keeper.orphan_spent_s, keeper.busy_spent_s) == (100.0, 0.0)
    assert "orphans" not in keeper.wait().waited_for


def test_it_says_how_long_the_condition_with_the_most_time_is_waited_for() -> None:
    machine = Machine(always(thermal_level=2.0, cpu_cores_others=1.5))
    machine.keeper(Gate(timeout_s=100, busy_timeout_s=10)).wait()
    assert machine.said[0].endswith("(100 s left)")
    assert "thermal level 2" in machine.said[0]
    assert "others use 1.5 cores" in machine.said[0]
    assert "cores" not in machine.said[10]  # its own time is over
    assert machine.said[10].endswith("(90 s left)")


def test_a_growth_up_to_the_limit_is_no_reason_to_wait_and_is_measured_from_the_oldest_to_the_newest() -> None:
    def passage(*bytes_used: float) -> Passage:
        """Swap at the last seconds of the window; before, as at the first of them."""
        known = dict(zip(range(-len(bytes_used) + 1, 1), bytes_used, strict=True))
        machine = Machine(lambda at_s: QUIET | {"swap_used_bytes": known.get(int(at_s), bytes_used[0])})
        return machine.keeper(Gate(swap_growth_bytes_max=100, busy_timeout_s=0)).wait()

    assert passage(0.0, 50.0, 100.0).state == "open"
    assert passage(0.0, 50.0, 101.0).state == "hot_start"
    assert passage(0.0, 500.0, 100.0).state == "open"  # it fell again
    assert passage(500.0, 0.0, 50.0).state == "open"


def test_a_field_that_is_read_seldom_counts_as_it_was_last() -> None:
    """Older readings than the window's are no part of its mean: the newest one stands for them all."""
    machine = Machine(always())
    seldom = [_sample(900.0, {"thermal_level": 3.0}), _sample(901.0, {"thermal_level": 0.0})]
    keeper = machine.keeper(Gate(timeout_s=0, busy_timeout_s=0))
    keeper.samples = lambda: seldom
    assert keeper.wait().hot_start is None
    keeper.samples = lambda: seldom[::-1]
    assert "thermal level 3" in (keeper.wait().hot_start or "")


def test_of_words_the_newest_decides() -> None:
    gate = Gate(power_source="mains", timeout_s=0, busy_timeout_s=0)
    plugged_in = Machine(lambda at_s: QUIET | {"power_source": "battery" if at_s < 0 else "mains"})
    assert plugged_in.keeper(gate).wait().state == "open"
    unplugged = Machine(lambda at_s: QUIET | {"power_source": "mains" if at_s < 0 else "battery"})
    assert unplugged.keeper(gate).wait().hot_start == "power from battery, waiting for mains after 0 s"


def test_a_cooldown_of_a_second_is_one() -> None:
    assert Machine(always()).keeper(Gate(cooldown_s=1)).wait().waited_s == 1.0
