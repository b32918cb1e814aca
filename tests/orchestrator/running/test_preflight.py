"""A machine that is not fit is refused before the start; like faults end a command with like codes."""

import pytest

from orchestrator.errors import RefusedError
from orchestrator.plan import Gate
from orchestrator.running.preflight import OF_THE_MACHINE, OF_THE_PLAN, refusal, refuse_battery, start_notes
from orchestrator.running.trial import judge
from workers.errors import FaultKind
from workers.machine.telemetry import Reading
from workers.protocol import Evidence


def test_every_kind_of_fault_is_somebodys_and_of_one_only() -> None:
    assert not OF_THE_PLAN & OF_THE_MACHINE
    assert OF_THE_PLAN | OF_THE_MACHINE >= set(FaultKind)


@pytest.mark.parametrize("engaged", [True, False, None])
@pytest.mark.parametrize("requested", [True, False])
@pytest.mark.parametrize("drafted", [None, 0, 1])
def test_what_the_evidence_shows_is_the_plans_fault(requested: bool, engaged: bool | None, drafted: int | None) -> None:
    sign = Evidence(
        mechanism="dflash", requested=requested, engaged=engaged, useful=None, source="s", text="t", drafted=drafted
    )
    fault = judge([sign]).fault
    assert fault is None or fault.partition(":")[0] in OF_THE_PLAN


def test_the_codes() -> None:
    assert refusal(FaultKind.unsupported_setting, "x").exit_code == 2
    assert refusal(FaultKind.load_failed, "x").exit_code == 4
    assert refusal("not_engaged", "x").exit_code == 2
    assert refusal("from the future", "x").exit_code == 4


def test_a_battery_refuses_a_run_that_wants_mains() -> None:
    battery = [Reading(field="power_source", value_text="battery")]
    with pytest.raises(RefusedError, match=r"plug in, or set gate\.power_source=any"):
        refuse_battery(Gate(), battery)
    refuse_battery(Gate(power_source="any"), battery)
    refuse_battery(Gate(), [Reading(field="power_source", reason="a virtual machine")])


@pytest.mark.parametrize(
    ("readings", "says"),
    [
        ([Reading(field="nice", value=5.0, source="getpriority")], "nice +5"),
        ([Reading(field="lid", value_text="closed")], "the lid is closed"),
    ],
)
def test_a_run_that_starts_in_the_background_or_with_a_closed_lid_reports_it(
    readings: list[Reading], says: str
) -> None:
    (note,) = start_notes(readings)
    assert says in note


def test_a_run_that_starts_as_it_should_says_nothing() -> None:
    usual = [
        Reading(field="nice", value=0.0, source="getpriority"),
        Reading(field="priority", value=31.0, source="ps"),
        Reading(field="lid", value_text="open"),
    ]
    assert list(start_notes(usual)) == []
    assert list(start_notes([Reading(field="nice", reason="not read"), Reading(field="lid", reason="no lid")])) == []
