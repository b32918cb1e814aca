"""Tests whether there is one effect at all: effects by prompt, over the run, and unlike tails. Pure.

Each test deals the signs of the rounds anew, as the test of the mean does, under "the effect is the same everywhere".
Where a round holds several prompts, their deviations from the round's own mean do not depend on the common effect, and
the test is exact. Where a round holds one prompt, the common effect is unknown: the p-value is the largest over all
effects within four standard errors of the mean (Ding, Feller and Miratrix 2016). What is found counts only where it is
larger than the margin.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.effects import Exchanged, Integers, Series, exchanges_of, typical_of
from orchestrator.estimation.inversion import Floats
from orchestrator.estimation.levels import NORMAL_MAD, SMALL
from orchestrator.statistics.comparability import Reason
from orchestrator.statistics.findings import COURSE, PROMPT

DEALS = 2_000
REACH = 4.0  # standard errors
COMMON_EFFECTS = 9  # candidates for the common effect within them
TAIL = 0.05  # the slow end of the trials
STALL = 5.0  # scales below the typical trial, and more than the margin
STALL_LEVEL = 0.2  # stalls only forbid "no difference", and are few: four against none has p = 0.125
NAMED_ROUNDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """Features of a comparison that one number hides."""

    varies: tuple[Reason, ...]  # the effect itself: no single ratio is a headline
    opposite: bool  # some prompts gain and others lose, both by more than the margin
    odd_rounds: Reason | None  # why the mean differs from a typical round
    inside: bool  # mean and typical round both lie inside the margin

    @property
    def notes(self) -> tuple[Reason, ...]:
        return self.varies if self.odd_rounds is None else (*self.varies, self.odd_rounds)


def variation_of(series: Series, *, alpha: float, margin: float, seed: int) -> Variation:
    """Test whether the effect varies, and find what makes its mean differ from a typical round."""
    bound = -math.log1p(-margin)
    signs = exchanges_of(series, seed)[:DEALS]
    tests = Exchanged.of(series, signs, studentised=True)
    error = tests.standard_error(series.mean)
    common = series.mean + error * np.linspace(-REACH, REACH, COMMON_EFFECTS)
    prompts = _by_prompt(series, signs, common, bound)
    course = _by_course(series, signs, common, bound)
    found = [reason for p, reason in (prompts, course) if reason is not None and p <= alpha]
    means = series.parts.means if series.parts is not None else np.zeros(1)
    opposite = bool(prompts[1] in found and means.min() < -bound and means.max() > bound)
    typical = typical_of(series.contrasts)
    return Variation(
        varies=tuple(found),
        opposite=opposite,
        odd_rounds=_odd_rounds(series, typical) if abs(typical - series.mean) > bound else None,
        inside=max(abs(typical), abs(series.mean)) < bound,
    )


def _by_prompt(series: Series, signs: Floats, common: Floats, bound: float) -> tuple[float, Reason | None]:
    parts = series.parts
    if parts is None or len(parts.names) < 2:
        return 1.0, None
    means = parts.means
    if means.max() - means.min() <= bound:
        return 1.0, None
    several = (~np.isnan(parts.contrasts)).sum(axis=1) > 1
    values = parts.contrasts[several] if several.any() else parts.contrasts
    if several.any():
        values = values - np.nanmean(values, axis=1, keepdims=True)
        common, signs = np.zeros(1), _of_rounds(signs, series.rounds)[:, several]
    counts = (~np.isnan(values)).sum(axis=0)
    if counts.sum() - (counts > 0).sum() < 2:
        return 1.0, None  # one round per prompt: a prompt cannot be separated from its round
    p = max(_p_unlike(values - effect, counts, signs) for effect in common)
    low, high = int(np.argmin(means)), int(np.argmax(means))
    text = (
        f"the effect depends on the prompt (p = {p:.4f}): from {math.exp(means[low]):.3f} for {parts.names[low]}"
        f" to {math.exp(means[high]):.3f} for {parts.names[high]}"
    )
    return p, Reason(code=PROMPT, text=text)


def _p_unlike(values: Floats, counts: Integers, signs: Floats) -> float:
    """Return the p-value of the spread between prompts over that within; values (R, P), NaN where there is none."""
    filled = np.nan_to_num(values)
    sums = _of_rounds(signs, len(values)) @ filled
    held = np.maximum(counts, 1)
    explained = (sums**2 / held).sum(axis=1)
    between = explained - sums.sum(axis=1) ** 2 / counts.sum()
    ratio = between / np.maximum((filled**2).sum() - explained, 1e-24)
    return float(np.mean(ratio >= ratio[0] * (1 - 1e-9)))


def _by_course(series: Series, signs: Floats, common: Floats, bound: float) -> tuple[float, Reason | None]:
    counts = np.bincount(series.strata)
    time = np.argsort(np.argsort(series.numbers)).astype(np.float64)
    time -= (np.bincount(series.strata, weights=time) / counts)[series.strata]
    own = (np.bincount(series.strata, weights=series.contrasts) / counts)[series.strata]
    late = time > 0
    if len(counts) > 1:
        # Each prompt's own mean, not known either, is estimated; the spread is corrected for that.
        common = np.zeros(1)
        values = (series.contrasts - own) * math.sqrt(series.rounds / max(series.rounds - len(counts), 1))
    else:
        values = series.contrasts
    if not late.any() or late.all():
        return 1.0, None
    halves = [float((series.contrasts - own)[side].mean()) + series.mean for side in (~late, late)]
    if abs(halves[1] - halves[0]) <= bound:
        return 1.0, None
    signs = _of_rounds(signs, series.rounds)
    slopes, lever = signs @ (time * values), signs @ time
    p = max(float(np.mean(np.abs(sizes) >= abs(sizes[0]) * (1 - 1e-9))) for sizes in _shifted(slopes, lever, common))
    text = (
        f"the effect changes in the course of the run (p = {p:.4f}): {math.exp(halves[0]):.3f} in the first half of"
        f" the rounds, {math.exp(halves[1]):.3f} in the second"
    )
    return p, Reason(code=COURSE, text=text)


def _shifted(slopes: Floats, lever: Floats, common: Floats) -> Iterable[Floats]:
    for effect in common:
        yield slopes - effect * lever


def _of_rounds(signs: Floats, rounds: int) -> Floats:
    """Return the signs with one column per round; with many rounds, neighbours share one."""
    groups = signs.shape[1]
    return signs if groups >= rounds else signs[:, np.arange(rounds) * groups // rounds]


def _odd_rounds(series: Series, typical: float) -> Reason:
    """Name the rounds or prompts that pull the mean away from a typical round: the fewest that explain half."""
    pull = series.weights * (series.contrasts - typical)
    toward = pull if series.mean > typical else -pull
    order = np.argsort(-toward, kind="stable")
    needed = int(np.searchsorted(np.cumsum(toward[order]), abs(series.mean - typical) / 2)) + 1
    odd = order[:needed]
    text = (
        f"the mean is {math.exp(series.mean):.3f} and a typical round {math.exp(typical):.3f}: the difference is made"
        f" by {_named(series, odd)}"
    )
    return Reason(code="odd_rounds", text=text)


def _named(series: Series, odd: Integers) -> str:
    parts = series.parts
    if parts is not None and series.strata.max() > 0:
        names = list(dict.fromkeys(parts.names[int(np.flatnonzero(~np.isnan(parts.contrasts[row]))[0])] for row in odd))
        if len(names) <= max(len(parts.names) // 3, 1):
            return f"the rounds of {', '.join(names)}"
    numbers = sorted(int(number) + 1 for number in series.numbers[odd])
    shown = ", ".join(str(number) for number in numbers[:NAMED_ROUNDS])
    more = f" and {len(numbers) - NAMED_ROUNDS} more" if len(numbers) > NAMED_ROUNDS else ""
    return f"round{'s' if len(numbers) > 1 else ''} {shown}{more}"


def unlike_tails(
    series: Series, *, alpha: float, margin: float, seed: int, lower_is_faster: bool, arms: Sequence[str]
) -> Reason | None:
    """Test whether one arm alone has slow trials, on values less drift, prompt and the typical difference.

    Args:
        arms: the treatment and the control.
    """
    if series.flat is None:
        return None
    sign = -1.0 if lower_is_faster else 1.0
    values = sign * (series.flat - np.array([[typical_of(series.contrasts)], [0.0]]))
    for stratum in range(int(series.strata.max()) + 1):
        own = series.strata == stratum
        values[:, own] -= np.median(values[:, own])
    bound = -math.log1p(-margin)
    return _stalls(values, bound, arms) or _slow_end(values, bound, series, alpha=alpha, seed=seed, arms=arms)


def _stalls(values: Floats, bound: float, arms: Sequence[str]) -> Reason | None:
    """Run a sign test on the rounds in which one arm alone stalled."""
    scale = float(np.median(np.abs(values))) / NORMAL_MAD
    stalled = values < -max(STALL * scale, bound)
    alone = [int((stalled[side] & ~stalled[1 - side]).sum()) for side in (0, 1)]
    rounds = sum(alone)
    p = min(1.0, 2.0 * sum(math.comb(rounds, count) for count in range(min(alone) + 1)) / 2**rounds)
    if p > STALL_LEVEL:
        return None
    counts = [int(stalled[side].sum()) for side in (0, 1)]
    text = (
        f"stalled trials: {counts[0]} of {values.shape[1]} of {arms[0]}, {counts[1]} of {arms[1]} (p = {p:.3f}),"
        " which an average hides"
    )
    return Reason(code="stalls_differ", text=text)


def _slow_end(
    values: Floats, bound: float, series: Series, *, alpha: float, seed: int, arms: Sequence[str]
) -> Reason | None:
    """Run the exchange test on the slowest twentieth."""
    ends = np.quantile(values, TAIL, axis=1)
    observed = float(ends[0] - ends[1])
    if abs(observed) <= bound:
        return None
    exchanged = _of_rounds(exchanges_of(series, seed)[:DEALS], series.rounds) < 0
    first, second = np.where(exchanged, values[1], values[0]), np.where(exchanged, values[0], values[1])
    sizes = np.abs(np.quantile(first, TAIL, axis=1) - np.quantile(second, TAIL, axis=1))
    p = float(np.mean(sizes >= sizes[0] - SMALL))
    if p > alpha:
        return None
    slower = arms[0] if observed < 0 else arms[1]
    text = (
        f"the slowest twentieth of the trials differs (p = {p:.3f}): {slower} falls to {math.exp(-abs(observed)):.3f}"
        " of the other's speed there"
    )
    return Reason(code="tails_differ", text=text)
