"""Measured trials that lack values without a stored loss: by arm and by place. Pure.

A generation may end without a value of the metric (it failed inside a kept trial, or has too few tokens for a rate),
and a trial may have left no row at all. If that depends on the arm or on the place in the round, what is left is no
fair sample, whatever the cause. So such a trial counts as lost: see `orchestrator.statistics.losses`.

A prompt of which an arm never has a value is no gap: the comparison leaves it out and says so. Nor is a trial that is
absent after the last round in which its arm ran: the run has not come so far, or has given the arm up.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from orchestrator.statistics.comparability import Reason, words
from orchestrator.statistics.losses import LIMIT_LEVEL, Flags, Trials, tail


def with_gaps(trials: Trials, measured: pd.DataFrame) -> Trials:
    """The trials with `gap` set, and with those of the newest attempts that left no row.

    Args:
        measured: rows of `orchestrator.statistics.observations.measured_rows`.
    """
    found = _with_absent(trials)
    lacking = _lacking(measured)
    keys = zip(found.rounds.tolist(), found.labels.tolist(), strict=True)
    gap = np.array([key in lacking for key in keys], dtype=bool)
    return replace(found, gap=(found.gap | gap) & found.newest & ~found.by_rule & ~found.by_itself & ~found.cut)


def _lacking(measured: pd.DataFrame) -> set[tuple[int, str]]:
    """The rounds and labels of trials that lack a value that another trial of the round has."""
    valued = measured[measured["y"].notna()]
    if valued.empty:
        return set()
    (rounds, round_at), (labels, label_at) = (_coded(valued[name]) for name in ("round", "label"))
    cells, cell_at = _coded(pd.MultiIndex.from_frame(valued[["prompt_id", "turn"]]))
    has = np.zeros((len(rounds), len(labels), len(cells)), dtype=bool)
    has[round_at, label_at, cell_at] = True
    of_round, of_label = has.any(axis=1, keepdims=True), has.any(axis=0, keepdims=True)
    lacks = np.asarray((of_round & of_label & ~has).any(axis=2))
    return {(int(rounds[at]), str(labels[label])) for at, label in np.argwhere(lacks)}


def _coded(values: "pd.Series[Any] | pd.MultiIndex") -> tuple[list[Any], npt.NDArray[np.intp]]:
    codes, found = pd.factorize(values)
    return list(found), codes.astype(np.intp)


def _with_absent(trials: Trials) -> Trials:
    """Add the trials without a row, as gaps, each in the place that the others of its round leave free."""
    newest, known = trials.newest, list(dict.fromkeys(trials.labels.tolist()))
    last = {label: int(trials.rounds[trials.labels == label].max()) for label in known}
    found = []
    for group in np.unique(trials.groups[newest]):
        own = trials.groups == group
        number, present = int(trials.rounds[own][0]), set(trials.labels[own].tolist())
        absent = [label for label in known if label not in present and number < last[label]]
        if absent and not trials.cut[own].any():
            free = sorted(set(range(len(known))) - set(trials.positions[own].tolist()))
            # Which of several is where is not known: all of them are put into the middle.
            place = free[len(free) // 2] if free else len(known)
            attempt = int(trials.attempts[own][0])
            found += [(number, attempt, place, label, int(group)) for label in absent]
    return trials if not found else _joined(trials, found)


def _joined(trials: Trials, absent: Sequence[tuple[int, int, int, str, int]]) -> Trials:
    rounds, attempts, places, labels, groups = zip(*absent, strict=True)
    no = np.zeros(len(absent), dtype=bool)
    return Trials(
        rounds=np.append(trials.rounds, rounds),
        attempts=np.append(trials.attempts, attempts),
        positions=np.append(trials.positions, places),
        labels=np.concatenate([trials.labels, words(pd.Series(labels, dtype=object))]),
        by_rule=np.append(trials.by_rule, no),
        by_itself=np.append(trials.by_itself, no),
        cut=np.append(trials.cut, no),
        groups=np.append(trials.groups, groups),
        replayed=np.append(trials.replayed, no),
        gap=np.append(trials.gap, ~no),
    )


def gap_notes(trials: Trials, arms: Sequence[str]) -> tuple[Reason, ...]:
    """Report how many trials lack values, by arm and by place; empty if none does."""
    return tuple(_notes(trials, arms)) if trials.gap.any() else ()


def _notes(trials: Trials, arms: Sequence[str]) -> Iterator[Reason]:
    counts = [f"{arm} {_count(trials, trials.labels == arm)}" for arm in arms]
    text = f"trials that lack values which others of their round have: {', '.join(counts)}"
    yield Reason(code="gaps_by_arm", text=f"{text}; p: of as many if each arm were as likely")
    places = np.unique(trials.positions)
    chances = [tail(trials, trials.gap, trials.positions == place) for place in places]
    at = int(np.argmin(chances))
    if (p := min(1.0, chances[at] * len(places))) <= LIMIT_LEVEL:
        own = int((trials.gap & (trials.positions == places[at])).sum())
        text = f"{own} of {int(trials.gap.sum())} trials that lack values ran in place {places[at] + 1} of their round"
        yield Reason(code="gaps_by_place", text=f"{text} (p = {p:.3f} if each place were as likely)")


def _count(trials: Trials, own: Flags) -> str:
    lacking = int((trials.gap & own).sum())
    p = f" (p = {tail(trials, trials.gap, own):.3f})" if lacking else ""
    return f"{lacking} of {int((own & trials.newest).sum())}{p}"
