"""Directions of the parts of a scope: if they disagree, the scope has no winner. Pure.

An engine can win every short prompt and lose the second turn of a long conversation by an order of magnitude. Averaged
over both it is a little faster or a little slower, which helps nobody.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from orchestrator.effects import Series
from orchestrator.statistics.comparability import Asked, Reason, Scope
from orchestrator.statistics.family import Standing
from orchestrator.statistics.findings import SPLIT, BestSet, Comparison

Compared = tuple[int, str]  # number of the scope among those that are judged together, and an arm
Family = Callable[[Mapping[Compared, Series]], Mapping[Compared, float]]
Parts = Mapping[Scope, tuple[Scope, ...]]


def parts_of(scopes: Sequence[Scope], asked: Asked) -> dict[Scope, tuple[Scope, ...]]:
    """Return, for each scope, the other scopes that lie wholly within it.

    Args:
        asked: the run's generations.
    """
    rows = {scope: asked.within(scope) for scope in scopes}
    return {
        scope: tuple(
            other for other in scopes if other != scope and not (rows[other] & ~inside).any() and rows[other].any()
        )
        for scope, inside in rows.items()
    }


def split_where_parts_disagree(
    comparisons: Sequence[Comparison], parts: Parts, *, waits: Sequence[Comparison] = ()
) -> tuple[Comparison, ...]:
    """Remove the direction of comparisons if supported ones of the same arms within the scope are opposite.

    Args:
        waits: the later turns' times to the first token, where the run compares something else: parts as well.
    """
    return tuple(
        _split(one, [each for each in (*comparisons, *waits) if _is_part(each, one, parts)]) for one in comparisons
    )


def _is_part(other: Comparison, whole: Comparison, parts: Parts) -> bool:
    return other.treatment == whole.treatment and other.scope in parts[whole.scope]


def best_everywhere(
    standings: Mapping[Scope, Standing],
    parts: Parts,
    *,
    alpha: float,
    family: Family,
    waits: Mapping[Scope, Standing] | None = None,
) -> tuple[BestSet, ...]:
    """Return the arms among the best of each scope and of all its parts: best on average is not enough.

    An arm is left out when it differs from the best of the scope or of a part of it, in one family of all those
    comparisons. So an arm as good as the best everywhere is kept with a chance of at least 1 - alpha, however many
    parts there are (Hsu 1984, comparisons with the best, over all parts at once).

    Args:
        family: p-values of comparisons for the family of all of them.
        waits: of the later turns' times to the first token: parts as well.
    """
    everything = [*standings.items(), *(waits or {}).items()]
    found = []
    for scope, own in standings.items():
        judged = [(scope, own), *((part, each) for part, each in everything if part in parts[scope])]
        compared = {
            (number, arm): series for number, (_, each) in enumerate(judged) for arm, series in each.series.items()
        }
        worse = {arm for (_, arm), p in family(compared).items() if p <= alpha}
        arms = tuple(arm for arm in (own.best, *own.others) if arm not in worse)
        found.append(BestSet(workload=scope.workload, prompt_class=scope.prompt_class, turn=scope.turn, arms=arms))
    return tuple(found)


def _split(whole: Comparison, parts: Sequence[Comparison]) -> Comparison:
    said = [one for one in (whole, *parts) if one.direction is not None]
    if len({one.direction for one in said}) < 2:
        return whole
    kept = [one for one in said if one is not whole] if len({one.direction for one in said[1:]}) > 1 else said
    words = "; ".join(
        f"{direction} for {', and for '.join(_figure(one, whole.metric) for one in kept if one.direction == direction)}"
        for direction in ("faster", "slower")
    )
    reason = Reason(code=SPLIT, text=f"no overall winner: {words}")
    return replace(whole, direction=None, reasons=(reason, *whole.reasons))


def _figure(one: Comparison, whole_metric: str) -> str:
    scope = "the average" if one.over_all else one.scope.words
    waiting = "" if one.metric == whole_metric else "the wait for the first token of "
    return f"{waiting}{scope} ({one.ratio:.3f}x)"
