import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.running.measures import flags, measure
from tests.orchestrator.records import generation


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
    served = {"token_ids": [], "completion_tokens": 4, "stamps_of": "chunk"}
    own = 4 / 1.5
    assert flags(generation(engine_decode_tps=own * 1.1, **served), max_tokens=4) == []
    assert flags(generation(engine_decode_tps=own * 4.86, **served), max_tokens=4) == ["engine_rate_gap"]


def test_what_the_engine_found_is_kept() -> None:
    assert flags(generation(flags=["no_done", "prompt_tokens_differ"]), max_tokens=4) == [
        "no_done",
        "prompt_tokens_differ",
    ]


def test_tokens_of_a_first_chunk_are_not_free_speed() -> None:
    """Three tokens in the first chunk at 1.0 s, one at 2.5 s: one token was decoded in 1.5 s."""
    stamps_us = [1_000_000, 1_000_000, 1_000_000, 2_500_000]
    record = generation(token_ids=[], completion_tokens=4, stamps_of="chunk", stamps_us=stamps_us)
    assert measure(record).decode_tps == pytest.approx(1 / 1.5)
    assert measure(record).end_to_end_tps == pytest.approx(4 / 2.5)


def test_tokens_of_a_first_burst_are_not_free_speed_either() -> None:
    """A server that is late with its first token sends those made meanwhile along, each in a chunk of its own."""
    stamps_us = [1_000_000, 1_000_040, 1_000_080, 2_000_000, 3_000_000]
    record = generation(token_ids=[], completion_tokens=5, stamps_of="chunk", stamps_us=stamps_us)
    assert measure(record).decode_tps == pytest.approx(2 / 2.0)
    even = generation(token_ids=[], completion_tokens=4, stamps_of="chunk")
    assert measure(even).decode_tps == pytest.approx(3 / 1.5)


def test_a_fast_turn_with_a_zero_cache_counter_is_flagged() -> None:
    first = generation()
    later = generation(turn=1, prompt_tokens=100, stamps_us=[1_000_000, 1_100_000, 1_200_000, 1_300_000])
    assert flags(later, max_tokens=4, first_turn=first) == ["cached_zero_but_fast"]
    honest = generation(turn=1, prompt_tokens=100, cached_tokens=90, stamps_us=later.stamps_us)
    assert flags(honest, max_tokens=4, first_turn=first) == []


@given(st.lists(st.integers(1, 10**7), min_size=2, max_size=50))
def test_rates_are_positive_or_unknown(gaps_us: list[int]) -> None:
    stamps, now = [], 0
    for gap in gaps_us:
        now += gap
        stamps.append(now)
    measures = measure(generation(token_ids=list(range(len(stamps))), stamps_us=stamps))
    for rate in (measures.ttft_s, measures.prefill_tps, measures.decode_tps, measures.end_to_end_tps):
        assert rate is not None
        assert rate > 0
