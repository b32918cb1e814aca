"""Times from token to token: two arms of one mean speed may still let a reader wait longer now and then. Pure."""

import math

import numpy as np
import pandas as pd

from orchestrator.effects import Exchanged, exchanges_of
from orchestrator.estimation.inversion import Floats
from orchestrator.statistics.comparability import Reason
from orchestrator.statistics.observations import INTER_TOKEN, ScopeTrials, Usable

OF_METRICS = frozenset({"decode_tps", "end_to_end_tps"})  # rates whose means hide them
UNKNOWN = "inter_token_unknown"  # code of the note that says so


def inter_token_times(measured: pd.DataFrame, metric: str) -> Usable | None:
    """Return each usable generation's 95th percentile, or None if the metric does not need it or none is known.

    Args:
        measured: as `orchestrator.statistics.observations.measured_rows` gives it.
    """
    if metric not in OF_METRICS:
        return None
    value = measured[INTER_TOKEN].astype("float64").to_numpy()
    known = measured["usable"].to_numpy(dtype=bool) & np.isfinite(value) & (value > 0)
    if not known.any():
        return None
    return Usable.read(measured.assign(y=np.log(np.where(known, value, 1.0)), usable=known))


def unlike_inter_tokens(
    used: ScopeTrials, *, treatment: str, control: str, alpha: float, margin: float, seed: int
) -> Reason | None:
    """Report a difference of the 95th percentiles if it exceeds the margin and an exchange test finds it."""
    bound = -math.log1p(-margin)
    if abs(_plain_difference(used, treatment, control)) <= bound:
        return None
    series = used.pair(treatment, control)
    if series is None or abs(series.mean) <= bound:
        return None
    p = float(Exchanged.of(series, exchanges_of(series, seed)).p(np.zeros(1))[0])
    if p > alpha:
        return None
    text = (
        f"the 95th percentile of the times between tokens differs (p = {p:.3f}): {treatment}'s is"
        f" {math.exp(series.mean):.3f} times {control}'s"
    )
    return Reason(code="inter_token_differs", text=text)


def unknown_inter_tokens(measured: pd.DataFrame, arm: str) -> Reason | None:
    """Return why an arm's times between tokens are unknown, or None if they are known or not needed."""
    rows = measured[(measured["label"] == arm) & measured["usable"]]
    if rows.empty or rows[INTER_TOKEN].notna().any():
        return None
    why = rows["inter_token_reason"].dropna()
    because = f": {why.mode().iloc[0]}" if len(why) else ""
    return Reason(code=UNKNOWN, text=f"{arm}: times between tokens are unknown{because}")


def _plain_difference(used: ScopeTrials, treatment: str, control: str) -> float:
    """Return the mean over the rounds that hold both, without removing drift (rarely needed); 0 without rounds."""
    sides: list[tuple[Floats, Floats]] = []
    for label in (treatment, control):
        own = used.labels == label
        sides.append((used.rounds[own].astype(np.float64), used.y[own]))
    (rounds, values), (other_rounds, other_values) = sides
    _, left, right = np.intersect1d(rounds, other_rounds, return_indices=True)
    return float((values[left] - other_values[right]).mean()) if len(left) else 0.0
