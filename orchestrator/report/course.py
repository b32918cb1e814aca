"""The run in time order, so that its drift can be seen: every trial's speed beside the control's own. Pure.

If a round is one prompt, every round has another prompt, and prompts differ in speed more than arms do. So each trial
is shown relative to the control's speed on the same prompts: 1 is the control's average over the run. The rest is the
arm's effect, the machine's drift and noise. The prompts' levels and the drift are estimated in turns: otherwise a
prompt that came late in a run that slows down would look slow itself.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from orchestrator.schedule import AA_LABEL

Floats = npt.NDArray[np.floating[Any]]

TURNS_OF_FITTING = 3
CURVE_POINTS = 64
BANDWIDTH = 0.1  # of the run's length, at least; the smoother's standard deviation
LEAST_NEIGHBOURS = 1.5  # control trials within one standard deviation, at least
PAUSE_S = 900.0  # a longer gap between two trials is cut out of the time axis
PAUSE_SHOWN_S = 120.0
LEAST_FOR_CURVE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """One trial, or the summary of several if there are too many to draw."""

    at: float  # minutes of run time, or the trial's number
    label: str  # arm's name, or A/A
    kind: str  # measured | bracket
    state: str  # used | excluded | invalid | interrupted
    relative: float | None  # 1: the control's average on the same prompts; None: nothing was measured
    low: float | None = None  # quartiles, where several trials are drawn as one
    high: float | None = None
    trials: int = 1
    thermal: int | None = None
    wait_s: float | None = None
    round: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """A run in time order."""

    spots: tuple[Spot, ...]
    drift: tuple[tuple[float, float], ...]  # (at, relative): the control's own level, smoothed; empty: too few trials
    pauses: tuple[tuple[float, float], ...]  # (at, seconds left out there)
    by_time: bool  # `at` in minutes; else in trials
    thermal_reason: str | None  # why no trial has a thermal level
    drawn_together: int  # the largest number of trials that one spot stands for

    @property
    def drift_range(self) -> float | None:
        """The slowest smoothed level of the control over its fastest, minus 1; None: not known."""
        levels = [level for _, level in self.drift]
        return min(levels) / max(levels) - 1 if levels else None


def course_of(trials: pd.DataFrame, *, control: str, metric: str, by_time: bool = True) -> Course:
    """Every stored trial of the rounds and of the control runs at the ends.

    Args:
        trials: rows of the view `trial_flat`, in time order.
        by_time: place trials by the clock; False if the clock has no meaning, as in a simulation.
    """
    rows = _newest_attempts(trials[trials["kind"].isin(["measured", "bracket"])])
    if rows.empty:
        return Course(
            spots=(), drift=(), pauses=(), by_time=by_time, thermal_reason="no trial is stored", drawn_together=1
        )
    per_trial = _per_trial(rows)
    at, pauses = _minutes(per_trial) if by_time else (np.arange(1, len(per_trial) + 1, dtype=np.float64), ())
    position = pd.Series(at, index=per_trial.index)
    relative, drift = _relative(rows, per_trial, position, control, metric)
    spots = tuple(
        _spot(row, place, None if np.isnan(value) else float(value))
        for row, place, value in zip(_plain(per_trial), at, relative, strict=True)
    )
    return Course(
        spots=spots,
        drift=drift,
        pauses=pauses,
        by_time=by_time,
        thermal_reason=_thermal_reason(per_trial),
        drawn_together=1,
    )


def thinned(course: Course, limit: int) -> Course:
    """Reduce to about `limit` spots: neighbours in time of one arm become their median, drawn with their quartiles.

    Trials that do not count and the control runs stay single: there are few, and each says something.
    """
    if len(course.spots) <= limit:
        return course
    single = [spot for spot in course.spots if spot.kind == "bracket" or spot.state != "used" or spot.relative is None]
    many: dict[str, list[Spot]] = {}
    for spot in course.spots:
        if spot.kind == "measured" and spot.state == "used" and spot.relative is not None:
            many.setdefault(spot.label, []).append(spot)
    size = -(-sum(map(len, many.values())) // max(limit - len(single), len(many)))
    merged = [_merged(spots[start : start + size]) for spots in many.values() for start in range(0, len(spots), size)]
    spots = tuple(sorted((*single[:limit], *merged), key=lambda spot: spot.at))
    return replace(course, spots=spots, drawn_together=size)


def _merged(spots: Sequence[Spot]) -> Spot:
    values = sorted(spot.relative for spot in spots if spot.relative is not None)
    low, middle, high = (values[round(share * (len(values) - 1))] for share in (0.25, 0.5, 0.75))
    return replace(
        spots[len(spots) // 2],
        relative=middle,
        low=low,
        high=high,
        trials=len(spots),
        thermal=max((spot.thermal for spot in spots if spot.thermal is not None), default=None),
        wait_s=max((spot.wait_s for spot in spots if spot.wait_s is not None), default=None),
        round=None,
    )


def smoothed(at: Floats, y: Floats, where: Floats, *, width: float) -> Floats:
    """Local straight lines with Gaussian weights, evaluated at `where`.

    Args:
        at, y: shape (n,); where: shape (m,); width: the weights' standard deviation, in the unit of `at`.
    """
    offset = at[None, :] - where[:, None]
    weight = np.exp(-0.5 * (offset / width) ** 2) + 1e-12
    total, first = weight.sum(axis=1), (weight * offset).sum(axis=1)
    second = (weight * offset**2).sum(axis=1)
    level, slope = weight @ y, (weight * offset) @ y
    spread = total * second - first**2
    flat = level / total
    line = (second * level - first * slope) / np.where(spread > 1e-9 * total**2, spread, 1.0)
    found: Floats = np.where(spread > 1e-9 * total**2, line, flat)
    return found


# ---- from rows to trials ----


def _newest_attempts(rows: pd.DataFrame) -> pd.DataFrame:
    """The last attempt of each round: an earlier one was cut short and replayed whole."""
    newest = rows.groupby("round")["attempt"].transform("max")
    return rows[rows["round"].isna() | (rows["attempt"] == newest)]


def _per_trial(rows: pd.DataFrame) -> pd.DataFrame:
    first = rows.drop_duplicates("trial_id").set_index("trial_id")
    is_aa = first["is_aa"].fillna(value=False).astype(bool)
    excluded = (first["status"] == "excluded") | first["excluded_reason"].notna()
    finished = first["status"].isin(["done", "excluded"])
    state = np.where(finished, np.where(excluded, "excluded", "used"), first["status"])
    return first.assign(label=first["arm"].astype(object).where(~is_aa, AA_LABEL), state=state)


def _minutes(per_trial: pd.DataFrame) -> tuple[Floats, tuple[tuple[float, float], ...]]:
    """Minutes since the first trial, long pauses cut out."""
    started = pd.to_datetime(per_trial["started_at"], utc=True)
    start_s = ((started - started.iloc[0]) / pd.Timedelta(seconds=1)).to_numpy(dtype=np.float64)
    steps = np.maximum(np.diff(start_s, prepend=0.0), 0.0)
    ran_s = per_trial["wall_s"].fillna(0.0).to_numpy(dtype=np.float64)
    waited_s = per_trial["gate_wait_s"].fillna(0.0).to_numpy(dtype=np.float64)
    idle = steps - np.concatenate(([0.0], ran_s[:-1])) - waited_s
    cut = np.where(idle > PAUSE_S, idle - PAUSE_SHOWN_S, 0.0)
    at = np.cumsum(steps - cut) / 60.0
    return at, tuple((float(at[row]), float(idle[row])) for row in np.flatnonzero(cut))


def _relative(
    rows: pd.DataFrame, per_trial: pd.DataFrame, position: "pd.Series[float]", control: str, metric: str
) -> tuple[Floats, tuple[tuple[float, float], ...]]:
    """Each trial's value over the control's on the same prompts, and the control's own curve."""
    value = rows[metric].astype("float64").to_numpy()
    known = np.isfinite(value) & (value > 0)
    y = np.log(np.where(known, value, 1.0))
    prompt = pd.factorize(rows["prompt_id"].astype(str) + "\0" + rows["turn"].astype(str))[0]
    trial = per_trial.index.get_indexer(pd.Index(rows["trial_id"]))
    used = (per_trial["state"] == "used").to_numpy()[trial]
    mine = known & used & (rows["arm"] == control).fillna(value=False).to_numpy(dtype=bool)
    if not mine.any():
        return np.full(len(per_trial), np.nan), ()
    at = position.to_numpy()[trial]
    width = _bandwidth(np.unique(at[mine]), position.to_numpy())
    level, curve = _levels_and_drift(at[mine], y[mine], prompt[mine], width, prompts=int(prompt.max()) + 1)
    known &= np.isfinite(level[prompt])
    sums = np.bincount(trial[known], weights=(y - level[prompt])[known], minlength=len(per_trial))
    counts = np.bincount(trial[known], minlength=len(per_trial))
    relative = np.where(counts > 0, np.exp(sums / np.maximum(counts, 1)), np.nan)
    return relative, _curve(position.to_numpy(), curve, width) if len(np.unique(at[mine])) >= LEAST_FOR_CURVE else ()


def _levels_and_drift(
    at: Floats, y: Floats, prompt: npt.NDArray[np.intp], width: float, *, prompts: int
) -> tuple[Floats, tuple[Floats, Floats]]:
    """Each prompt's level, NaN for those that the control never ran, and what remains of the control's trials."""
    times = np.bincount(prompt, minlength=prompts)
    drift = np.zeros(len(y))
    for _ in range(TURNS_OF_FITTING):
        level = np.bincount(prompt, weights=y - drift, minlength=prompts) / np.maximum(times, 1)
        rest = y - level[prompt]
        places, which = np.unique(at, return_inverse=True)
        means = np.bincount(which, weights=rest) / np.bincount(which)
        where = np.linspace(places[0], places[-1], CURVE_POINTS)
        drift = np.interp(places, where, smoothed(places, means, where, width=width))[which]
        drift -= drift.mean()
    level = np.where(times > 0, level, np.nan)
    rest = y - level[prompt]
    return level, (places, np.bincount(which, weights=rest) / np.bincount(which))


def _bandwidth(places: Floats, everywhere: Floats) -> float:
    reach = float(everywhere[-1] - everywhere[0]) or 1.0
    apart = float(np.median(np.diff(places))) if len(places) > 1 else reach
    return max(BANDWIDTH * reach, LEAST_NEIGHBOURS * apart)


def _curve(everywhere: Floats, control: tuple[Floats, Floats], width: float) -> tuple[tuple[float, float], ...]:
    places, means = control
    where = np.linspace(places[0], places[-1], CURVE_POINTS)
    level = np.exp(smoothed(places, means, where, width=width))
    return tuple((float(x), float(each)) for x, each in zip(where, level, strict=True))


_Plain = tuple[str, str, str, float | None, float | None, float | None]


def _plain(per_trial: pd.DataFrame) -> Iterable[_Plain]:
    """Label, kind, state, thermal level, seconds waited and round of each trial, without pandas' own missing values."""
    words = [per_trial[name].astype(str).tolist() for name in ("label", "kind", "state")]
    numbers = [
        [None if value != value else value for value in per_trial[name].astype("float64").tolist()]
        for name in ("thermal_max", "gate_wait_s", "round")
    ]
    return zip(*words, *numbers, strict=True)


def _spot(row: _Plain, place: float, relative: float | None) -> Spot:
    label, kind, state, thermal, wait_s, round_ = row
    return Spot(
        at=float(place),
        label=label,
        kind=kind,
        state=state,
        relative=relative,
        thermal=None if thermal is None else int(thermal),
        wait_s=wait_s,
        round=None if round_ is None else int(round_),
    )


def _thermal_reason(per_trial: pd.DataFrame) -> str | None:
    if per_trial["thermal_max"].notna().any():
        return None
    reasons = per_trial["thermal_reason"].dropna()
    return str(reasons.iloc[0]) if len(reasons) else "not recorded"
