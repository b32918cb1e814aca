"""The rates of one generation, computed from its raw record. Pure.

Definitions (n tokens with stamps t_1 .. t_n since the request's start):

    ttft_s          t_1; unknown when all of several tokens came at once
    prefill_tps     (prompt tokens - cached tokens) / t_1; unknown when the cached count is unknown, and when tokens
                    that came with the first may have taken more than a tenth of t_1
    decode_tps      (n - m) / (t_n - t_1), m = tokens that the pass which yielded the first token committed.
                    Plain decoding has m = 1, the field's usual (n - 1) / (t_n - t_1). A speculative engine whose first
                    verify pass commits three tokens has the two others for nothing at t_1: counting them would
                    flatter it, by 9 % in a 24-token answer. Unknown if the stamps do not determine it: see `delivery`.
    end_to_end_tps  n / t_n
    inter_token_p95_s  95th percentile (nearest rank) of the times from one token to the next; between tokens of one
                    pass the time is zero. Unknown with fewer than 20 such times, and if a server's tokens did not
                    come one by one
    accept_length   tokens committed per verify step, bonus token included, a separate prefill token excluded
    acceptance_rate accepted / drafted
"""

import math
from dataclasses import dataclass
from itertools import pairwise

from orchestrator.running.delivery import Delivery, read_delivery
from workers.protocol import Generation

# An engine's own decode rate that differs from ours by more (both by the engine's definition) is flagged.
ENGINE_GAP_LIMIT = 0.02
# A server may define its rate differently, and its tokens come in chunks; 486 against 100 tok/s was seen.
SERVER_GAP_LIMIT = 0.15
LEAST_GAPS = 20  # with fewer, the 95th percentile is the largest
COPIES = "copy_drafts"  # the mechanism of a sign that counts copies from the context
# A later turn this much faster than its prompt could be processed contradicts a counter of no cached tokens.
CACHE_CONTRADICTION_FACTOR = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """Rates and counts of one generation; None if the record does not determine them."""

    ttft_s: float | None
    prefill_tps: float | None
    decode_tps: float | None
    end_to_end_tps: float | None
    total_s: float | None
    inter_token_p95_s: float | None
    inter_token_reason: str | None  # why the percentile is missing
    drafted: int | None
    accepted: int | None
    verify_steps: int | None
    accept_length: float | None
    acceptance_rate: float | None
    engine_gap: float | None


def measure(generation: Generation) -> Measures:
    """Compute all rates of one generation."""
    stamps_s = [stamp / 1e6 for stamp in generation.stamps_us]
    delivery = read_delivery(generation)
    decode_tps = _decode_tps(generation, stamps_s, delivery)
    ttft_s = stamps_s[0] if delivery.knows_first else None
    total_s = stamps_s[-1] if stamps_s else None
    drafted, accepted, committed = _speculation_counts(generation)
    steps = None if generation.steps is None else len(generation.steps)
    inter_token_reason = _why_no_inter_token(generation, delivery)
    return Measures(
        ttft_s=ttft_s,
        prefill_tps=_ratio(_uncached(generation), ttft_s) if delivery.knows_prefill(decode_tps) else None,
        decode_tps=decode_tps,
        end_to_end_tps=_ratio(len(stamps_s), total_s),
        total_s=total_s,
        inter_token_p95_s=None if inter_token_reason else _inter_token_p95_s(stamps_s),
        inter_token_reason=inter_token_reason,
        drafted=drafted,
        accepted=accepted,
        verify_steps=steps,
        accept_length=_ratio(committed, steps),
        acceptance_rate=_ratio(accepted, drafted),
        engine_gap=_engine_gap(generation, stamps_s) if delivery.knows_rate else None,
    )


def flags(generation: Generation, *, max_tokens: int, first_turn: Generation | None = None) -> list[str]:
    """Return the codes of inconsistencies in one generation; a later turn needs the conversation's first turn."""
    found = [*generation.flags, *read_delivery(generation).flags()]
    measures = measure(generation)
    limit = SERVER_GAP_LIMIT if generation.stamps_of == "chunk" else ENGINE_GAP_LIMIT
    if measures.engine_gap is not None and abs(measures.engine_gap) > limit:
        found.append("engine_rate_gap")
    if any(later < earlier for earlier, later in pairwise(generation.stamps_us)):
        found.append("stamps_not_monotonic")
    if generation.finish_reason == "length" and generation.tokens < max_tokens:
        found.append("length_before_max_tokens")
    if generation.finish_reason == "stop" and generation.tokens >= max_tokens:
        found.append("stop_at_max_tokens")  # if the last token was the end token, the answer is whole
    if not generation.tokens:
        found.append("zero_tokens")
    if first_turn is not None and _cache_counter_contradicted(generation, first_turn):
        found.append("cached_zero_but_fast")
    return found


def _ratio(numerator: float | None, denominator: float | None) -> float | None:
    if numerator is None or not denominator:
        return None
    return numerator / denominator


def _uncached(generation: Generation) -> int | None:
    """Return the prefilled prompt tokens; None if the server gives no count, or all came from the cache."""
    if generation.cached_tokens is None:
        return None
    return (generation.prompt_tokens - generation.cached_tokens) or None


def _speculation_counts(generation: Generation) -> tuple[int | None, int | None, int | None]:
    """Return drafted, accepted, committed: by the verify steps, or the first two as a server states them per answer.

    Tokens copied from the context were not drafted: a separate sign counts them, and they are left out here.
    """
    if generation.steps is None:
        stated = next((sign for sign in generation.evidence[:1] if sign.drafted is not None), None)
        return (None, None, None) if stated is None else (stated.drafted, stated.accepted, None)
    drafted, accepted, committed = (sum(step[column] for step in generation.steps) for column in range(3))
    copied = [sign for sign in generation.evidence if sign.mechanism == COPIES]
    drafted -= sum(sign.drafted or 0 for sign in copied)
    accepted -= sum(sign.accepted or 0 for sign in copied)
    return drafted, accepted, committed


def _first_pass_tokens(generation: Generation, delivery: Delivery) -> int:
    """Return the tokens committed by the pass that yielded the first token: 1 unless that pass was a verify step.

    If a server sends tokens at once, their number of passes is unknown; all that came with the first are left out.
    """
    steps = generation.steps
    if steps and sum(step[2] for step in steps) == generation.tokens:
        return steps[0][2]
    return delivery.sizes[0] if delivery.served and delivery.sizes else 1


def _decode_tps(generation: Generation, stamps_s: list[float], delivery: Delivery) -> float | None:
    tokens = len(stamps_s) - _first_pass_tokens(generation, delivery)
    if tokens < 1 or not delivery.knows_rate:
        return None
    return _ratio(tokens, stamps_s[-1] - stamps_s[0])


def _why_no_inter_token(generation: Generation, delivery: Delivery) -> str | None:
    """Return why the times between tokens are unknown, or None if they are known."""
    if delivery.unsent:
        return "some of the counted tokens were never sent"
    if delivery.served and any(size > 1 for size in delivery.sizes):
        return "the server's tokens did not arrive one by one"
    if len(generation.stamps_us) <= LEAST_GAPS:
        return f"fewer than {LEAST_GAPS} times between tokens"
    return None


def _inter_token_p95_s(stamps_s: list[float]) -> float:
    gaps = sorted(later - earlier for earlier, later in pairwise(stamps_s))
    return gaps[math.ceil(0.95 * len(gaps)) - 1]


def _engine_gap(generation: Generation, stamps_s: list[float]) -> float | None:
    """Return the engine's decode rate over ours, minus 1; ours as mlx-lm defines it: n tokens over n - 1 intervals."""
    if generation.engine_decode_tps is None or len(stamps_s) < 2:
        return None
    same_definition = _ratio(len(stamps_s), stamps_s[-1] - stamps_s[0])
    return None if same_definition is None else generation.engine_decode_tps / same_definition - 1


def _cache_counter_contradicted(later: Generation, first: Generation) -> bool:
    rate = measure(first).prefill_tps
    ttft_s = measure(later).ttft_s
    if later.cached_tokens != 0 or rate is None or ttft_s is None:
        return False
    return ttft_s * CACHE_CONTRADICTION_FACTOR < later.prompt_tokens / rate
