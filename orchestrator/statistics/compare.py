"""Comparison of two runs, which is possible only if they share a control. Pure.

Two runs are two evenings: the machine was another in each. What can be compared is how far each treatment was from the
same control: a ratio of ratios. Its interval comes from the two runs' own intervals by the method of variance estimates
recovery (Zou and Donner 2008, on the log scale): with d = log of a ratio and [l, u] its interval,

    lower = (d1 - d2) - sqrt((d1 - l1)^2 + (u2 - d2)^2)
    upper = (d1 - d2) + sqrt((u1 - d1)^2 + (d2 - l2)^2)

That interval knows the noise within the two runs, and not what an effect varies by from evening to evening. Where this
machine measured a pair of arms on other evenings, the interval is at least as wide as two evenings differ
(`orchestrator.statistics.evenings`); where it did not, an interval that excludes 1 means that the two evenings differ,
and not that the arms do.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import InputError
from orchestrator.plan import Plan
from orchestrator.statistics.evenings import Evenings
from orchestrator.statistics.findings import Comparison
from orchestrator.vocabulary import VERDICTS

ALPHA = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSide:
    """The part of a run that the comparison needs."""

    run_id: str
    plan: Plan
    comparisons: Sequence[Comparison]
    checkpoints: Mapping[str, str]  # digest of each arm's checkpoint, by arm
    facts: Mapping[str, str]  # host, chip, versions: what may differ and is then named


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A treatment of one run over a treatment of the other, each relative to the shared control."""

    first: str
    second: str
    prompt_class: str | None
    ratio: float  # (first / control in run A) / (second / control in run B)
    ci_low: float
    ci_high: float
    same_arm: bool  # one configuration in both runs: did its gain change?
    evenings_known: bool  # whether the interval holds what evenings differ by

    @property
    def clear(self) -> bool:
        """Return whether the arms differ: the interval excludes 1 and allows for the spread between evenings."""
        return self.evenings_known and self._excludes_1

    @property
    def says(self) -> str:
        """Return the finding as text."""
        if not self._excludes_1:
            return "no clear difference"
        return "differs" if self.evenings_known else "these evenings differed"

    @property
    def _excludes_1(self) -> bool:
        return not self.ci_low <= 1 <= self.ci_high


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """Two runs related through their control."""

    control: str
    metric: str
    relations: tuple[Relation, ...]
    differences: tuple[str, ...]  # what else differs between the runs
    evenings: Evenings | None  # None: too few evenings of one pair of arms on this machine


def compare_runs(first: RunSide, second: RunSide, *, evenings: Evenings | None = None) -> RunComparison:
    """Relate every treatment of one run to every treatment of the other.

    Args:
        evenings: the spread of effects between this machine's other runs of these prompts; None if unknown.

    Raises:
        InputError: the runs share no control, or asked different questions; the message names what is missing.
    """
    _require_shared_control(first, second)
    relations = [
        relation
        for one in _usable(first)
        for other in _usable(second)
        if one.prompt_class == other.prompt_class
        and (relation := _relate(one, other, evenings, same_arm=_same_arm(first, one, second, other))) is not None
    ]
    if not relations:
        raise InputError(
            f"runs {first.run_id} and {second.run_id}: no treatment has an interval in both; each needs enough"
            " complete rounds and evidence that it engaged: see `interlace audit` of each"
        )
    return RunComparison(
        control=first.plan.control,
        metric=first.plan.design.metric,
        relations=tuple(sorted(relations, key=lambda one: (not one.same_arm, one.prompt_class or ""))),
        differences=tuple(_differences(first.facts, second.facts)),
        evenings=evenings,
    )


def ratio_of_ratios(
    first: tuple[float, float, float], second: tuple[float, float, float]
) -> tuple[float, float, float]:
    """(ratio, low, high) of one effect over another, from two independent (ratio, low, high)."""
    d1, l1, u1 = map(math.log, first)
    d2, l2, u2 = map(math.log, second)
    difference = d1 - d2
    return (
        math.exp(difference),
        math.exp(difference - math.hypot(d1 - l1, u2 - d2)),
        math.exp(difference + math.hypot(u1 - d1, d2 - l2)),
    )


def _relate(one: Comparison, other: Comparison, evenings: Evenings | None, *, same_arm: bool) -> Relation | None:
    sides = (one.ratio, one.ci_low, one.ci_high), (other.ratio, other.ci_low, other.ci_high)
    if any(value is None for side in sides for value in side):
        return None
    ratio, low, high = ratio_of_ratios(*sides)  # type: ignore[arg-type]  # no None: just checked
    if evenings is not None:
        factor = math.exp(evenings.half_width(ALPHA))
        low, high = min(low, ratio / factor), max(high, ratio * factor)
    return Relation(
        first=one.treatment,
        second=other.treatment,
        prompt_class=one.prompt_class,
        ratio=ratio,
        ci_low=low,
        ci_high=high,
        same_arm=same_arm,
        evenings_known=evenings is not None,
    )


def _usable(side: RunSide) -> list[Comparison]:
    """Return the comparisons whose numbers can be used."""
    return [
        one for one in side.comparisons if one.turn is None and one.workload is None and VERDICTS[one.verdict].usable
    ]


def _require_shared_control(first: RunSide, second: RunSide) -> None:
    missing = []
    if _configuration(first) != _configuration(second):
        missing.append(
            f"a shared control: {first.plan.control} and {second.plan.control} are configured differently; run both"
            " with the same control arm"
        )
    elif first.checkpoints.get(first.plan.control) != second.checkpoints.get(second.plan.control):
        missing.append("the same weights in the control: their digests differ")
    if first.plan.workload_sha256 != second.plan.workload_sha256:
        missing.append("the same prompts: the workloads' hashes differ")
    if first.plan.design.metric != second.plan.design.metric:
        missing.append(f"the same metric: {first.plan.design.metric} against {second.plan.design.metric}")
    if missing:
        raise InputError(f"runs {first.run_id} and {second.run_id} cannot be related; missing: {'; '.join(missing)}")


def _configuration(side: RunSide, arm: str | None = None) -> str:
    wanted = arm or side.plan.control
    return next(each.config_sha256 for each in side.plan.arms if each.name == wanted)


def _same_arm(first: RunSide, one: Comparison, second: RunSide, other: Comparison) -> bool:
    return _configuration(first, one.treatment) == _configuration(second, other.treatment)


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    names = sorted(set(first) | set(second))
    return [
        f"{name}: {first.get(name, 'unknown')} against {second.get(name, 'unknown')}"
        for name in names
        if first.get(name) != second.get(name)
    ]
