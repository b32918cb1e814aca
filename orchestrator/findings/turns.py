"""The turns of a conversation: the cost of later turns, and whether the cache counter is right. Pure.

A counter of 0 is wrong if the turn was far too fast for its prompt; a counter above 0 is wrong if the turn took as long
as a full prefill. A missing counter is unknown, not 0.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.findings.records import Answer, unknown
from orchestrator.findings.values import ArmTurns, Figure, Interval, TurnFigures

ZERO_BUT_FAST = "cached_zero_but_fast"  # the same code as the flag of generations
SLOW = "cached_but_slow"
LOST = "prefix_lost"
UNKNOWN = "cached_unknown"

LOST_BELOW = 0.5  # share of the previous turn's prompt that came from the cache: less is not reuse
CONTRADICTION = 3.0  # times longer than the new tokens need, at the first turn's rate
NEAR_FULL = 0.7  # of the time that the whole prompt needs
MUCH_LATER = 2.0  # times the time that the arm's own first turn predicts


@dataclass(frozen=True, slots=True, kw_only=True)
class TtftRatio:
    """One arm's time to the first token over the control's in one turn."""

    interval: Interval
    verdict: str


Ratios = Mapping[tuple[str, str, int], TtftRatio]  # workload, arm, turn


def arm_turns(arms: Sequence[str], answers: Sequence[Answer], *, ratios: Ratios) -> tuple[ArmTurns, ...]:
    """Return the figures of each workload's conversations with several turns, by arm.

    Args:
        arms: in the order of the report.
    """
    used = [answer for answer in answers if answer.measured]
    several = {(answer.workload, answer.prompt_id) for answer in used if answer.turn > 0}
    held = [answer for answer in used if (answer.workload, answer.prompt_id) in several]
    found = []
    for workload in dict.fromkeys(answer.workload for answer in held):
        for arm in arms:
            mine = [answer for answer in held if answer.workload == workload and answer.arm == arm]
            found += [_of_arm(arm, workload, mine, ratios)] if mine else []
    return tuple(found)


def late_turns(found: Sequence[ArmTurns], *, control: str) -> tuple[str, ...]:
    """Report turns that certainly wait much longer for their first token than the arm's first turn predicts: the whole
    interval of a supported difference is above `MUCH_LATER`. An average over turns and workloads hides it.
    """
    sentences = []
    for one in found:
        first = one.turns[0].ttft_ratio
        usual = max(1.0, first.ratio if first is not None else 1.0)
        for turn in one.turns[1:]:
            ratio = turn.ttft_ratio
            if turn.verdict != "supported" or ratio is None or ratio.ci_low is None:
                continue  # nothing certain is known about it
            if ratio.ci_low <= MUCH_LATER * usual:
                continue
            cached = turn.cached_tokens.value
            why = "" if cached is None or turn.prompt_tokens is None else f", {cached:.0f} of {turn.prompt_tokens:.0f}"
            why += " prompt tokens from its cache" if why else ""
            sentences.append(
                f"turn {turn.turn + 1} of {one.workload} starts {ratio.ratio:.3g} times as late with {one.arm} as with"
                f" {control}{why}"
            )
    return tuple(sentences)


def _of_arm(arm: str, workload: str, mine: Sequence[Answer], ratios: Ratios) -> ArmTurns:
    turns = tuple(
        _figures(turn, [answer for answer in mine if answer.turn == turn], ratios.get((workload, arm, turn)))
        for turn in sorted({answer.turn for answer in mine})
    )
    flagged = sum(ZERO_BUT_FAST in answer.flags for answer in mine)
    said = tuple(remark for turn in turns[1:] for remark in _remarks(turns[0], turn, _reused(mine, turn.turn)))
    if flagged:
        text = f"the cache counter reports 0 in {flagged} answers that were too fast for that: it is wrong"
        said = (*(remark for remark in said if remark[0] != LOST), (ZERO_BUT_FAST, text))
    return ArmTurns(
        arm=arm,
        workload=workload,
        turns=turns,
        flags=tuple(dict.fromkeys(code for code, _ in said)),
        remarks=tuple(text for _, text in said),
    )


def _figures(turn: int, mine: Sequence[Answer], ratio: TtftRatio | None) -> TurnFigures:
    counted = [answer for answer in mine if answer.cached_tokens is not None and answer.prompt_tokens is not None]
    cached = new = unknown("the engine does not report cached prompt tokens")
    if counted:
        source = f"median of {len(counted)} answers"
        cached = Figure(value=_median(answer.cached_tokens for answer in counted), source=source)
        new = Figure(value=_median(_new(answer) for answer in counted), source=source)
    rates = [answer.prefill_tps for answer in mine if answer.prefill_tps is not None]
    prefill = Figure(value=_median(rates), source="new tokens over time to the first token") if rates else None
    return TurnFigures(
        turn=turn,
        generations=len(mine),
        ttft_s=_median(answer.ttft_s for answer in mine),
        prompt_tokens=_median(answer.prompt_tokens for answer in mine),
        cached_tokens=cached,
        new_tokens=new,
        prefill_tps=prefill or unknown(new.source if new.value is None else "no prompt was processed"),
        ttft_ratio=None if ratio is None else ratio.interval,
        verdict=None if ratio is None else ratio.verdict,
    )


def _reused(mine: Sequence[Answer], turn: int) -> list[tuple[int, int]]:
    """Return for each conversation with known counts: cached tokens, and tokens of the previous turn."""
    before = {_conversation(answer): answer.prompt_tokens for answer in mine if answer.turn == turn - 1}
    return [
        (answer.cached_tokens, earlier)
        for answer in mine
        if answer.turn == turn and answer.cached_tokens is not None and (earlier := before.get(_conversation(answer)))
    ]


def _conversation(answer: Answer) -> tuple[int | None, bool, str]:
    """Identify an answer's conversation: an arm has it once per entry in a round."""
    return answer.round, answer.is_aa, answer.prompt_id


def _remarks(first: TurnFigures, later: TurnFigures, reused: Sequence[tuple[int, int]]) -> Iterable[tuple[str, str]]:
    """Compare a later turn's counter with its time; the times for full and new prompts are at the first turn's rate."""
    name = f"turn {later.turn + 1}"
    rate, ttft_s, prompt = first.prefill_tps.value, later.ttft_s, later.prompt_tokens
    full_s = None if not rate or prompt is None else prompt / rate
    if later.cached_tokens.value is None:
        if full_s is None and first.ttft_s is not None and first.prompt_tokens and prompt is not None:
            full_s = first.ttft_s * prompt / first.prompt_tokens
        yield UNKNOWN, f"{name}: {later.cached_tokens.source}{_by_time(ttft_s, full_s)}"
        return
    cached = later.cached_tokens.value
    lost = [pair for pair in reused if pair[0] < LOST_BELOW * pair[1]]
    if lost:
        kept, earlier = (_median(counts) for counts in zip(*lost, strict=True))
        yield (
            LOST,
            f"{name}: in {len(lost)} of {len(reused)} conversations {kept:.0f} of the {earlier:.0f} tokens of the turn"
            " before came from the cache",
        )
    if 2 * len(lost) > len(reused):
        return  # the medians are those of turns that lost the prefix
    if full_s is not None and rate and ttft_s is not None and later.new_tokens.value is not None:
        new_s = later.new_tokens.value / rate
        if ttft_s > CONTRADICTION * new_s and ttft_s > NEAR_FULL * full_s:
            yield (
                SLOW,
                f"{name}: the counter reports {cached:.0f} of {prompt:.0f} tokens as cached, but the time"
                f" ({ttft_s:.3g} s) is that of a full prefill ({full_s:.3g} s)",
            )


def _by_time(ttft_s: float | None, full_s: float | None) -> str:
    if ttft_s is None or not full_s:
        return ""
    if ttft_s * CONTRADICTION < full_s:
        return f"; by its time ({ttft_s:.3g} s, a full prefill needs {full_s:.3g} s) the prefix was reused"
    if ttft_s > NEAR_FULL * full_s:
        return f"; by its time ({ttft_s:.3g} s, a full prefill needs {full_s:.3g} s) it was processed again"
    return ""


def _new(answer: Answer) -> int | None:
    known = answer.prompt_tokens is not None and answer.cached_tokens is not None
    return (answer.prompt_tokens or 0) - (answer.cached_tokens or 0) if known else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None
