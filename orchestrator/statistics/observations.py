"""From stored generations to the values that the audit compares. Pure: frames in, arrays and values out.

The frame is that of the view `trial_flat`: one row a generation. A trial's value in a scope (a prompt class, a turn, or
all) is the geometric mean over its generations there, so that every prompt weighs the same whatever its speed.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from orchestrator.effects import Integers, Series, make_series
from orchestrator.schedule import AA_LABEL
from orchestrator.statistics.comparability import Asked, Scope, Words, words
from orchestrator.statistics.inversion import Floats

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


ALL = Scope()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeTrials:
    """The usable trials of a scope in time order, one element a trial."""

    y: Floats  # log of the trial's value
    rounds: Integers
    labels: Words  # arms' names, and AA_LABEL for the control's second entry
    prompts: Integers | None  # what each round was about, numbered; None when all rounds hold the same prompts

    def shares_rounds(self, first: str, second: str) -> bool:
        """Whether some round holds both labels."""
        return bool(np.isin(self.rounds[self.labels == first], self.rounds[self.labels == second]).any())

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
    """The rows of the rounds' newest attempts in time order, with `label`, `usable`, and log `y` where it was measured.

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
    measurable = np.isfinite(value) & (value > 0) & rows["status"].isin(["done", "excluded"])
    rows = rows.assign(
        label=rows["arm"].astype(object).where(~is_aa, AA_LABEL),
        usable=measurable & (rows["status"] == "done").astype(bool) & rows["excluded_reason"].isna(),
        y=np.log(value.where(measurable.astype(bool), np.nan)),
    )
    # Down to the prompt, so that sums are taken in one order whatever order the rows came in.
    return rows.sort_values(["round", "position", "prompt_id", "turn"], kind="stable")


def arms_in_order(trials: pd.DataFrame) -> list[str]:
    """The arms as the schedule first names them."""
    return [str(arm) for arm in trials.sort_values("sequence", kind="stable")["arm"].drop_duplicates()]


def scopes_of(measured: pd.DataFrame) -> list[Scope]:
    """Over all; then each workload, prompt class and turn, where there are several.

    A class that is a workload's only one, and no other's, is that workload. Of several workloads each has turns of its
    own: the first turn of a long conversation and a short prompt have nothing in common.
    """
    asked = Asked.read(measured)
    cells = list(
        dict.fromkeys(
            (str(workload), str(name), int(turn))
            for workload, name, turn in zip(asked.workload, asked.prompt_class, asked.turn, strict=True)
            if name is not None and turn is not None
        )
    )
    workloads = list(dict.fromkeys(workload for workload, _, _ in cells))
    several = len(workloads) > 1
    scopes = [Scope(workload=name) for name in workloads if several]
    scopes += [Scope(prompt_class=name) for name in _classes(cells)]
    for workload in workloads:
        turns = sorted({turn for other, _, turn in cells if other == workload})
        scopes += [Scope(workload=workload if several else None, turn=turn) for turn in turns if len(turns) > 1]
    return [Scope(), *scopes]


def _classes(cells: Sequence[tuple[str, str, int]]) -> list[str]:
    """The classes that are a part of their own: neither the whole run nor the whole of one workload."""
    workloads_of, classes_of = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for workload, name, _ in cells:
        workloads_of[name].add(workload)
        classes_of[workload].add(name)
    if len(workloads_of) < 2:
        return []
    return [name for name, where in sorted(workloads_of.items()) if len(where) > 1 or classes_of[min(where)] != {name}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usable:
    """The usable generations in time order, one element a generation."""

    y: Floats  # log of the metric
    rounds: Integers
    labels: Words
    prompt_id: Words
    asked: Asked

    @classmethod
    def read(cls, measured: pd.DataFrame, *, include_excluded: bool = False) -> Self:
        rows = measured[measured["y"].notna() if include_excluded else measured["usable"]]
        return cls(
            y=rows["y"].to_numpy(dtype=np.float64),
            rounds=rows["round"].to_numpy(dtype=np.intp),
            labels=words(rows["label"]),
            prompt_id=words(rows["prompt_id"]),
            asked=Asked.read(rows),
        )

    def trials(self, scope: Scope) -> ScopeTrials:
        """The scope's trials. One that lacks a generation which others of its round have is left out."""
        rows = np.flatnonzero(self.asked.within(scope))
        rounds, codes = self.rounds[rows], pd.factorize(self.labels[rows])[0]
        # Rows of a trial are neighbours in time, so trials are numbered in time order.
        starts = np.ones(len(rows), dtype=bool)
        starts[1:] = (rounds[1:] != rounds[:-1]) | (codes[1:] != codes[:-1])
        trial = np.cumsum(starts) - 1
        sizes = np.bincount(trial, minlength=int(starts.sum()))
        first = rows[starts]
        round_ = self.rounds[first]
        whole = sizes == _largest_of_round(sizes, round_)
        prompts = self._prompt_of_round(rows)
        return ScopeTrials(
            y=(np.bincount(trial, weights=self.y[rows], minlength=len(sizes)) / np.maximum(sizes, 1))[whole],
            rounds=round_[whole],
            labels=self.labels[first][whole],
            prompts=None if prompts is None else prompts[starts][whole],
        )

    def _prompt_of_round(self, rows: Integers) -> Integers | None:
        """Each row's prompt as a number, when every round is about one prompt and there are several."""
        codes = pd.factorize(self.prompt_id[rows])[0].astype(np.intp)
        pairs = np.unique(np.stack([self.rounds[rows], codes]), axis=1)
        if len(np.unique(codes)) < 2 or len(np.unique(pairs[0])) < pairs.shape[1]:
            return None
        return codes


def _largest_of_round(sizes: Integers, rounds: Integers) -> Integers:
    numbers, inverse = np.unique(rounds, return_inverse=True)
    largest = np.zeros(len(numbers), dtype=np.intp)
    np.maximum.at(largest, inverse, sizes)
    return largest[inverse]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundValue:
    """One trial, for a picture."""

    round: int
    label: str
    value: float  # in the metric's unit


def round_values(trials: pd.DataFrame, *, metric: str, scope: Scope = ALL) -> tuple[RoundValue, ...]:
    """Every usable trial of the scope in time order."""
    used = Usable.read(measured_rows(trials, metric)).trials(scope)
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
    """Over all and by class, labels in the given order, then classes in theirs."""
    used = measured[measured["usable"]]
    numbers = [name for name in (*_MEDIANS, "peak_memory_bytes") if name in used.columns]
    used = used.astype(dict.fromkeys(numbers, "float64"))
    found = {}
    for scope in (scope for scope in scopes_of(measured) if scope.turn is None and scope.workload is None):
        rows = used[Asked.read(used).within(scope)]
        by_label = rows.groupby("label")
        table = by_label[[name for name in numbers if name in _MEDIANS]].median()
        table["trials"] = by_label["sequence"].nunique()
        if "peak_memory_bytes" in numbers:
            table["peak_memory_bytes"] = by_label["peak_memory_bytes"].max()
        found[scope.prompt_class] = table.to_dict(orient="index")
    return tuple(
        _summary(found[prompt_class].get(label, {}), label, prompt_class) for label in labels for prompt_class in found
    )


def _summary(values: "dict[Hashable, Any]", label: str, prompt_class: str | None) -> ArmSummary:
    known = {name: None if pd.isna(value) else float(value) for name, value in values.items()}
    peak = known.get("peak_memory_bytes")
    return ArmSummary(
        label=label,
        prompt_class=prompt_class,
        trials=int(known.get("trials") or 0),
        peak_memory_bytes=None if peak is None else int(peak),
        **{name: known.get(name) for name in _MEDIANS},
    )
