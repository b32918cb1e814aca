"""The decode rate that the memory's bandwidth allows."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.findings.ceilings import ceilings, mean_context
from orchestrator.findings.records import ArmRecord, Step
from orchestrator.findings.values import Ceiling, Figure
from orchestrator.findings.verification import Passes, verify_costs
from tests.orchestrator.findings.making import answer, arm, drafting, stepped

GB = 10**9
KNOWN = Figure(value=100e9, source="published by Apple")


def ceiling(one: ArmRecord, bandwidth: Figure = KNOWN, **changes: Any) -> Ceiling:
    steps: list[Step] = [(3, 2, 3), (3, 0, 1)] * 3
    given = [answer("plain", list(range(12)), decode_tps=5.0, **changes)]
    given += [stepped("spec", steps, round_us=[500_000] * 6, decode_tps=4.0, **changes)]
    arms = (arm("plain", read_bytes=10 * GB), one)
    costs = verify_costs(arms, given, passes=Passes(target={}, draft={}), measured={})
    found = ceilings((one,), given, costs={cost.arm: cost for cost in costs}, bandwidth=bandwidth)
    return found[0]


@given(st.integers(1, 10**12), st.integers(0, 10**6), st.integers(0, 10**5), st.integers(2, 400), st.floats(1e9, 1e12))
def test_a_plain_arm_reads_its_weights_and_its_cache(
    weights: int, kv: int, prompt: int, completion: int, bandwidth: float
) -> None:
    one = ceiling(
        arm("plain", read_bytes=weights, kv_bytes=kv),
        Figure(value=bandwidth, source="measured"),
        prompt_tokens=prompt,
        completion_tokens=completion,
    )
    assert one.bytes_per_pass.value == pytest.approx(weights + kv * (prompt + completion / 2))
    assert one.ceiling_tps.value == pytest.approx(bandwidth / (weights + kv * (prompt + completion / 2)))
    assert one.ceiling_tps.value == one.ceiling_passes_per_s.value
    assert one.share.value == pytest.approx(5.0 / (one.ceiling_tps.value or 0))
    assert (one.note is not None) == ((one.share.value or 0) > 1.05)


def test_a_verify_round_reads_the_drafter_as_often_as_it_drafts() -> None:
    one = ceiling(drafting(read_bytes=10 * GB, kv_bytes=0, draft_read_bytes=GB, draft_kv_bytes=0, width=4))
    assert one.bytes_per_pass.value == 13 * GB
    assert one.ceiling_passes_per_s.value == pytest.approx(100 / 13)
    assert one.ceiling_tps.value == pytest.approx(100 / 13 * 2)  # 12 tokens in 6 rounds
    assert one.measured_passes_per_s == pytest.approx(2.0)
    assert one.share.value == pytest.approx(2 / (100 / 13))
    assert one.measured_tps == 4.0


def test_a_block_drafter_reads_once_and_a_lookup_nothing() -> None:
    block = ceiling(drafting(engine="dflash", read_bytes=10 * GB, kv_bytes=0, draft_read_bytes=GB, draft_kv_bytes=0))
    lookup = ceiling(drafting(engine="prompt_lookup", read_bytes=10 * GB, kv_bytes=0, draft_read_bytes=None))
    assert (block.draft_bytes.value, lookup.draft_bytes.value) == (GB, 0)


@given(st.integers(0, 10**6), st.integers(0, 10**5), st.integers(2, 9))
def test_each_pass_of_the_drafter_reads_its_own_cache(kv: int, prompt: int, width: int) -> None:
    """12 tokens are answered: the mean context is the prompt and 6."""
    bytes_of: dict[str, Any] = {
        "read_bytes": 10 * GB,
        "kv_bytes": 0,
        "draft_read_bytes": GB,
        "draft_kv_bytes": kv,
        "width": width,
    }
    changes: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": 12}
    by_token = ceiling(drafting(**bytes_of), **changes)
    by_block = ceiling(drafting(engine="dflash", **bytes_of), **changes)
    assert by_token.draft_bytes.value == pytest.approx((width - 1) * (GB + kv * (prompt + 6)))
    assert by_block.draft_bytes.value == pytest.approx(GB + kv * (prompt + 6))
    assert by_token.bytes_per_pass.value == pytest.approx(10 * GB + (by_token.draft_bytes.value or 0))


@pytest.mark.parametrize(
    ("one", "bandwidth", "reason"),
    [
        (arm("plain", read_bytes=None), KNOWN, "weights of model"),
        (arm("plain", kv_bytes=None), KNOWN, "bytes of the cache"),
        (drafting(draft_read_bytes=None), KNOWN, "drafter small reads"),
        (drafting(draft_kv_bytes=None), KNOWN, "bytes of the cache per token, of the drafter"),
        (arm("plain"), Figure(value=None, source="the memory's bandwidth is unknown: M9"), "unknown: M9"),
    ],
)
def test_what_is_unknown_leaves_no_ceiling_and_says_why(one: ArmRecord, bandwidth: Figure, reason: str) -> None:
    found = ceiling(one, bandwidth)
    for figure in (found.ceiling_passes_per_s, found.ceiling_tps, found.share):
        assert figure.value is None
        assert reason in figure.source


def test_the_context_is_that_of_the_middle_of_an_answer() -> None:
    assert mean_context([answer(prompt_tokens=100, completion_tokens=20), answer(prompt_tokens=0)]) == (110 + 1.5) / 2
    assert mean_context([answer(prompt_tokens=None)]) is None
