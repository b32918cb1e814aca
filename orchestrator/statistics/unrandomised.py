"""Runs whose order was not drawn at random: imported ones, or a handful of runs one after the other.

Nothing can tell an effect from drift there. What can be said is how fast the machine would have had to change to make
the effect, and how fast the control shows that it did change.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

LARGEST_LOG = 700.0  # beyond it there is no float
FASTEST_NAMED = math.log(10)  # an hour: beyond it a figure would say no more


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftExplanation:
    """A ratio and the drift that would make it. Drifts are relative changes of the value an hour, with sign."""

    treatment: str
    control: str
    ratio: float  # treatment over control, of the medians
    hours_apart: float  # the treatment's middle time less the control's
    explaining_drift_per_hour: float | None  # None: the two are too close in time for any drift to be named
    seen_drift_per_hour: float | None  # of the control against itself; None: it ran once only
    text: str


def explain_by_drift(runs: pd.DataFrame, *, control: str) -> tuple[DriftExplanation, ...]:
    """For every other arm, what drift would explain its difference from the control.

    Args:
        runs: columns `arm`, `started_at` (timestamps), `value` (above 0); a run that restored the control's settings
            bears the control's name.

    Raises:
        ValueError: a column is missing, a value is not above 0, or the control is not there.
    """
    if missing := [name for name in ("arm", "started_at", "value") if name not in runs.columns]:
        raise ValueError(f"columns missing: {missing}; give arm, started_at and value")
    value = runs["value"].astype("float64").to_numpy()
    if not (np.isfinite(value) & (value > 0)).all():
        raise ValueError("values must be finite and above 0: leave out what was not measured")
    arm = runs["arm"].astype(str).to_numpy()
    if control not in arm:
        raise ValueError(f"control {control!r}: no such arm; the runs are of {sorted(set(arm))}")
    started = pd.to_datetime(runs["started_at"], utc=True)
    hours = ((started - started.min()) / pd.Timedelta(hours=1)).to_numpy(dtype=np.float64)
    y = np.log(value)
    of_control = arm == control
    seen = _slope(hours[of_control], y[of_control])
    return tuple(
        _explanation(name, control, y[arm == name], hours[arm == name], y[of_control], hours[of_control], seen)
        for name in dict.fromkeys(arm)
        if name != control
    )


def _explanation(
    treatment: str,
    control: str,
    y: Sequence[float],
    hours: Sequence[float],
    control_y: Sequence[float],
    control_hours: Sequence[float],
    seen: float | None,
) -> DriftExplanation:
    effect = float(np.median(y) - np.median(control_y))
    apart = float(np.median(hours) - np.median(control_hours))
    needed = effect / apart if abs(apart) > 1e-6 else None
    return DriftExplanation(
        treatment=treatment,
        control=control,
        ratio=math.exp(effect),
        hours_apart=apart,
        explaining_drift_per_hour=_relative(needed),
        seen_drift_per_hour=_relative(seen),
        text=_text(treatment, control, needed, seen),
    )


def _text(treatment: str, control: str, needed: float | None, seen: float | None) -> str:
    head = f"{treatment} and {control} did not run in an order drawn at random"
    if needed is None:
        return f"{head}; they ran at the same time on the average, so no drift an hour can be named"
    explained = f"{head}; a drift of {_an_hour(needed)} would explain the difference"
    if seen is None:
        return f"{explained}, and {control} ran once only, so the drift is not known"
    return f"{explained}, and {control} against itself shows {_an_hour(seen)}"


def _an_hour(drift: float) -> str:
    """A drift on the log scale in words. Runs seconds apart would need absurd ones."""
    if abs(drift) > FASTEST_NAMED:
        return f"more than {math.expm1(math.copysign(FASTEST_NAMED, drift)):+.0%} an hour"
    return f"{math.expm1(drift):+.1%} an hour"


def _slope(hours: np.ndarray, y: np.ndarray) -> float | None:
    """The median slope of all pairs (Theil and Sen); None without two different times."""
    first, second = np.triu_indices(len(y), 1)
    apart = hours[second] - hours[first]
    usable = np.abs(apart) > 1e-6
    if not usable.any():
        return None
    return float(np.median((y[second] - y[first])[usable] / apart[usable]))


def _relative(log_per_hour: float | None) -> float | None:
    return None if log_per_hour is None or log_per_hour > LARGEST_LOG else math.expm1(log_per_hour)
