"""The cost of a token by the depth of its context: curves, a straight line per arm, and where two arms cross. Pure.

A pass is one round of each depth. With d the tokens before a generated token (prompt, and half of the answer), in
thousands, least squares over the depths of one pass give its line

    time per token = a + b x d          a in ms, b in us per 1,000 tokens

Means over passes have t intervals. Two arms differ in pass j by the line da_j + db_j x d. They cross where its mean is
0; the interval holds every d at which a t test does not reject 0 (Fieller 1954). Drift from pass to pass changes the
differences of a pass by a factor, which does not move their zero; drift within a pass is noise, because the order of
the depths is random, unless a round is the whole workload. A crossing is stated only if its interval lies within the
measured depths. If the lines do not fit, only the two depths are stated between which the sign certainly changes.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.findings.records import Answer
from orchestrator.findings.values import Crossing, DepthCurve, DepthPoint, MeanInterval
from orchestrator.statistics.evenings import t_quantile

Floats = npt.NDArray[np.float64]

LEAST_PASSES = 5  # fewer leave intervals that say nothing, and `t_quantile` is off by more than 1 %
STRAIGHT = 0.05  # of the time per token: the largest distance of a depth's mean from the line
_DEPTH = re.compile(r"depth (\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """The difference of two lines in each pass, or one arm's lines."""

    depths: Floats  # (depths,) thousands of tokens
    values: Floats  # (passes, depths) ms per token
    a: Floats  # (passes,) ms
    b: Floats  # (passes,) ms per 1,000 tokens

    @classmethod
    def fit(cls, depths: Floats, values: Floats) -> "_Line":
        b, a = np.polynomial.polynomial.polyfit(depths, values.T, 1)[::-1]
        return cls(depths=depths, values=values, a=a, b=b)

    @property
    def largest_distance(self) -> float:
        """Return the largest distance of a depth's mean from the mean line, in ms."""
        line = self.a.mean() + self.b.mean() * self.depths
        return float(np.abs(self.values.mean(axis=0) - line).max())


def depth_curves(
    arms: Sequence[str], answers: Sequence[Answer], *, control: str, alpha: float
) -> tuple[DepthCurve, ...]:
    """Return the curves of each workload of kind `depths`, by arm, and their crossings with the control.

    Args:
        arms: in the order of the report.
        alpha: intervals have confidence 1 - alpha.
    """
    cells: dict[tuple[str, str], dict[int, dict[int, Answer]]] = defaultdict(lambda: defaultdict(dict))
    for answer in answers:
        if answer.measured and not answer.is_aa and answer.round is not None and answer.decode_tps:
            depth = depth_of(answer.prompt_class)
            if depth is not None:
                cells[answer.workload, answer.arm][depth][answer.round] = answer
    found = []
    for workload in dict.fromkeys(workload for workload, _ in cells):
        for arm in arms:
            own, controls = cells.get((workload, arm)), cells.get((workload, control), {})
            if own is not None and len(own) > 1:
                found.append(_curve(arm, workload, own, {} if arm == control else controls, alpha))
    return tuple(found)


def depth_of(prompt_class: str) -> int | None:
    """Return the depth that a class of a workload of kind `depths` names, in tokens."""
    match = _DEPTH.fullmatch(prompt_class)
    return None if match is None else int(match[1])


def crossing(differences: Floats, depths: Floats, *, scale: float, alpha: float) -> Crossing | None:
    """Return where the mean difference changes its sign; None if no change within the depths is certain.

    Args:
        differences: (passes, depths), the arm's time per token minus the control's, in ms.
        depths: thousands of tokens, ascending.
        scale: the control's mean time per token, in ms: what the distance from a line is judged by.
    """
    passes = len(differences)
    if passes < LEAST_PASSES or len(depths) < 2:
        return None
    bracket = _bracket(differences, depths, alpha)
    if bracket is None:
        return None
    low_side, high_side, pays_first = bracket
    line = _Line.fit(depths, differences)
    ends = _zeros(line, alpha)
    at = -line.a.mean() / line.b.mean() if line.b.mean() else np.nan
    straight = len(depths) > 2 and line.largest_distance <= STRAIGHT * scale
    if ends is None or not straight or not depths[0] <= ends[0] <= at <= ends[1] <= depths[-1]:
        return Crossing(at_tokens=None, low=1000 * low_side, high=1000 * high_side, pays_first=pays_first)
    return Crossing(at_tokens=1000 * float(at), low=1000 * ends[0], high=1000 * ends[1], pays_first=pays_first)


def _bracket(differences: Floats, depths: Floats, alpha: float) -> tuple[float, float, bool] | None:
    """Return the nearest two depths whose certain signs differ, and whether the arm is faster at the lower one.

    Signs that change more than once are no crossing. Each depth is tested at alpha over their number.
    """
    mean = differences.mean(axis=0)
    half = _half_width(differences, alpha / len(depths))
    certain = [(depth, value > 0) for depth, value, w in zip(depths, mean, half, strict=True) if abs(value) > w]
    changes = [(one, two) for one, two in pairwise(certain) if one[1] != two[1]]
    if len(changes) != 1:
        return None
    (low, slower_first), (high, _) = changes[0]
    return float(low), float(high), not slower_first


def _zeros(line: _Line, alpha: float) -> tuple[float, float] | None:
    """Fieller's interval of the depth at which the mean difference is 0; None if it is not bounded."""
    passes = len(line.a)
    t2 = t_quantile(1 - alpha / 2, passes - 1) ** 2 / passes
    (saa, sab), (_, sbb) = np.cov(line.a, line.b)
    ma, mb = line.a.mean(), line.b.mean()
    square, middle, constant = mb**2 - t2 * sbb, ma * mb - t2 * sab, ma**2 - t2 * saa
    discriminant = middle**2 - square * constant
    if square <= 0 or discriminant < 0:
        return None
    root = float(np.sqrt(discriminant))
    return float((-middle - root) / square), float((-middle + root) / square)


def _curve(
    arm: str,
    workload: str,
    own: Mapping[int, Mapping[int, Answer]],
    controls: Mapping[int, Mapping[int, Answer]],
    alpha: float,
) -> DepthCurve:
    nominal = sorted(own)
    points = tuple(_point(depth, list(own[depth].values()), alpha) for depth in nominal)
    depths, values = _passes(nominal, own)
    line = _Line.fit(depths, values)
    enough = len(values) >= LEAST_PASSES
    return DepthCurve(
        arm=arm,
        workload=workload,
        points=points,
        passes=len(values),
        a_ms=_mean(line.a, alpha) if enough else None,
        b_us=_mean(1000 * line.b, alpha) if enough else None,
        residual=line.largest_distance / float(values.mean()) if enough and len(nominal) > 2 else None,
        crossing=_against(nominal, own, controls, alpha),
    )


def _against(
    nominal: Sequence[int],
    own: Mapping[int, Mapping[int, Answer]],
    controls: Mapping[int, Mapping[int, Answer]],
    alpha: float,
) -> Crossing | None:
    shared = [depth for depth in nominal if set(own[depth]) & set(controls.get(depth, {}))]
    if len(shared) < 2:
        return None
    both = {depth: sorted(set(own[depth]) & set(controls[depth])) for depth in shared}
    depths, mine = _passes(shared, {depth: {r: own[depth][r] for r in both[depth]} for depth in shared})
    _, theirs = _passes(shared, {depth: {r: controls[depth][r] for r in both[depth]} for depth in shared})
    return crossing(mine - theirs, depths, scale=float(theirs.mean()), alpha=alpha)


def _passes(nominal: Sequence[int], cells: Mapping[int, Mapping[int, Answer]]) -> tuple[Floats, Floats]:
    """Return the depths, and the times per token in ms by pass and depth: the k-th rounds of all depths are a pass."""
    count = min(len(cells[depth]) for depth in nominal)
    times = np.array([[_token_ms(cells[depth][r]) for r in sorted(cells[depth])[:count]] for depth in nominal]).T
    means = [np.mean([_depth_k(depth, answer) for answer in cells[depth].values()]) for depth in nominal]
    return np.array(means), times


def _token_ms(answer: Answer) -> float:
    assert answer.decode_tps is not None
    return 1000 / answer.decode_tps


def _depth_k(nominal: int, answer: Answer) -> float:
    prompt = nominal if answer.prompt_tokens is None else answer.prompt_tokens
    return (prompt + (answer.completion_tokens or 0) / 2) / 1000


def _point(depth: int, answers: Sequence[Answer], alpha: float) -> DepthPoint:
    return DepthPoint(
        depth=depth,
        generations=len(answers),
        prompt_tokens=_median(answers, "prompt_tokens"),
        cached_tokens=_median(answers, "cached_tokens"),
        **{name: _mean_of(answers, name, alpha) for name in ("ttft_s", "prefill_tps", "decode_tps")},
    )


def _median(answers: Sequence[Answer], name: str) -> float | None:
    values = [value for answer in answers if (value := getattr(answer, name)) is not None]
    return float(np.median(values)) if values else None


def _mean_of(answers: Sequence[Answer], name: str, alpha: float) -> MeanInterval | None:
    values: list[Any] = [value for answer in answers if (value := getattr(answer, name)) is not None]
    return _mean(np.array(values, dtype=float), alpha) if values else None


def _mean(values: Floats, alpha: float) -> MeanInterval:
    mean = float(values.mean())
    if len(values) < LEAST_PASSES:
        return MeanInterval(value=mean, low=None, high=None)
    half = float(_half_width(values, alpha))
    return MeanInterval(value=mean, low=mean - half, high=mean + half)


def _half_width(values: Floats, alpha: float) -> Floats:
    """Half of the t interval of the mean over the first axis."""
    count = len(values)
    width: Floats = t_quantile(1 - alpha / 2, count - 1) * values.std(axis=0, ddof=1) / np.sqrt(count)
    return width
