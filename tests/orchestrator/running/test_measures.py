import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.running.delivery import TOLERANCE
from orchestrator.running.measures import flags, measure
from tests.orchestrator.records import ENGAGED, generation
from workers.protocol import Evidence, Generation


def test_plain_decoding_by_the_fields_definitions() -> None:
    measures = measure(generation())
    assert measures.ttft_s == 1.0
    assert measures.prefill_tps == 10.0
    assert measures.decode_tps == pytest.approx(3 / 1.5)
    assert measures.end_to_end_tps == pytest.approx(4 / 2.5)
    assert measures.total_s == 2.5
    assert (measures.drafted, measures.accept_length, measures.acceptance_rate) == (None, None, None)


def test_cached_tokens_are_not_prefilled() -> None:
    assert measure(generation(cached_tokens=6)).prefill_tps == 4.0


def test_an_unknown_cache_count_makes_the_prefill_rate_unknown_not_wrong() -> None:
    assert measure(generation(cached_tokens=None)).prefill_tps is None


def test_speculation_counts_and_rates() -> None:
    record = generation(steps=[[3, 2, 3], [3, 0, 1]])
    measures = measure(record)
    assert (measures.drafted, measures.accepted, measures.verify_steps) == (6, 2, 2)
    assert measures.accept_length == 2.0
    assert measures.acceptance_rate == pytest.approx(1 / 3)


def test_tokens_of_the_first_verify_pass_are_not_free_speed() -> None:
    """Three tokens at 1.0 s and one at 2.5 s: one token was decoded in 1.5 s, not three."""
    record = generation(steps=[[3, 2, 3], [3, 0, 1]], stamps_us=[1_000_000, 1_000_001, 1_000_002, 2_500_000])
    assert measure(record).decode_tps == pytest.approx(1 / 1.5)


def test_a_separate_prefill_token_counts_as_one() -> None:
    record = generation(steps=[[3, 2, 3]])  # four tokens, three of them from the verify step
    assert measure(record).decode_tps == pytest.approx(3 / 1.5)
    assert measure(record).accept_length == 3.0


def test_nothing_drafted_has_no_acceptance_rate() -> None:
    measures = measure(generation(steps=[[0, 0, 1]] * 4))
    assert measures.drafted == 0
    assert measures.acceptance_rate is None


def stamped(gaps_us: list[int], **fields: Any) -> Generation:
    stamps_us = [1_000_000]
    for gap in gaps_us:
        stamps_us.append(stamps_us[-1] + gap)
    return generation(token_ids=list(range(len(stamps_us))), stamps_us=stamps_us, **fields)


def test_the_95th_percentile_between_tokens_leaves_out_the_slowest_twentieth() -> None:
    measures = measure(stamped([10_000] * 94 + [30_000, *[900_000] * 5]))
    assert measures.inter_token_p95_s == pytest.approx(0.03)
    assert measures.inter_token_reason is None


def test_tokens_of_one_pass_follow_each_other_in_no_time() -> None:
    """Three of four tokens cost nothing; the reader waits 40 ms for the fourth, every time."""
    assert measure(stamped([1, 1, 1, 40_000] * 10)).inter_token_p95_s == pytest.approx(0.04)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (stamped([10_000] * 19), "fewer than 20 times"),
        (stamped([10_000, 1] * 20, stamps_of="chunk"), "one by one"),
        (stamped([10_000] * 40, stamps_of="chunk", flags=["reasoning_not_sent"]), "never sent"),
        (generation(token_ids=[], stamps_us=[]), "fewer than 20 times"),
    ],
)
def test_unknown_times_between_tokens_have_a_reason_and_no_number(record: Generation, reason: str) -> None:
    measures = measure(record)
    assert measures.inter_token_p95_s is None
    assert reason in (measures.inter_token_reason or "")


def test_a_server_that_sends_token_by_token_has_times_between_them() -> None:
    assert measure(stamped([10_000] * 20, stamps_of="chunk")).inter_token_p95_s == pytest.approx(0.01)


def test_one_token_has_no_decode_rate() -> None:
    assert measure(generation(token_ids=[1], stamps_us=[1_000_000])).decode_tps is None


def test_the_engines_own_rate_is_compared_by_its_own_definition() -> None:
    own = 4 / 1.5  # mlx-lm divides n tokens by n - 1 intervals
    assert measure(generation(engine_decode_tps=own)).engine_gap == pytest.approx(0.0)
    assert flags(generation(engine_decode_tps=own), max_tokens=4) == []
    assert flags(generation(engine_decode_tps=own * 1.03), max_tokens=4) == ["engine_rate_gap"]


def test_length_before_the_limit_is_flagged() -> None:
    assert flags(generation(), max_tokens=8) == ["length_before_max_tokens"]


def test_a_stop_at_the_limit_is_flagged() -> None:
    assert flags(generation(finish_reason="stop"), max_tokens=4) == ["stop_at_max_tokens"]
    assert flags(generation(finish_reason="stop"), max_tokens=5) == []


def test_no_token_at_all_is_flagged() -> None:
    empty = generation(token_ids=[], stamps_us=[], finish_reason="stop")
    assert flags(empty, max_tokens=4) == ["zero_tokens"]


def test_a_servers_rate_that_our_stopwatch_does_not_see_is_flagged() -> None:
    """The server says 486 tok/s, the user sees 100; definitions alone differ by less."""
    chunks = {"token_ids": [], "completion_tokens": 4, "stamps_of": "chunk"}
    own = 4 / 1.5
    assert flags(generation(engine_decode_tps=own * 1.1, **chunks), max_tokens=4) == []
    assert flags(generation(engine_decode_tps=own * 4.86, **chunks), max_tokens=4) == ["engine_rate_gap"]


def test_what_the_engine_found_is_kept() -> None:
    assert flags(generation(flags=["no_done", "prompt_tokens_differ"]), max_tokens=4) == [
        "no_done",
        "prompt_tokens_differ",
    ]


def served(stamps_us: list[int], **changes: Any) -> Generation:
    """A server's answer with a token at each of these times, in microseconds."""
    values = {"token_ids": [], "completion_tokens": len(stamps_us), "stamps_of": "chunk", "stamps_us": stamps_us}
    return generation(**(values | changes))


def spaced(*sizes: int, gap_us: int = 50_000, first_us: int = 200_000) -> list[int]:
    """Bursts of so many tokens, one each gap."""
    return [first_us + place * gap_us for place, size in enumerate(sizes) for _ in range(size)]


ENGAGED_BY_A_SIGN = replace(ENGAGED, drafted=None, accepted=None)


def test_tokens_of_a_first_chunk_are_not_free_speed() -> None:
    """Three tokens in the first chunk at 1.0 s, then one each 0.5 s: five tokens were decoded in 2.5 s."""
    record = served([1_000_000] * 3 + [1_500_000, 2_000_000, 2_500_000, 3_000_000, 3_500_000])
    assert measure(record).decode_tps == pytest.approx(5 / 2.5)
    assert measure(record).end_to_end_tps == pytest.approx(8 / 3.5)


def test_tokens_of_a_first_burst_are_not_free_speed_either() -> None:
    """A server that is late with its first token sends those made meanwhile along, each in a chunk of its own."""
    record = served([1_000_000, 1_000_040, 1_000_080, *range(2_000_000, 9_000_000, 1_000_000)])
    assert measure(record).decode_tps == pytest.approx(7 / 7.0)
    assert measure(served([1_000_000, 1_500_000, 2_000_000, 2_500_000])).decode_tps == pytest.approx(3 / 1.5)


@pytest.mark.parametrize(
    ("stamps_us", "flag"),
    [
        ([170_000 + 14 * place for place in range(8)], "delivered_at_once"),  # one write, read event by event
        ([2_870_000 + 80 * place for place in range(128)], "delivered_at_once"),  # a buffer emptied in a loop
        ([500_000] * 128, "delivered_at_once"),  # one chunk
        (spaced(64, 64), "delivered_in_bursts"),
        (spaced(127, 1), "delivered_in_bursts"),  # the first token held back until the last
        (spaced(*[5] * 12), "delivered_in_bursts"),  # a proxy with a timer, and a short answer
        (spaced(*[1] * 100, 28, gap_us=20_000), "delivered_in_bursts"),  # sent at a pace, the rest at the end
        ([*spaced(*[1] * 100, gap_us=20_000), *[2_760_000] * 28], "delivered_in_bursts"),  # the tail held back
        ([at + 300 * place for at in (200_000, 400_000, 600_000) for place in range(20)], "delivered_in_bursts"),
    ],
)
def test_tokens_that_came_together_have_no_rate(stamps_us: list[int], flag: str) -> None:
    record = served(stamps_us)
    measures = measure(record)
    assert measures.decode_tps is None
    assert flag in flags(record, max_tokens=len(stamps_us))
    assert measures.end_to_end_tps == pytest.approx(len(stamps_us) / (stamps_us[-1] / 1e6))
    assert measures.total_s == stamps_us[-1] / 1e6
    known = flag != "delivered_at_once"
    assert (measures.ttft_s is not None) is known
    assert measures.prefill_tps is None or known


def test_a_timer_in_a_long_answer_costs_no_more_than_its_bound() -> None:
    """44.6 tokens/s behind a proxy that gives them away each 50 ms, the last ones up to 50 ms late."""
    made_us = [200_000 + round(place * 1e6 / 44.6) for place in range(256)]
    arrived_us = [-(-made // 50_000) * 50_000 for made in made_us]
    record = served(arrived_us)
    rate = measure(record).decode_tps
    assert rate == pytest.approx(44.6, rel=TOLERANCE)
    assert "batched_delivery" in flags(record, max_tokens=256)
    assert measure(served(arrived_us[:60])).decode_tps is None


@pytest.mark.parametrize(
    "changes",
    [
        {"evidence": [replace(ENGAGED, drafted=120, accepted=112)]},  # 16 passes of a block of 8
        {"evidence": [ENGAGED_BY_A_SIGN]},
        {"evidence": [replace(ENGAGED_BY_A_SIGN, engaged=None)]},
        {"stamps_of": "token", "token_ids": [1] * 128, "completion_tokens": None, "steps": [[7, 7, 8]] * 16},
    ],
)
def test_what_a_verify_pass_commits_comes_together_and_is_no_batch(changes: dict[str, Any]) -> None:
    record = served(spaced(*[8] * 16), **changes)
    measures = measure(record)
    assert measures.decode_tps == pytest.approx(120 / 0.75)
    assert None not in (measures.ttft_s, measures.prefill_tps)
    assert not {"delivered_in_bursts", "batched_delivery"} & set(flags(record, max_tokens=128))


def test_a_block_of_sixteen_is_a_pass_as_well() -> None:
    blocks = spaced(*[16] * 8, gap_us=120_000)
    assert measure(served(blocks, evidence=[ENGAGED_BY_A_SIGN])).decode_tps == pytest.approx(112 / 0.84)
    in_process = {"stamps_of": "token", "token_ids": [1] * 128, "completion_tokens": None}
    assert measure(served(blocks, **in_process, steps=[[15, 15, 16]] * 8)).decode_tps == pytest.approx(112 / 0.84)


def test_a_buffer_before_a_speculating_server_is_a_buffer() -> None:
    few = replace(ENGAGED, drafted=100, accepted=60)  # 68 passes
    assert measure(served(spaced(*[16] * 8), evidence=[few])).decode_tps is None
    assert measure(served([500_000] * 12, evidence=[replace(few, accepted=2)])).ttft_s is None
    assert measure(served(spaced(60, 68), evidence=[ENGAGED_BY_A_SIGN])).decode_tps is None


def test_an_engine_in_process_that_ticks_once_it_is_done_has_no_rate() -> None:
    record = generation(token_ids=[1] * 8, stamps_us=[500_000 + place for place in range(8)])
    assert measure(record).decode_tps is None
    assert flags(record, max_tokens=8) == ["delivered_at_once"]


def test_a_stall_does_not_make_a_burst_of_all_the_rest() -> None:
    stamps_us = [*spaced(*[1] * 60, gap_us=5_000), *spaced(*[1] * 60, gap_us=5_000, first_us=60_000_000)]
    assert measure(served(stamps_us)).decode_tps == pytest.approx(119 / 60.095, rel=0.01)


def test_a_few_chunks_that_meet_on_the_way_change_nothing() -> None:
    stamps_us = spaced(*[1] * 20, 2, *[1] * 20, 2, *[1] * 20, gap_us=20_000)
    assert measure(served(stamps_us)).decode_tps == pytest.approx(63 / 1.22)
    assert measure(served(spaced(1, 1, 2, 1, 2, 1))).decode_tps == pytest.approx(7 / 0.25)
    assert measure(served(spaced(2, 2, 2, 2))).decode_tps is None
    assert measure(served(spaced(3, 3))).decode_tps is None


def test_a_prefill_rate_needs_the_first_token_alone() -> None:
    """Ten tokens with the first, 0.1 s each, by 1.2 s: most of that time was decoding."""
    held = served(spaced(10, *[1] * 60, gap_us=100_000, first_us=1_200_000))
    assert measure(held).decode_tps == pytest.approx(10.0)
    assert (measure(held).ttft_s, measure(held).prefill_tps) == (1.2, None)
    assert measure(replace(held, stamps_us=[9_000_000 + each for each in held.stamps_us])).prefill_tps is not None


def test_reasoning_that_was_not_sent_has_no_times() -> None:
    record = served(spaced(*[1] * 60), flags=["reasoning_not_sent"])
    assert (measure(record).decode_tps, measure(record).ttft_s) == (None, None)
    assert measure(record).end_to_end_tps is not None


def test_a_prompt_that_was_cached_whole_has_no_prefill_rate() -> None:
    assert measure(generation(cached_tokens=10)).prefill_tps is None


def test_a_servers_own_counts_of_speculation_are_stored_as_any_engines() -> None:
    measures = measure(served(spaced(*[2] * 30), evidence=[replace(ENGAGED, drafted=45, accepted=30)]))
    assert (measures.drafted, measures.accepted, measures.verify_steps) == (45, 30, None)
    assert measures.acceptance_rate == pytest.approx(30 / 45)


@given(
    tokens=st.integers(60, 400),
    rate_tps=st.floats(5, 400),
    period_us=st.integers(5_000, 400_000),
    phase=st.floats(0, 1),
    flush_at_end=st.booleans(),
)
def test_whatever_a_timer_does_the_rate_is_right_or_unknown(
    *, tokens: int, rate_tps: float, period_us: int, phase: float, flush_at_end: bool
) -> None:
    made = [300_000 + place * 1e6 / rate_tps for place in range(tokens)]
    arrived = [math.ceil(at / period_us - phase) * period_us + phase * period_us for at in made]
    if flush_at_end:
        arrived = [min(at, made[-1]) for at in arrived]
    rate = measure(served([round(at) for at in arrived])).decode_tps
    true_tps = (tokens - 1) / (made[-1] - made[0]) * 1e6
    # A timer that is faster than the tokens still shifts each by up to its period, the last one too.
    assert rate is None or rate == pytest.approx(true_tps, rel=TOLERANCE + 2 / tokens)


def test_a_fast_turn_with_a_zero_cache_counter_is_flagged() -> None:
    first = generation()
    later = generation(turn=1, prompt_tokens=100, stamps_us=[1_000_000, 1_100_000, 1_200_000, 1_300_000])
    assert flags(later, max_tokens=4, first_turn=first) == ["cached_zero_but_fast"]
    honest = generation(turn=1, prompt_tokens=100, cached_tokens=90, stamps_us=later.stamps_us)
    assert flags(honest, max_tokens=4, first_turn=first) == []


@given(st.lists(st.integers(100, 10**7), min_size=2, max_size=50))
def test_rates_are_positive_or_unknown(gaps_us: list[int]) -> None:
    stamps, now = [], 0
    for gap in gaps_us:
        now += gap
        stamps.append(now)
    measures = measure(generation(token_ids=list(range(len(stamps))), stamps_us=stamps))
    for rate in (measures.ttft_s, measures.prefill_tps, measures.decode_tps, measures.end_to_end_tps):
        assert rate is not None
        assert rate > 0


def test_copies_from_the_context_are_no_acceptance_of_the_draft() -> None:
    draft = Evidence(mechanism="dflash", requested=True, engaged=True, useful=False, source="s", text="t", drafted=7)
    copied = replace(draft, mechanism="copy_drafts", requested=False, engaged=None, useful=True, drafted=7, accepted=3)
    one = generation(token_ids=[1, 2, 3, 4], stamps_us=[1, 2, 2, 2], steps=[[7, 3, 4], [7, 0, 0]])
    told = measure(replace(one, evidence=[replace(draft, accepted=0), copied]))
    assert (told.drafted, told.accepted, told.acceptance_rate) == (7, 0, 0.0)
    assert measure(replace(one, evidence=[replace(draft, drafted=14, accepted=3)])).accepted == 3


@pytest.mark.parametrize(
    ("ttft_s", "is_flagged"), [(9.0, False), (10 / 3 + 0.001, False), (10 / 3 - 0.001, True), (1.0, True)]
)
def test_a_turn_contradicts_its_cache_counter_only_where_it_is_thrice_as_fast(
    ttft_s: float, *, is_flagged: bool
) -> None:
    """The first turn read ten tokens per second, so that a hundred uncached ones would take 10 s."""
    later = generation(turn=1, prompt_tokens=100, stamps_us=[round((ttft_s + each / 10) * 1e6) for each in range(4)])
    found = flags(later, max_tokens=4, first_turn=generation())
    assert ("cached_zero_but_fast" in found) == is_flagged
    assert flags(replace(later, cached_tokens=None), max_tokens=4, first_turn=generation()) == []


def test_stamps_that_go_back_are_flagged_and_equal_ones_are_not() -> None:
    back = generation(stamps_us=[1_000_000, 2_000_000, 1_999_999, 2_500_000])
    assert "stamps_not_monotonic" in flags(back, max_tokens=4)
    level = generation(stamps_us=[1_000_000, 1_500_000, 1_500_000, 2_500_000])
    assert "stamps_not_monotonic" not in flags(level, max_tokens=4)


def test_an_answer_of_just_its_limit_is_whole() -> None:
    assert flags(generation(finish_reason="length"), max_tokens=4) == []
    assert flags(generation(finish_reason="length"), max_tokens=5) == ["length_before_max_tokens"]
    assert flags(generation(finish_reason="stop"), max_tokens=3) == ["stop_at_max_tokens"]
