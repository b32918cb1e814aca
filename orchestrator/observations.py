"""From stored generations to the values that the audit compares. Pure: frames in, arrays and values out.

The frame is that of the view `trial_flat`: one row a generation. A trial's value in a scope (a prompt class, a turn, or
all) is the geometric mean over its generations there, so that every prompt weighs the same whatever its speed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from orchestrator.effects import Floats, Integers, Series, make_series
from orchestrator.schedule import AA_LABEL

LOWER_IS_FASTER = frozenset({"ttft_s"})
METRICS = ("end_to_end_tps", "decode_tps", "prefill_tps", "ttft_s")

_REQUIRED = (
    "round",
    "position",
    "arm",
    "is_aa",
    "kind",
    "sequence",
    "status",
    "excluded_reason",
    "prompt_id",
    "prompt_class",
    "turn",
    "requested",
    "engaged",
    "completion_tokens",
    "prompt_tokens",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a comparison is about; None: all."""

    prompt_class: str | None = None
    turn: int | None = None

    def of(self, rows: pd.DataFrame) -> pd.DataFrame:
        if self.prompt_class is not None:
            rows = rows[rows["prompt_class"] == self.prompt_class]
        if self.turn is not None:
            rows = rows[rows["turn"] == self.turn]
        return rows


ALL = Scope()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeTrials:
    """The usable trials of a scope in time order, one element a trial."""

    y: Floats  # log of the trial's value
    rounds: Integers
    labels: npt.NDArray[np.object_]  # arms' names, and AA_LABEL for the control's second entry
    prompts: Integers | None  # what each round was about, numbered; None when all rounds hold the same prompts

    def pair(self, treatment: str, control: str) -> Series | None:
        """The comparison of two labels over the rounds that hold both; None when there are none."""
        codes = np.where(self.labels == treatment, 1, np.where(self.labels == control, 0, -1))
        in_both = np.intersect1d(self.rounds[codes == 1], self.rounds[codes == 0])
        if not len(in_both):
            return None
        keep = (codes < 0) | np.isin(self.rounds, in_both)
        others = pd.factorize(self.labels)[0].astype(np.intp) + 2
        return make_series(
            self.y[keep],
            rounds=self.rounds[keep],
            arms=np.where(codes < 0, others, codes)[keep],
            prompts=None if self.prompts is None else self.prompts[keep],
        )


def measured_rows(trials: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The rows of the rounds' newest attempts in time order, with `label` and, where it can be used, log `y`.

    Raises:
        ValueError: a column is missing, or the metric is unknown.
    """
    if metric not in METRICS:
        raise ValueError(f"metric {metric!r}: unknown; choose one of {', '.join(METRICS)}")
    if missing := [name for name in (*_REQUIRED, metric) if name not in trials.columns]:
        raise ValueError(f"columns missing: {missing}; give the columns of the view trial_flat")
    rows = trials[(trials["kind"] == "measured") & trials["round"].notna()]
    if "attempt" in rows.columns:
        rows = rows[rows["attempt"] == rows.groupby("round")["attempt"].transform("max")]
    is_aa = rows["is_aa"].fillna(value=False).astype(bool)
    value = rows[metric].astype("float64")
    usable = (rows["status"] == "done") & rows["excluded_reason"].isna() & np.isfinite(value) & (value > 0)
    rows = rows.assign(
        label=rows["arm"].astype(object).where(~is_aa, AA_LABEL),
        usable=usable.astype(bool),
        y=np.log(value.where(usable.astype(bool), np.nan)),
    )
    # Down to the prompt, so that sums are taken in one order whatever order the rows came in.
    return rows.sort_values(["round", "position", "prompt_id", "turn"], kind="stable")


def arms_in_order(trials: pd.DataFrame) -> list[str]:
    """The arms as the schedule first names them."""
    return [str(arm) for arm in trials.sort_values("sequence", kind="stable")["arm"].drop_duplicates()]


def scopes_of(measured: pd.DataFrame) -> list[Scope]:
    """Over all; then each prompt class and each turn, where there are several."""
    classes = list(measured["prompt_class"].dropna().drop_duplicates())
    turns = sorted(int(turn) for turn in measured["turn"].dropna().drop_duplicates())
    scopes = [Scope()]
    if len(classes) > 1:
        scopes += [Scope(prompt_class=str(name)) for name in sorted(classes)]
    if len(turns) > 1:
        scopes += [Scope(turn=turn) for turn in turns]
    return scopes


def scope_trials(measured: pd.DataFrame, scope: Scope) -> ScopeTrials:
    """The scope's usable trials. A trial that lacks a generation which others of its round have is left out."""
    rows = scope.of(measured[measured["usable"]])
    prompt_of_round = _prompt_of_round(rows)
    grouped = rows.groupby(["round", "label"], sort=False)
    values = grouped["y"].agg(["mean", "size"]).reset_index()
    values = values[values["size"] == values.groupby("round")["size"].transform("max")]
    rounds = values["round"].to_numpy(dtype=np.intp)
    return ScopeTrials(
        y=values["mean"].to_numpy(dtype=np.float64),
        rounds=rounds,
        labels=values["label"].to_numpy(dtype=object),
        prompts=None if prompt_of_round is None else np.asarray(prompt_of_round.loc[rounds], dtype=np.intp),
    )


def _prompt_of_round(rows: pd.DataFrame) -> "pd.Series[int] | None":
    """Numbers of the prompts, by round, when every round is about one prompt and there are several."""
    by_round = rows.groupby("round")["prompt_id"]
    if rows["prompt_id"].nunique() < 2 or (by_round.nunique() > 1).any():
        return None
    first = by_round.first()
    return pd.Series(pd.factorize(first)[0], index=first.index.astype(np.intp))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundValue:
    """One trial, for a picture."""

    round: int
    label: str
    value: float  # in the metric's unit


def round_values(trials: pd.DataFrame, *, metric: str, scope: Scope = ALL) -> tuple[RoundValue, ...]:
    """Every usable trial of the scope in time order."""
    used = scope_trials(measured_rows(trials, metric), scope)
    return tuple(
        RoundValue(round=int(number), label=str(label), value=float(np.exp(y)))
        for number, label, y in zip(used.rounds, used.labels, used.y, strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSummary:
    """An arm's medians over its usable generations in a prompt class; None where nothing was recorded."""

    label: str
    prompt_class: str | None  # None: all
    trials: int
    ttft_s: float | None
    prefill_tps: float | None
    decode_tps: float | None
    end_to_end_tps: float | None
    accept_length: float | None
    acceptance_rate: float | None
    peak_memory_bytes: int | None  # the largest


_MEDIANS = ("ttft_s", "prefill_tps", "decode_tps", "end_to_end_tps", "accept_length", "acceptance_rate")


def arm_summaries(measured: pd.DataFrame, labels: Sequence[str]) -> tuple[ArmSummary, ...]:
    """Over all and by class, labels in the given order."""
    scopes = [scope for scope in scopes_of(measured) if scope.turn is None]
    used = measured[measured["usable"]]
    return tuple(
        _summary(scope.of(used[used["label"] == label]), label, scope.prompt_class)
        for label in labels
        for scope in scopes
    )


def _summary(rows: pd.DataFrame, label: str, prompt_class: str | None) -> ArmSummary:
    medians = {name: _or_none(rows[name].astype("float64").median()) if name in rows else None for name in _MEDIANS}
    peak = _or_none(rows["peak_memory_bytes"].astype("float64").max()) if "peak_memory_bytes" in rows else None
    return ArmSummary(
        label=label,
        prompt_class=prompt_class,
        trials=int(rows["sequence"].nunique()),
        peak_memory_bytes=None if peak is None else int(peak),
        **medians,
    )


def _or_none(value: float) -> float | None:
    return None if pd.isna(value) else float(value)
