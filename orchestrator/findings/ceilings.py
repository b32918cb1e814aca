"""The ceiling of decoding: the rate that the memory's bandwidth allows if only reading took time. Pure.

Decoding one token alone reads all weights that it uses and the cache of its context, so no more than
bandwidth / bytes tokens per second are possible (the roofline's slope: Williams, Waterman and Patterson 2009). A verify
round reads the same once, and yields accept_length tokens; each pass of the drafter reads its own weights and cache.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from orchestrator.findings.records import Answer, ArmRecord, unknown
from orchestrator.findings.values import Ceiling, Figure, VerifyCost
from orchestrator.findings.verification import NO_DRAFTING_MODEL, PASSES_PER_TOKEN

ABOVE = 1.05  # of the ceiling: a higher rate is not a measuring error


def ceilings(
    arms: Sequence[ArmRecord], answers: Sequence[Answer], *, costs: Mapping[str, VerifyCost], bandwidth: Figure
) -> tuple[Ceiling, ...]:
    """Compute the ceiling of each measured arm.

    Args:
        costs: of the speculative arms over all classes.
        bandwidth: bytes per second, with its source.
    """
    used = [answer for answer in answers if answer.measured]
    return tuple(
        _ceiling(arm, mine, costs.get(arm.name), bandwidth)
        for arm in arms
        if (mine := [answer for answer in used if answer.arm == arm.name])
    )


def _ceiling(arm: ArmRecord, mine: Sequence[Answer], cost: VerifyCost | None, bandwidth: Figure) -> Ceiling:
    context = mean_context(mine)
    weights = _bytes(arm.read_bytes, f"weights of {arm.checkpoint} that one token reads")
    kv = _cache_bytes(arm.kv_bytes, context)
    draft = _draft_bytes(arm, cost, context)
    per_pass = total_bytes(weights, kv, draft)
    passes = over(bandwidth, per_pass, "bandwidth / bytes of a pass")
    rates = [answer.decode_tps for answer in mine if answer.decode_tps is not None]
    tps = float(np.median(rates)) if rates else None
    accept = 1.0 if not arm.speculates else cost.accept_length if cost is not None else None
    measured = tps if not arm.speculates else 1 / cost.step_s if cost is not None and cost.step_s else None
    share = _share(measured, passes)
    return Ceiling(
        arm=arm.name,
        speculates=arm.speculates,
        weights_bytes=weights,
        draft_bytes=draft,
        kv_bytes=kv,
        context_tokens=context,
        bytes_per_pass=per_pass,
        bandwidth_bytes_per_s=bandwidth,
        ceiling_passes_per_s=passes,
        ceiling_tps=_times(passes, accept),
        measured_passes_per_s=measured,
        measured_tps=tps,
        share=share,
        note=_note(share),
    )


def mean_context(answers: Sequence[Answer]) -> float | None:
    """Return the mean number of tokens in the cache at the middle of an answer: prompt and half of the completion."""
    lengths = [
        answer.prompt_tokens + answer.completion_tokens / 2
        for answer in answers
        if answer.prompt_tokens is not None and answer.completion_tokens is not None
    ]
    return float(np.mean(lengths)) if lengths else None


def total_bytes(*parts: Figure) -> Figure:
    """Return the sum, or the reason of the first unknown part: a sum without it would be too small."""
    missing = next((part for part in parts if part.value is None), None)
    if missing is not None:
        return unknown(missing.source)
    return Figure(value=sum(part.value for part in parts if part.value is not None), source="weights + cache + drafter")


def over(bandwidth: Figure, size: Figure, source: str) -> Figure:
    """Return passes per second: bandwidth over bytes."""
    if bandwidth.value is None or not size.value:
        return unknown(bandwidth.source if bandwidth.value is None else size.source)
    return Figure(value=bandwidth.value / size.value, source=source)


def _bytes(value: int | None, what: str) -> Figure:
    return unknown(f"unknown: {what}") if value is None else Figure(value=float(value), source=what)


def _cache_bytes(each: int | None, context: float | None) -> Figure:
    if each is None or context is None:
        return unknown("unknown: bytes of the cache per token" if each is None else "unknown: length of the context")
    return Figure(value=each * context, source=f"{each} bytes per token x {context:.0f} tokens of mean context")


def _draft_bytes(arm: ArmRecord, cost: VerifyCost | None, context: float | None) -> Figure:
    """Return the bytes of weights and cache that the drafter reads for one round, at the target's context."""
    if not arm.speculates or arm.engine in NO_DRAFTING_MODEL:
        return Figure(value=0.0, source="no model drafts")
    if arm.draft_read_bytes is None:
        return unknown(f"unknown: bytes that the drafter {arm.draft or ''} reads".replace("  ", " "))
    kv = _cache_bytes(arm.draft_kv_bytes, context)
    if kv.value is None:
        return unknown(f"{kv.source}, of the drafter")
    passes = 1.0
    if arm.engine in PASSES_PER_TOKEN:
        if cost is None or arm.width is None:
            return unknown("unknown: how many passes the drafter takes for a round")
        passes = float(arm.width - 1)
    source = f"{passes:g} drafting passes per round, each of {arm.draft_read_bytes} bytes of weights and {kv.source}"
    return Figure(value=passes * (arm.draft_read_bytes + kv.value), source=source)


def _times(passes: Figure, accept_length: float | None) -> Figure:
    if passes.value is None or accept_length is None:
        return unknown(passes.source if passes.value is None else "unknown: tokens committed per round")
    return Figure(value=passes.value * accept_length, source="passes x tokens of a pass")


def _share(measured: float | None, ceiling: Figure) -> Figure:
    if measured is None or not ceiling.value:
        return unknown(ceiling.source if ceiling.value is None else "the passes are not timed")
    return Figure(value=measured / ceiling.value, source="measured passes over the ceiling")


def _note(share: Figure) -> str | None:
    if share.value is None or share.value <= ABOVE:
        return None
    return (
        "above the ceiling: weights fit a processor's cache, or the bandwidth was measured too low (on a busy machine?)"
    )
