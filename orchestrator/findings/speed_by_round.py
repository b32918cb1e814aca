"""Each arm's speed over the rounds relative to its own median: a change in all arms is the machine's. Pure."""

import math

import numpy as np
import pandas as pd

from orchestrator.findings.values import SpeedByRound
from orchestrator.schedule import AA_LABEL
from orchestrator.statistics.observations import arms_in_order, measured_rows
from orchestrator.vocabulary import METRICS

CELL_ROUNDS = 4  # with fewer rounds of a prompt, arms and prompts have levels that add up
SWEEPS = 4  # of the median polish


def speed_by_round(trials: pd.DataFrame, *, control: str, metric: str) -> tuple[SpeedByRound, ...]:
    """Compute it from usable trials only; a round without a usable trial of an arm is None.

    The levels of arms and prompts are removed: each arm's median at each prompt if a prompt has enough rounds,
    else by median polish (Tukey 1977). What remains is drift and noise.
    """
    rows = measured_rows(trials, metric)
    used = rows[rows["usable"]]
    if used.empty:
        return ()
    sign = -1.0 if METRICS[metric].lower_is_faster else 1.0
    asked = used["prompt_id"].astype(str) + "\0" + used["turn"].astype(str)
    rest = sign * _without_levels(used["y"].astype("float64"), used["label"].astype(str), asked)
    count = int(used["round"].max()) + 1
    labels = [control, AA_LABEL, *(arm for arm in arms_in_order(trials) if arm != control)]
    lines = (_line(label, rest[used["label"] == label], used["round"], count) for label in labels)
    return tuple(line for line in lines if any(value is not None for value in line.values))


def _line(label: str, rest: "pd.Series[float]", rounds: "pd.Series[int]", count: int) -> SpeedByRound:
    of_round = rest.groupby(rounds[rest.index].astype(int)).mean()
    means = dict(zip(of_round.index.tolist(), of_round.tolist(), strict=True))
    middle = float(np.median(list(means.values()))) if means else 0.0
    return SpeedByRound(
        label=label,
        values=tuple(math.exp(means[number] - middle) if number in means else None for number in range(count)),
    )


def _without_levels(y: "pd.Series[float]", label: "pd.Series[str]", asked: "pd.Series[str]") -> "pd.Series[float]":
    cell = label + "\0" + asked
    if int(cell.value_counts().min()) >= CELL_ROUNDS:
        return y - y.groupby(cell).transform("median")
    for _ in range(SWEEPS):
        y = y - y.groupby(asked).transform("median")
        y = y - y.groupby(label).transform("median")
    return y
