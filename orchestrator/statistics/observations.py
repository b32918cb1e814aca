"""From stored generations to the values that the audit compares. Pure: frames in, arrays and values out.

The frame is that of the view `trial_flat`: one row per generation. A trial's value in a scope (a prompt class, a turn,
or all) is the geometric mean over its generations there, so that every prompt weighs the same whatever its speed.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pandas as pd

from orchestrator.effects import Integers, Parts, Series, make_series
from orchestrator.estimation.inversion import Floats
from orchestrator.schedule import AA_LABEL
from orchestrator.statistics.comparability import COLUMNS, Asked, Scope, Words, words
from orchestrator.statistics.losses import Flags, Trials, failed, own_losses
from orchestrator.vocabulary import METRICS

INTER_TOKEN = "inter_token_p95_s"

# Columns of the frame that is judged: `StoredRun.trials` has them all.
REQUIRED = (
    *("kind", "round", "attempt", "position", "sequence", "is_aa", "randomised"),
    *("excluded_reason", "error_kind", "gate_state", "flags"),
    *METRICS,
    *("accept_length", "acceptance_rate", "peak_memory_bytes", INTER_TOKEN, "inter_token_reason"),
    *COLUMNS,
)


ALL = Scope()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """A scope's generations, one element per generation; a cell is a prompt's turn."""

    y: Floats  # log of the metric, less the cell's level over all arms
    trial: Integers  # the generation's place among the scope's trials
    cell: Integers  # numbered from 0
    weights: Floats  # of each cell: prompts weigh the same, and so do a prompt's turns
    prompts: Words  # of each cell, the prompt's id

    def shared(self, first: Integers, second: Integers, rounds: Integers) -> "SharedCells":
        """The cells that two arms both have in a round.

        Args:
            first: the trials of one arm.
            second: the trials of the other arm.
            rounds: each trial's round.
        """
        keys = rounds[self.trial] * len(self.weights) + self.cell
        mine, other = (np.flatnonzero(np.isin(self.trial, trials)) for trials in (first, second))
        found, left, right = np.intersect1d(keys[mine], keys[other], return_indices=True)
        rounds_found, cell = np.divmod(found, len(self.weights))
        present = np.bincount(cell, minlength=len(self.weights))
        # A cell that only one of the two has is left out for both; the remaining prompts weigh the same.
        weights = self.weights / np.maximum(present, 1)
        return SharedCells(
            rounds=rounds_found.astype(np.intp),
            cell=cell.astype(np.intp),
            first=mine[left],
            second=other[right],
            weights=weights[cell],
            missing=tuple(dict.fromkeys(str(name) for name in self.prompts[present == 0])),
        )

    def parts(self, shared: "SharedCells", series: Series) -> Parts:
        """The comparison prompt by prompt, a prompt's turns averaged."""
        names, prompt = np.unique(self.prompts.astype(str)[shared.cell], return_inverse=True)
        row = np.searchsorted(series.numbers, shared.rounds)
        place = row * len(names) + prompt
        counts = np.bincount(place, minlength=series.rounds * len(names))
        sums = np.bincount(place, weights=self.y[shared.first] - self.y[shared.second], minlength=len(counts))
        contrasts = np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)
        contrasts = contrasts.reshape(series.rounds, len(names)) + (series.contrasts - series.raw)[:, None]
        return Parts(names=tuple(str(name) for name in names), contrasts=contrasts)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCells:
    """The cells that two arms share, one element per cell of a round, by round."""

    rounds: Integers
    cell: Integers
    first: Integers  # the one arm's generation
    second: Integers  # the other's
    weights: Floats  # of the cell in the mean over all
    missing: tuple[str, ...]  # prompts of which no round has both


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeTrials:
    """The usable trials of a scope in time order, one element per trial."""

    y: Floats  # log of the trial's value
    rounds: Integers
    labels: Words  # arms' names, and AA_LABEL for the control's second entry
    prompts: Integers | None  # each round's prompt, numbered; None if all rounds hold the same prompts
    cells: Cells | None = None  # None: each trial is one number
    together: int = 1  # rounds whose labels were dealt as one: a square's

    def pair(self, treatment: str, control: str) -> Series | None:
        """Return the comparison of two labels over the cells that both have in a round, or None if there are none.

        If one of the two lacks a generation, neither's counts in that round. Gaps of other arms do not matter.
        """
        codes = np.where(self.labels == treatment, 1, np.where(self.labels == control, 0, -1))
        y, weights, shared = self.y, None, None
        in_both = np.intersect1d(self.rounds[codes == 1], self.rounds[codes == 0])
        if self.cells is not None and len(in_both):
            shared = self.cells.shared(np.flatnonzero(codes == 1), np.flatnonzero(codes == 0), self.rounds)
            in_both, starts = np.unique(shared.rounds, return_index=True)
            y, weights = self._of_shared(shared, starts) if len(in_both) else (y, None)
        if not len(in_both):
            return None
        keep = (codes < 0) | np.isin(self.rounds, in_both)
        others = pd.factorize(self.labels)[0].astype(np.intp) + 2
        series = make_series(
            y[keep],
            rounds=self.rounds[keep],
            arms=np.where(codes < 0, others, codes)[keep],
            prompts=None if self.prompts is None else self.prompts[keep],
            weights=weights,
        )
        parts = None if shared is None or self.cells is None else self.cells.parts(shared, series)
        return replace(series, together=self.together, parts=parts)

    def without(self, trials: Flags) -> "ScopeTrials":
        """Leave out these trials; each of the rest is one number."""
        return replace(
            self,
            cells=None,
            y=self.y[~trials],
            rounds=self.rounds[~trials],
            labels=self.labels[~trials],
            prompts=None if self.prompts is None else self.prompts[~trials],
        )

    def _of_shared(self, shared: SharedCells, starts: Integers) -> tuple[Floats, Floats]:
        """Return the trials' values, those of the pair over its shared cells, and the rounds' weights."""
        assert self.cells is not None
        y = self.y.copy()
        weights: Floats = np.add.reduceat(shared.weights, starts)
        for rows in (shared.first, shared.second):
            y[self.cells.trial[rows[starts]]] = np.add.reduceat(shared.weights * self.cells.y[rows], starts) / weights
        return y, weights


def measured_rows(trials: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The rows of the rounds' newest attempts in time order, with `label`, `usable`, and log `y` where it was measured.

    A trial that a rule left out drops its round for every arm: see `orchestrator.statistics.losses`.

    Raises:
        ValueError: a column is missing, or the metric is unknown.
    """
    rows = _attempt(trials, metric, newest=True)
    known = Trials.read(trials)
    own = own_losses(known)
    dropped = known.newest & known.by_rule & ~np.isin(known.labels.astype(str), list(own))
    return rows.assign(usable=rows["usable"] & ~rows["round"].isin(known.rounds[dropped].tolist()))


def first_attempts(trials: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Like `measured_rows`, for each round's first attempt that was not cut short, with no round dropped."""
    return _attempt(trials, metric, newest=False)


def _attempt(trials: pd.DataFrame, metric: str, *, newest: bool) -> pd.DataFrame:
    check(trials, metric)
    rows = trials[(trials["kind"] == "measured") & trials["round"].notna()]
    wanted = rows.groupby("round")["attempt"].transform("max")
    if not newest:
        wanted = rows["round"].map(Trials.read(trials).first_whole())
    rows = rows[(rows["attempt"] == wanted).fillna(value=False)]
    is_aa = rows["is_aa"].fillna(value=False).astype(bool)
    value = rows[metric].astype("float64")
    measurable = np.isfinite(value) & (value > 0) & rows["status"].isin(["done", "excluded"]) & ~failed(rows)
    rows = rows.assign(
        label=rows["arm"].astype(object).where(~is_aa, AA_LABEL),
        usable=measurable & (rows["status"] == "done").astype(bool) & rows["excluded_reason"].isna(),
        y=np.log(value.where(measurable.astype(bool), np.nan)),
    )
    # Down to the prompt, so that sums are taken in one order whatever order the rows came in.
    return rows.sort_values(["round", "position", "prompt_id", "turn"], kind="stable")


def check(trials: pd.DataFrame, metric: str) -> None:
    """Reject trials that cannot be judged.

    Raises:
        ValueError: a column is missing, or the metric is unknown.
    """
    if metric not in METRICS:
        raise ValueError(f"metric {metric!r}: unknown; choose one of {', '.join(METRICS)}")
    if missing := [name for name in REQUIRED if name not in trials.columns]:
        raise ValueError(f"columns missing: {', '.join(missing)}; judge the rows of StoredRun.trials")


def arms_in_order(trials: pd.DataFrame) -> list[str]:
    """Return the arms in the order in which the schedule first names them."""
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
    """Return the classes that are neither the whole run nor the whole of one workload."""
    workloads_of, classes_of = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for workload, name, _ in cells:
        workloads_of[name].add(workload)
        classes_of[workload].add(name)
    if len(workloads_of) < 2:
        return []
    return [name for name, where in sorted(workloads_of.items()) if len(where) > 1 or classes_of[min(where)] != {name}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usable:
    """The usable generations in time order, one element per generation."""

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
        """The scope's trials. Each value is a mean over the trial's generations, less their prompts' levels."""
        rows = np.flatnonzero(self.asked.within(scope))
        rounds, codes = self.rounds[rows], pd.factorize(self.labels[rows])[0]
        # Rows of a trial are neighbours in time, so trials are numbered in time order.
        starts = np.ones(len(rows), dtype=bool)
        starts[1:] = (rounds[1:] != rounds[:-1]) | (codes[1:] != codes[:-1])
        trial = (np.cumsum(starts) - 1).astype(np.intp)
        cells = self._cells(rows, trial)
        sizes = np.maximum(np.bincount(trial, minlength=int(starts.sum())), 1)
        prompts = self._prompt_of_round(rows)
        return ScopeTrials(
            y=np.bincount(trial, weights=cells.y, minlength=len(sizes)) / sizes,
            rounds=rounds[starts],
            labels=self.labels[rows][starts],
            prompts=None if prompts is None else prompts[starts],
            cells=cells,
        )

    def _cells(self, rows: Integers, trial: Integers) -> Cells:
        prompt = pd.factorize(self.prompt_id[rows])[0].astype(np.intp)
        turn = pd.factorize(self.asked.turn[rows])[0].astype(np.intp)
        numbers, first, cell = np.unique(
            prompt * (turn.max(initial=0) + 1) + turn, return_index=True, return_inverse=True
        )
        turns = np.bincount(prompt[first], minlength=1)
        level = _levels_of_cells(self.y[rows], trial, cell, len(numbers))
        return Cells(
            y=self.y[rows] - level[cell],
            trial=trial,
            cell=cell.astype(np.intp),
            weights=1.0 / turns[prompt[first]],
            prompts=self.prompt_id[rows][first],
        )

    def _prompt_of_round(self, rows: Integers) -> Integers | None:
        """Return each row's prompt as a number, if every round holds one prompt and there are several."""
        codes = pd.factorize(self.prompt_id[rows])[0].astype(np.intp)
        pairs = np.unique(np.stack([self.rounds[rows], codes]), axis=1)
        if len(np.unique(codes)) < 2 or len(np.unique(pairs[0])) < pairs.shape[1]:
            return None
        return codes


def _levels_of_cells(y: Floats, trial: Integers, cell: Integers, cells: int) -> Floats:
    """Return each cell's level relative to the others, over all arms, from the trials that hold all cells.

    So a trial that lacks a slow prompt does not count as a fast one. 0 if no trial holds all, as when a round
    holds one prompt.
    """
    if not len(y):
        return np.zeros(cells)
    whole = (np.bincount(trial) == cells)[trial]
    if not whole.any():
        return np.zeros(cells)
    counts = np.bincount(cell[whole], minlength=cells)
    level: Floats = np.bincount(cell[whole], weights=y[whole], minlength=cells) / counts
    level -= level.mean()
    return level


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundValue:
    """One trial, for a plot."""

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
    inter_token_p95_s: float | None
    accept_length: float | None
    acceptance_rate: float | None
    peak_memory_bytes: int | None  # the largest


_MEDIANS = ("ttft_s", "prefill_tps", "decode_tps", "end_to_end_tps", INTER_TOKEN, "accept_length", "acceptance_rate")


def arm_summaries(measured: pd.DataFrame, labels: Sequence[str]) -> tuple[ArmSummary, ...]:
    """Over all and by class, labels in the given order, then classes in theirs."""
    used = measured[measured["usable"]]
    used = used.astype(dict.fromkeys((*_MEDIANS, "peak_memory_bytes"), "float64"))
    found = {}
    for scope in (scope for scope in scopes_of(measured) if scope.turn is None and scope.workload is None):
        rows = used[Asked.read(used).within(scope)]
        by_label = rows.groupby("label")
        table = by_label[list(_MEDIANS)].median()
        table["trials"] = by_label["sequence"].nunique()
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
