"""Like faults end a command with like codes."""

import pytest

from orchestrator.running.preflight import OF_THE_MACHINE, OF_THE_PLAN, refusal
from orchestrator.running.trial import judge
from workers.errors import FaultKind
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
