"""What a generation's raw record says in the field's terms. Pure: a record in, rates out.

Definitions (n tokens with stamps t_1 .. t_n since the request's start):

    ttft_s          t_1
    prefill_tps     (prompt tokens - cached tokens) / t_1; unknown when the cached count is unknown
    decode_tps      (n - m) / (t_n - t_1), m = tokens that the pass which yielded the first token committed.
                    Plain decoding has m = 1, the field's usual (n - 1) / (t_n - t_1). A speculative engine whose first
                    verify pass commits three tokens gives the two others for nothing at t_1: counting them would
                    flatter it, by 9 % in a 24-token answer.
    end_to_end_tps  n / t_n
    accept_length   tokens committed per verify step, bonus token included, a separate prefill token excluded
    acceptance_rate accepted / drafted
"""

from dataclasses import dataclass
from itertools import pairwise, takewhile

from workers.protocol import Generation

# An engine's own decode rate further from ours than this, both by the engine's definition, is flagged.
ENGINE_GAP_LIMIT = 0.02
# A server's rate has a definition of its own, and its tokens come in chunks; 486 against 100 tok/s was seen.
SERVER_GAP_LIMIT = 0.15
# A server's tokens this close together, as a share of the mean gap, were made before and sent in one burst.
BURST_GAP_SHARE = 0.1
# A later turn this much faster than its prompt could be processed, while the counter says nothing was cached.
CACHE_CONTRADICTION_FACTOR = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """Rates and counts of one generation; None where the record does not say."""

    ttft_s: float | None
    prefill_tps: float | None
    decode_tps: float | None
    end_to_end_tps: float | None
    total_s: float | None
    drafted: int | None
    accepted: int | None
    verify_steps: int | None
    accept_length: float | None
    acceptance_rate: float | None
    engine_gap: float | None


def measure(generation: Generation) -> Measures:
    """All rates of one generation."""
    stamps_s = [stamp / 1e6 for stamp in generation.stamps_us]
    ttft_s = stamps_s[0] if stamps_s else None
    total_s = stamps_s[-1] if stamps_s else None
    drafted, accepted, committed = _speculation_counts(generation)
    steps = None if generation.steps is None else len(generation.steps)
    return Measures(
        ttft_s=ttft_s,
        prefill_tps=_ratio(_uncached(generation), ttft_s),
        decode_tps=_decode_tps(generation, stamps_s),
        end_to_end_tps=_ratio(len(stamps_s), total_s),
        total_s=total_s,
        drafted=drafted,
        accepted=accepted,
        verify_steps=steps,
        accept_length=_ratio(committed, steps),
        acceptance_rate=_ratio(accepted, drafted),
        engine_gap=_engine_gap(generation, stamps_s),
    )


def flags(generation: Generation, *, max_tokens: int, first_turn: Generation | None = None) -> list[str]:
    """Codes of what does not add up in one generation, given the conversation's first turn for a later one."""
    found = list(generation.flags)
    measures = measure(generation)
    limit = SERVER_GAP_LIMIT if generation.stamps_of == "chunk" else ENGINE_GAP_LIMIT
    if measures.engine_gap is not None and abs(measures.engine_gap) > limit:
        found.append("engine_rate_gap")
    if any(later < earlier for earlier, later in pairwise(generation.stamps_us)):
        found.append("stamps_not_monotonic")
    if generation.finish_reason == "length" and generation.tokens < max_tokens:
        found.append("length_before_max_tokens")
    if generation.finish_reason == "stop" and generation.tokens >= max_tokens:
        found.append("stop_at_max_tokens")  # or its last token was the end: then the answer is whole
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
    if generation.cached_tokens is None:
        return None
    return generation.prompt_tokens - generation.cached_tokens


def _speculation_counts(generation: Generation) -> tuple[int | None, int | None, int | None]:
    """Drafted, accepted, committed: by the verify steps, or as a server states the first two of the whole answer."""
    if generation.steps is None:
        stated = next((sign for sign in generation.evidence[:1] if sign.drafted is not None), None)
        return (None, None, None) if stated is None else (stated.drafted, stated.accepted, None)
    drafted, accepted, committed = (sum(step[column] for step in generation.steps) for column in range(3))
    return drafted, accepted, committed


def first_pass_tokens(generation: Generation) -> int:
    """Tokens that the pass which yielded the first token committed: 1 unless that pass was a verify step.

    Of what a server sends at once it is not known how many passes it took; all that came with the first are left out.
    """
    steps = generation.steps
    if steps and sum(step[2] for step in steps) == generation.tokens:
        return steps[0][2]
    return _first_burst(generation.stamps_us) if generation.stamps_of == "chunk" else 1


def _first_burst(stamps_us: list[int]) -> int:
    """Tokens that came with the first: in its chunk, or in chunks after gaps far below the mean."""
    if len(stamps_us) < 2:
        return len(stamps_us)
    limit_us = BURST_GAP_SHARE * (stamps_us[-1] - stamps_us[0]) / (len(stamps_us) - 1)
    gaps = (later - earlier for earlier, later in pairwise(stamps_us))
    return 1 + sum(1 for _ in takewhile(lambda gap: gap <= limit_us, gaps))


def _decode_tps(generation: Generation, stamps_s: list[float]) -> float | None:
    tokens = len(stamps_s) - first_pass_tokens(generation)
    if tokens < 1:
        return None
    return _ratio(tokens, stamps_s[-1] - stamps_s[0])


def _engine_gap(generation: Generation, stamps_s: list[float]) -> float | None:
    """The engine's decode rate over ours, minus 1, ours by mlx-lm's definition: n tokens over n - 1 intervals."""
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
