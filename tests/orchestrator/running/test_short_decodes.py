"""The decode that wakes a device before a trial: alike for all arms, stored apart, never part of what is measured."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import select

from db import models
from db.engine import Database
from db.session import read_only
from orchestrator.plan import Gate, Plan
from orchestrator.running.crew import Member
from orchestrator.running.short_decodes import ShortDecodes, wake_tokens
from orchestrator.schedule import AA_LABEL, ScheduledTrial, build_schedule
from tests.orchestrator.plans import arm, plan
from tests.orchestrator.running.nights import Night, run_night
from tests.orchestrator.running.trials import rows
from workers.errors import FaultKind, WorkerFault
from workers.protocol import Generate, Generation


class Roused:
    """A loaded arm that remembers what it was asked."""

    def __init__(self, *, simulated: bool = False, fault: WorkerFault | None = None) -> None:
        self.loaded = SimpleNamespace(simulated=simulated)
        self.asked: list[Generate] = []
        self._fault = fault

    def generate(self, request: Generate) -> list[Generation]:
        self.asked.append(request)
        if self._fault is not None:
            raise self._fault
        stamps = [100_000 + 25_000 * place for place in range(request.max_tokens)]
        return [
            Generation(
                request_id=request.request_id,
                turn=0,
                started_at="2026-11-30T00:00:00+00:00",
                prompt_tokens=12,
                cached_tokens=None,
                token_ids=list(range(request.max_tokens)),
                stamps_us=stamps,
                text="one",
                finish_reason="length",
                steps=None,
                evidence=[],
                prompt_sha256="",
                engine_prefill_tps=None,
                engine_decode_tps=None,
                peak_memory_bytes=None,
            )
        ]


def member(roused: Roused) -> Member:
    return cast(Member, roused)


def trials(planned: Plan, kind: str = "measured") -> list[ScheduledTrial]:
    return [trial for trial in build_schedule(planned) if trial.kind == kind]


def planned(gate: Gate) -> Plan:
    return replace(plan(arm("a"), arm("b")), gate=gate)


def short(gate: Gate, *, platform: str = "darwin") -> ShortDecodes:
    ticks = iter(range(1000))
    return ShortDecodes(plan=planned(gate), sequence_total=9, platform=platform, clock=lambda: float(next(ticks)) / 4)


def test_a_mac_wakes_by_default_and_other_machines_do_not() -> None:
    assert (wake_tokens(Gate(), "darwin"), wake_tokens(Gate(), "linux")) == (4, 0)
    assert (wake_tokens(Gate(wake_tokens=0), "darwin"), wake_tokens(Gate(wake_tokens=2), "linux")) == (0, 2)


def test_it_decodes_a_few_tokens_and_stores_them_beside_the_trial() -> None:
    arm, trial = Roused(), trials(planned(Gate()))[0]
    found = {reading.field: reading.value for reading in short(Gate()).wake(trial, member(arm))}
    assert found == {"wake_s": 0.25, "wake_tps": pytest.approx(40.0)}
    (asked,) = arm.asked
    assert asked.max_tokens == 4
    prompts = {message["content"] for prompt in planned(Gate()).prompts for turn in prompt.turns for message in turn}
    assert not prompts & {message["content"] for message in asked.turns[0]}  # no trial finds its prefix processed


def test_a_rate_that_there_is_none_of_has_its_reason() -> None:
    gate = Gate(wake_tokens=1)
    (_, rate) = short(gate).wake(trials(planned(gate))[0], member(Roused()))
    assert (rate.value, rate.reason) == (None, "too few tokens for a rate")


@pytest.mark.parametrize(
    ("kind", "simulated", "platform"),
    [("warmup", False, "darwin"), ("measured", True, "darwin"), ("measured", False, "linux")],
)
def test_warm_ups_simulated_arms_and_other_machines_need_none(kind: str, simulated: bool, platform: str) -> None:
    arm = Roused(simulated=simulated)
    assert short(Gate(), platform=platform).wake(trials(planned(Gate()), kind)[0], member(arm)) == ()
    assert arm.asked == []


def test_the_canary_is_compared_with_the_arm_s_own_first_one() -> None:
    decodes, arm = short(Gate(canary_tokens=8)), Roused()
    first, second, *_ = trials(planned(Gate()))
    assert decodes.canary(first, member(arm)) == 1.0
    decodes.cold_tps[second.arm] = 80.0
    assert decodes.canary(second, member(arm)) == pytest.approx(0.5)
    assert short(Gate(canary_tokens=1)).canary(first, member(Roused())) is None
    prompts = {message["content"] for prompt in decodes.plan.prompts for turn in prompt.turns for message in turn}
    assert not prompts & {message["content"] for asked in arm.asked for message in asked.turns[0]}  # may be very long


# ---- in a run ----


def as_if_measured(monkeypatch: pytest.MonkeyPatch, *, fails_at: int | None = None) -> list[ScheduledTrial]:
    """Simulated workers are woken as real ones are; the trials before which that happened."""
    woken: list[ScheduledTrial] = []
    wake = ShortDecodes.wake

    def watched(self: ShortDecodes, trial: ScheduledTrial, member: Member) -> Any:
        if trial.kind != "warmup":
            woken.append(trial)
        if len(woken) - 1 == fails_at:
            raise WorkerFault(FaultKind.hung_first_token, "no first token within 1 s", alive=True)
        measured = cast(Member, SimpleNamespace(loaded=SimpleNamespace(simulated=False), generate=member.generate))
        return wake(self, trial, measured)

    monkeypatch.setattr(ShortDecodes, "wake", watched)
    return woken


def test_every_trial_of_every_arm_gets_one_the_second_control_included(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the arm that is woken, or whose neighbour is not, would win by that alone."""
    woken = as_if_measured(monkeypatch)
    recorder, _ = run_night(database, replace(planned(Gate(wake_tokens=4)), notes=()), tmp_path, Night())
    stored = [trial for trial in rows(database, recorder.run_id) if trial.kind != "warmup"]
    assert [trial.sequence for trial in woken] == [trial.sequence for trial in stored]
    labels = [trial.label for trial in woken if trial.kind == "measured"]
    assert {labels.count(label) for label in ("a", "b", AA_LABEL)} == {6}
    with read_only(database) as session:
        for trial in stored:
            query = select(models.Telemetry).filter_by(trial_id=trial.id, phase="before", field="wake_tps")
            assert session.scalars(query).one().value
            answers = session.scalars(select(models.Generation).filter_by(trial_id=trial.id)).all()
            assert [answer.prompt_id for answer in answers] == ["quick/0"]  # the wake-up is none of them


def test_one_that_hangs_is_its_trial_s_fault(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_if_measured(monkeypatch, fails_at=3)
    recorder, _ = run_night(database, planned(Gate(wake_tokens=4)), tmp_path, Night())
    found = [trial for trial in rows(database, recorder.run_id) if trial.status == "invalid"]
    assert [trial.error_kind for trial in found] == ["hung_first_token"]
