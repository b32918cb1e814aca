"""The simulated engine keeps the contract, has exactly the effect that is set, and gives every sign."""

import math
import statistics
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from workers.engines.base import TurnRequest
from workers.engines.contract import EngineCase, EngineContract, answer, converse, engine_case
from workers.engines.simulated import FAULTS, Simulated
from workers.errors import EngineError, FaultKind
from workers.machine import drift

PROMPT = "count the links of the list"


def simulated(**settings: Any) -> Simulated:
    return Simulated(settings=settings, checkpoint={}, draft=None, sampling={})


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "draft": {"acceptance": 0.6, "block_size": 5},
    "useless draft": {"acceptance": 0.0},
    "perfect draft": {"acceptance": 1.0, "block_size": 8},
    "fallback": {"acceptance": 0.6, "fallback": True},
    "silent": {"acceptance": 0.6, "silent": True},
    "stops early": {"stop_after": 5},
    "no prefix cache": {"prefix_cache": False},
}


@pytest.fixture(scope="module", params=CASES.values(), ids=list(CASES))
def case(request: pytest.FixtureRequest) -> Iterator[EngineCase]:
    own: dict[str, Any] = request.param

    def make(settings: Mapping[str, Any]) -> Simulated:
        return simulated(**own, **settings)

    with engine_case(make, requested="acceptance" in own) as ready:
        yield ready


class TestContract(EngineContract):
    """Each case keeps the contract."""


def rates(sequence: int = 0, sequence_total: int = 1, **settings: Any) -> tuple[float, float]:
    """(prefill, decode) tokens per second of one generation."""
    engine = simulated(**settings)
    engine.start_conversation()
    message = {"role": "user", "content": PROMPT}
    request = TurnRequest(
        messages=[message], turn=0, max_tokens=101, seed=1, sequence=sequence, sequence_total=sequence_total
    )
    done = answer(engine, request)
    first, last = done.stamps_us[0] / 1e6, done.stamps_us[-1] / 1e6
    return done.result.prompt_tokens / first, 100 / (last - first)


@pytest.mark.parametrize("acceptance", [None, 0.0, 0.5, 1.0])
@pytest.mark.parametrize("effect", [0.5, 1.0, 1.07])
def test_the_effect_is_exactly_what_was_set_whatever_is_accepted(effect: float, acceptance: float | None) -> None:
    prefill_tps, decode_tps = rates(effect=effect, acceptance=acceptance, noise=0.0)
    assert prefill_tps == pytest.approx(1000 * effect, rel=1e-3)
    assert decode_tps == pytest.approx(100 * effect, rel=1e-5)


@pytest.mark.parametrize("profile", drift.PROFILES)
@pytest.mark.parametrize("sequence", [0, 37, 99])
def test_the_machine_drifts_by_the_profile_over_the_run(profile: str, sequence: int) -> None:
    decode_tps = rates(sequence, 100, drift=profile, drift_size=-0.2, drift_seed=5, noise=0.0)[1]
    assert decode_tps == pytest.approx(100 * drift.factor(profile, sequence / 99, size=-0.2, seed=5), rel=1e-4)


def test_noise_has_the_given_size_and_is_the_same_on_a_repetition() -> None:
    first = [rates(sequence, 400, noise=0.03)[1] for sequence in range(400)]
    again = [rates(sequence, 400, noise=0.03)[1] for sequence in range(400)]
    logs = [math.log(rate / 100) for rate in first]
    assert first == again
    assert statistics.fmean(logs) == pytest.approx(0.0, abs=0.005)
    assert statistics.stdev(logs) == pytest.approx(0.03, rel=0.1)


def test_arms_answer_alike_so_that_only_their_speed_differs() -> None:
    (plain,) = converse(simulated(), PROMPT)
    (drafting,) = converse(simulated(effect=1.3, acceptance=0.7), PROMPT)
    assert plain.result.token_ids == drafting.result.token_ids
    assert plain.result.text == drafting.result.text


def test_acceptance_is_the_chance_of_each_proposed_token_in_turn() -> None:
    (only,) = converse(simulated(acceptance=0.8, block_size=2), PROMPT, max_tokens=4001)
    sign = only.evidence
    assert sign.drafted is not None
    assert sign.accepted is not None
    assert sign.accepted / sign.drafted == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize(
    ("settings", "requested", "engaged", "useful", "words"),
    [
        ({}, False, False, False, "plain decoding"),
        ({"acceptance": 1.0}, True, True, True, "15 of 15 proposed tokens accepted"),
        ({"acceptance": 0.0}, True, True, False, "0 of"),
        ({"acceptance": 0.9, "block_size": 1}, True, False, False, "0 of 0"),
        ({"acceptance": 0.9, "fallback": True}, True, False, False, "fell back"),
        ({"acceptance": 0.9, "silent": True}, True, None, None, "no sign"),
    ],
)
def test_every_kind_of_evidence_can_be_had(
    settings: dict[str, Any], requested: bool, engaged: bool | None, useful: bool | None, words: str
) -> None:
    (only,) = converse(simulated(**settings), PROMPT, max_tokens=21)
    sign = only.evidence
    assert (sign.requested, sign.engaged, sign.useful) == (requested, engaged, useful)
    assert words in sign.text


def test_it_is_marked_simulated_everywhere() -> None:
    engine = simulated()
    info = engine.load()
    (only,) = converse(engine, PROMPT)
    assert info.simulated
    assert "simulated" in info.notes[0]
    assert only.evidence.source == "simulated"
    assert only.result.peak_memory_bytes is None


def test_the_second_turn_takes_the_first_from_the_prefix_cache() -> None:
    first, second = converse(simulated(), PROMPT, "and again")
    assert first.result.cached_tokens == 0
    assert second.result.cached_tokens == first.result.prompt_tokens + len(first.result.token_ids)
    without = converse(simulated(prefix_cache=False), PROMPT, "and again")[1]
    assert without.result.cached_tokens == 0
    assert without.stamps_us[0] > second.stamps_us[0]


def test_a_set_length_ends_the_answer_by_itself() -> None:
    (only,) = converse(simulated(stop_after=5), PROMPT, max_tokens=9)
    assert (len(only.result.token_ids), only.result.finish_reason) == (5, "stop")
    (cut,) = converse(simulated(stop_after=5), PROMPT, max_tokens=3)
    assert (len(cut.result.token_ids), cut.result.finish_reason) == (3, "length")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"drift": "sideways"}, "choose one of none, linear"),
        ({"fault": "earthquake"}, f"choose one of {', '.join(FAULTS)}"),
        ({"acceptance": 1.5}, "acceptance is 1.5"),
        ({"block_size": 0}, "block_size is 0"),
        ({"stop_after": 0}, "stop_after is 0"),
        ({"effect": 0.0}, "give more than 0"),
    ],
)
def test_an_impossible_setting_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(EngineError, match=words) as refused:
        simulated(**settings)
    assert refused.value.kind is FaultKind.unsupported_setting
