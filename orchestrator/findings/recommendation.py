"""Recommend an arm for each use, in one sentence. Pure.

Only supported differences count. An arm that is better in one scope and worse in another is never called better. The
same holds for an arm with a better decode rate whose second turns wait for their first token.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from orchestrator.findings.values import ArmTurns, BetterFor, Recommendation
from orchestrator.statistics.findings import AuditResult, Comparison
from orchestrator.vocabulary import METRICS, VERDICTS

TTFT = "ttft_s"
SHOWN = 3  # scopes named per arm in a sentence


def recommend(result: AuditResult, turns: Sequence[ArmTurns]) -> Recommendation:
    """Recommend from the audit's comparisons in all scopes and from the later turns' times to the first token."""
    found = [*(each for one in result.comparisons if (each := _better(one)) is not None), *_waits(result, turns)]
    treatments = list(dict.fromkeys(one.treatment for one in result.comparisons))
    sentences, disagree = [], False
    for treatment in treatments:
        mine = [each for each in found if treatment in (each.better, each.other)]
        split = len({each.better for each in mine}) > 1
        disagree |= split
        (whole,) = (one for one in result.comparisons if one.treatment == treatment and one.over_all)
        sentences.append(_split_sentence(mine) if split else _sentence(whole, mine))
    return Recommendation(
        sentence=" ".join(sentences) or "Nothing to compare: the run has no arm besides its control.",
        disagree=disagree,
        by_scope=tuple(found),
    )


def _better(one: Comparison) -> BetterFor | None:
    """Return a supported comparison with a direction, oriented so that the better arm comes first."""
    if one.verdict != "supported" or one.direction is None or one.ratio is None:
        return None
    better, other = (one.treatment, one.control) if one.direction == "faster" else (one.control, one.treatment)
    return _turned(one.scope.words, one.metric, better, other, (one.ratio, one.ci_low, one.ci_high), one.rounds)


def _turned(
    scope: str, metric: str, better: str, other: str, figures: tuple[float, float | None, float | None], rounds: int
) -> BetterFor:
    ratio, low, high = figures
    if ratio < 1:
        ratio, low, high = 1 / ratio, None if not high else 1 / high, None if not low else 1 / low
    return BetterFor(
        scope=scope, metric=metric, better=better, other=other, times=ratio, ci_low=low, ci_high=high, rounds=rounds
    )


def _waits(result: AuditResult, turns: Sequence[ArmTurns]) -> Iterable[BetterFor]:
    """Yield supported differences in later turns' time to the first token, if the audit compared another metric."""
    if METRICS[result.metric].lower_is_faster:
        return
    for arm in turns:
        for turn in arm.turns[1:]:
            found = turn.ttft_ratio
            if turn.verdict == "supported" and found is not None:
                better, other = (result.control, arm.arm) if found.ratio > 1 else (arm.arm, result.control)
                scope = f"the wait for the first token in turn {turn.turn + 1} of {arm.workload}"
                yield _turned(scope, TTFT, better, other, (found.ratio, found.ci_low, found.ci_high), found.rounds)


def _split_sentence(found: Sequence[BetterFor]) -> str:
    """Name each arm with the scopes in which it is better; averages over scopes that disagree are left out."""
    scoped = [each for each in found if each.scope != "over all"]
    ranked = sorted(scoped, key=lambda each: each.better)
    parts = [f"{better} for {_listed(list(each))}" for better, each in groupby(ranked, key=lambda each: each.better)]
    return f"It depends on the work: {'; '.join(parts)}."


def _listed(found: Sequence[BetterFor]) -> str:
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(f"{each.scope} ({each.times:.2f}x)" for each in found[:SHOWN]) + more


def _sentence(whole: Comparison, found: Sequence[BetterFor]) -> str:
    pair = f"{whole.treatment} against {whole.control}"
    if whole.varies is not None:
        led = "" if whole.direction is None else f"; on average {whole.treatment} is {whole.direction}"
        return f"{pair}: {whole.varies.text}{led}."
    over_all = next((each for each in found if each.scope == "over all"), None)
    if over_all is not None:
        return f"{over_all.better} is {over_all.times:.2f}x as fast as {over_all.other}{_interval(over_all)}."
    words = f"{pair}: {VERDICTS[whole.verdict].words}"
    if found:
        words += f" over all, but {found[0].better} is better for {_listed(found)}"
    return f"{words}."


def _interval(found: BetterFor) -> str:
    known = found.ci_low is not None and found.ci_high is not None
    return f" ({found.ci_low:.2f} to {found.ci_high:.2f})" if known else ""
