"""The sampler: a separate process that reports its cost, ends with its parent, and whose samples become a summary."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from workers.machine.optional_tools import MACOS_FIELDS
from workers.machine.sampler import NICENESS, worth_asking
from workers.machine.samples import Sample, Sampler, summarise
from workers.machine.telemetry import CHEAP, FIRST, Reading

PATIENCE_S = 30.0


def wait_for(sampler: Sampler, count: int) -> list[Sample]:
    deadline = time.monotonic() + PATIENCE_S
    while len(found := sampler.since(0)) < count and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(found) >= count
    return found


def test_it_samples_the_cheap_fields_from_a_niced_process_and_reports_its_cost() -> None:
    with Sampler(interval_s=0.05) as sampler:
        samples = wait_for(sampler, 4)
        nice = psutil.Process(sampler.pid).nice()
        assert sampler.problem is None
    assert nice >= NICENESS
    fields = {reading.field for reading in samples[-1].readings} - {"read_ms"}
    assert fields <= CHEAP
    assert "cpu_cores_others" in fields
    assert samples[-1].value("cpu_cores_others") is not None
    spent = [sample.cpu_s for sample in samples]
    assert all(each is not None for each in spent)
    assert spent == sorted(spent, key=lambda each: each or 0.0)
    assert not psutil.pid_exists(sampler.pid)


def test_the_work_of_our_tree_is_not_that_of_others() -> None:
    """The sampler is a child of the run: it leaves out what the run and its workers do, which is told it by their root.

    What a tree's work is, and that it is subtracted, is tested on given times beside `MachineReader`.
    """
    with Sampler(interval_s=0.05) as sampler:
        command = psutil.Process(sampler.pid).cmdline()
    assert str(os.getpid()) == command[command.index("--root-pid") + 1]


def _read(**reasons: str | None) -> list[Reading]:
    return [Reading(field=name, value=None if reason else 1.0, reason=reason) for name, reason in reasons.items()]


def test_only_what_failed_twice_for_the_same_reason_is_given_up() -> None:
    first = _read(
        good=None, absent="no sensor", once="process 7 ended", other="process 7 ended", rate=FIRST, gpu_mhz="0"
    )
    second = _read(
        good=None, absent="no sensor", once=None, other="process 8 ended", rate="no time passed", gpu_mhz="0"
    )
    assert worth_asking(first, second, streamed=()) == {"good", "once", "other", "rate"}
    assert worth_asking(first, second, streamed={"gpu_mhz"}) == {"good", "once", "other", "rate", "gpu_mhz"}


def test_what_this_machine_has_not_got_is_asked_for_no_longer_and_the_rest_goes_on() -> None:
    with Sampler(interval_s=0.05) as sampler:
        samples = wait_for(sampler, 3)
    first, second, third = ({reading.field: reading.reason for reading in each.readings} for each in samples[:3])
    gone = {name for name, reason in first.items() if reason is not None and reason == second[name]}
    assert third.keys() == first.keys() - (gone - set(MACOS_FIELDS) if sys.platform == "darwin" else gone)


@pytest.mark.slow
def test_a_sampler_that_was_held_up_goes_on() -> None:
    """By a stop here, in a night by other load: it must not end because a sample was overdue."""
    with Sampler(interval_s=0.05) as sampler:
        wait_for(sampler, 2)
        for _ in range(3):
            os.kill(sampler.pid, signal.SIGSTOP)
            time.sleep(0.3)
            taken = len(sampler.since(0))
            os.kill(sampler.pid, signal.SIGCONT)
            wait_for(sampler, taken + 3)
        assert sampler.problem is None


def test_it_ends_with_its_parent() -> None:
    code = (
        "import os, signal\nfrom workers.machine.samples import Sampler\n"
        "sampler = Sampler(interval_s=0.05)\nprint(sampler.pid, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    pid = int(done.stdout)
    deadline = time.monotonic() + PATIENCE_S
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_sampler_that_died_reports_it_in_the_trials_telemetry() -> None:
    with Sampler(interval_s=0.05) as sampler:
        wait_for(sampler, 1)
        os.kill(sampler.pid, signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE_S
        while sampler.problem is None and time.monotonic() < deadline:
            time.sleep(0.01)
        (reading,) = summarise([], problem=sampler.problem)
    assert "SIGKILL" in (reading.reason or "")


def sample(at_s: float, **values: float | None) -> Sample:
    readings = tuple(
        Reading(field=name, value=value, source="test", reason=None if value is not None else "no sensor")
        for name, value in values.items()
    )
    return Sample(at_s=at_s, readings=readings, cpu_s=at_s / 100)


def test_a_summary_has_the_extremes_that_matter_and_reasons_for_what_is_missing() -> None:
    found = summarise(
        [
            sample(0, thermal_level=0, cpu_mhz=3000, stalled_cpu_us=5, fan_rpm=None),
            sample(1, thermal_level=2, cpu_mhz=1000, stalled_cpu_us=7, fan_rpm=None),
            sample(2, thermal_level=1, cpu_mhz=2000, stalled_cpu_us=0, fan_rpm=None),
        ]
    )
    values = {reading.field: reading.value for reading in found}
    assert values == {
        "samples": 3,
        "thermal_level_mean": 1,
        "thermal_level_max": 2,
        "cpu_mhz_mean": 2000,
        "cpu_mhz_min": 1000,
        "stalled_cpu_us_sum": 12,
        "fan_rpm": None,
        "sampler_cpu_s": pytest.approx(0.02),
    }
    assert next(reading.reason for reading in found if reading.field == "fan_rpm") == "no sensor"


def test_a_trial_between_two_samples_has_a_reason_and_no_number() -> None:
    (reading,) = summarise([])
    assert (reading.value, reading.reason) == (None, "the trial ended before the next sample was due")
