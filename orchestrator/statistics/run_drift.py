"""The drift of a run: its control after the last round against that before the first. Pure."""

import numpy as np
import pandas as pd

from orchestrator.statistics.comparability import Reason

RUN_DRIFT = "run_drift"  # code of the reason that states it


def run_drift(trials: pd.DataFrame, *, control: str, metric: str) -> tuple[float | None, str | None]:
    """The metric in the control run after the last round over that before the first, minus 1; or why there is none."""
    runs = trials[
        (trials["kind"] == "bracket")
        & (trials["arm"] == control)
        & (trials["status"] == "done")
        & trials["excluded_reason"].isna()
    ]
    runs = runs[(runs[metric] > 0).fillna(value=False)]
    if runs["sequence"].nunique() < 2:
        return None, "no finished control runs at both ends of the run"
    keys = ["prompt_id", "turn"]
    first = runs[runs["sequence"] == runs["sequence"].min()].drop_duplicates(keys)
    last = runs[runs["sequence"] == runs["sequence"].max()].drop_duplicates(keys, keep="last")
    both = first.merge(last, on=keys, suffixes=("_first", "_last"))
    if both.empty:
        return None, "the control runs at the ends have no prompt in common"
    ratio = both[f"{metric}_last"].astype("float64") / both[f"{metric}_first"].astype("float64")
    return float(np.exp(np.log(ratio).mean()) - 1.0), None


def drift_note(drift: float | None, why: str | None) -> Reason:
    """Return the drift between the control runs at both ends as a note for every verdict."""
    if drift is None:
        return Reason(code=RUN_DRIFT, text=f"drift of the run unknown: {why}")
    return Reason(code=RUN_DRIFT, text=f"the control itself changed by {drift:+.1%} from first to last run")
