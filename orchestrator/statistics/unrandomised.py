"""Sequences whose order was not drawn at random: imported runs, or a handful of runs one after the other.

Nothing can separate an effect from drift there. The module computes how fast the machine would have had to change
to make the effect, and how fast the control shows that it did change: per hour if times are known, else per trial.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

LARGEST_LOG = 700.0  # beyond it there is no float
FASTEST_NAMED = math.log(10)  # per step: larger figures are not informative
MOST_POINTS = 500  # used for the slopes of all pairs; more points are thinned evenly to this number

# Flags of generations that another tool's file gave no time: see `orchestrator.importers.storage`.
PLACED = "time_placed"  # placed after the generations before it
UNTIMED = "no_time"

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftExplanation:
    """A ratio and the drift that would make it. Drifts are relative changes of the value per hour, with sign."""

    treatment: str
    control: str
    ratio: float  # treatment over control, of the medians
    hours_apart: float  # the treatment's middle time less the control's
    explaining_drift_per_hour: float | None  # None: the two are too close in time for any drift to be named
    seen_drift_per_hour: float | None  # of the control against itself; None: it ran once only
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderExplanation:
    """The same if only the order is known. Drifts are relative changes of the value per trial, with sign."""

    treatment: str
    control: str
    ratio: float
    trials_apart: float
    explaining_drift_per_trial: float | None
    seen_drift_per_trial: float | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """One treatment's difference and drifts, on the log scale, per step of the unit."""

    treatment: str
    effect: float
    apart: float
    needed: float | None
    seen: float | None


def explain_by_drift(runs: pd.DataFrame, *, control: str) -> tuple[DriftExplanation, ...]:
    """Return, for every other arm, the drift that would explain its difference from the control.

    Args:
        runs: columns `arm`, `started_at` (timestamps), `value` (above 0); a run that restored the control's settings
            bears the control's name.

    Raises:
        ValueError: a column is missing, a value is not above 0, or the control is not there.
    """
    _check(runs, "started_at", control)
    started = pd.to_datetime(runs["started_at"], utc=True)
    hours = np.asarray((started - started.min()) / pd.Timedelta(hours=1), dtype=np.float64)
    return tuple(
        DriftExplanation(
            treatment=one.treatment,
            control=control,
            ratio=math.exp(one.effect),
            hours_apart=one.apart,
            explaining_drift_per_hour=_relative(one.needed),
            seen_drift_per_hour=_relative(one.seen),
            text=_text(one, control, "an hour", "ran at the same time on average"),
        )
        for one in _explained(runs, hours, control)
    )


def explain_by_order(trials: pd.DataFrame, *, control: str) -> tuple[OrderExplanation, ...]:
    """Like `explain_by_drift`, with a column `sequence` (the trial's number) for `started_at`.

    Raises:
        ValueError: see `explain_by_drift`.
    """
    _check(trials, "sequence", control)
    return tuple(
        OrderExplanation(
            treatment=one.treatment,
            control=control,
            ratio=math.exp(one.effect),
            trials_apart=one.apart,
            explaining_drift_per_trial=_relative(one.needed),
            seen_drift_per_trial=_relative(one.seen),
            text=_text(one, control, "a trial", "were equally early on average"),
        )
        for one in _explained(trials, trials["sequence"].to_numpy(dtype=np.float64), control)
    )


def _check(rows: pd.DataFrame, place: str, control: str) -> None:
    if missing := [name for name in ("arm", place, "value") if name not in rows.columns]:
        raise ValueError(f"columns missing: {missing}; give arm, {place} and value")
    value = rows["value"].astype("float64").to_numpy()
    if not (np.isfinite(value) & (value > 0)).all():
        raise ValueError("values must be finite and above 0: leave out what was not measured")
    if control not in set(rows["arm"].astype(str)):
        raise ValueError(f"control {control!r}: no such arm; the runs are of {sorted(set(rows['arm'].astype(str)))}")


def _explained(rows: pd.DataFrame, place: Floats, control: str) -> Iterator[_Found]:
    y = np.log(rows["value"].astype("float64").to_numpy())
    arm = rows["arm"].astype(str).to_numpy()
    of_control = arm == control
    seen = _slope(place[of_control], y[of_control])
    for name in dict.fromkeys(arm):
        if name == control:
            continue
        effect = float(np.median(y[arm == name]) - np.median(y[of_control]))
        apart = float(np.median(place[arm == name]) - np.median(place[of_control]))
        needed = effect / apart if abs(apart) > 1e-6 else None
        yield _Found(treatment=str(name), effect=effect, apart=apart, needed=needed, seen=seen)


def _text(found: _Found, control: str, step: str, together: str) -> str:
    head = f"{found.treatment} and {control} did not run in an order drawn at random"
    if found.needed is None:
        return f"{head}; they {together}, so no drift {step} can be named"
    explained = f"{head}; a drift of {_a_step(found.needed, step)} would explain the difference"
    if found.seen is None:
        return f"{explained}, and {control} ran once only, so the drift is not known"
    return f"{explained}, and {control} against itself shows {_a_step(found.seen, step)}"


def _a_step(drift: float, step: str) -> str:
    """Format a drift on the log scale. Runs seconds apart would need absurd values."""
    if abs(drift) > FASTEST_NAMED:
        return f"more than {math.expm1(math.copysign(FASTEST_NAMED, drift)):+.0%} {step}"
    return f"{math.expm1(drift):+.1%} {step}"


def _slope(place: Floats, y: Floats) -> float | None:
    """The median slope of all pairs (Theil and Sen); None without two different places."""
    if len(y) > MOST_POINTS:
        kept = np.linspace(0, len(y) - 1, MOST_POINTS).round().astype(np.intp)
        place, y = place[kept], y[kept]
    first, second = np.triu_indices(len(y), 1)
    apart = place[second] - place[first]
    usable = np.abs(apart) > 1e-6
    if not usable.any():
        return None
    return float(np.median((y[second] - y[first])[usable] / apart[usable]))


def _relative(log_per_step: float | None) -> float | None:
    return None if log_per_step is None or log_per_step > LARGEST_LOG else math.expm1(log_per_step)
