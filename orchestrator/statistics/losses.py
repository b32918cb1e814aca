"""Lost trials, their causes, and tests whether losses depend on the arm or on its place. Pure.

A rule (heat, sleep, other programs) leaves a trial out for what the machine did, so it drops the round for every arm.
An arm's own failure (a crash, no evidence) drops the pairs of that arm only. An arm that the rules leave out far more
often than the others of its rounds fails by itself: it costs its own pairs, and no other arm a round.

Tests are exact: if losses do not depend on the labels, each trial of a round was as likely to be the lost one, because
each attempt of a round draws its order anew.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
import numpy.typing as npt
import pandas as pd

from orchestrator.estimation.inversion import Floats
from orchestrator.schedule import AA_LABEL
from orchestrator.statistics.comparability import Reason, Words, words

Flags = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.intp]

WITH_ITS_ROUND = ("round_replayed", "round_cut_short", "interrupted")  # not lost by itself
OWN_LEVEL = 0.01  # of the test whether the rules leave one arm out more often than others
OWN_LEAST = 3  # trials
LIMIT_LEVEL = 0.25  # above it, losses may well be chance: a test that must not overlook is given a lenient level
MOST_SIGNS = 14
DRAWS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """Every measured trial of every attempt, one element per trial, in time order."""

    rounds: Integers
    attempts: Integers
    positions: Integers
    labels: Words
    by_rule: Flags  # lost to a rule
    by_itself: Flags  # lost to its own failure
    cut: Flags  # its attempt ended before the trial did
    groups: Integers  # numbers of the rounds' attempts
    replayed: Flags  # its attempt was left out for a rule
    gap: Flags  # lacks values without a stored loss: see `orchestrator.statistics.gaps`

    @classmethod
    def read(cls, trials: pd.DataFrame) -> "Trials":
        """Read rows of `trial_flat`."""
        rows = trials[(trials["kind"] == "measured") & trials["round"].notna()]
        rows = rows.assign(attempt=rows["attempt"].fillna(0))
        is_aa = rows["is_aa"].fillna(value=False).astype(bool)
        rows = rows.assign(label=rows["arm"].astype(object).where(~is_aa, AA_LABEL))
        rows = rows.drop_duplicates(["round", "attempt", "label"]).sort_values(["round", "attempt", "position"])
        own = failed(rows)
        why = rows["excluded_reason"].astype(object).where(rows["excluded_reason"].notna(), "").astype(str)
        spoilt = why.str.startswith(WITH_ITS_ROUND)
        return cls(
            rounds=rows["round"].to_numpy(dtype=np.intp),
            attempts=rows["attempt"].to_numpy(dtype=np.intp),
            positions=rows["position"].to_numpy(dtype=np.intp),
            labels=words(rows["label"]),
            by_rule=((why != "") & ~spoilt & ~own).to_numpy(dtype=bool),
            by_itself=own.to_numpy(dtype=bool),
            groups=np.asarray(rows.groupby(["round", "attempt"]).ngroup(), dtype=np.intp),
            replayed=why.str.startswith("round_replayed").to_numpy(dtype=bool),
            gap=np.zeros(len(rows), dtype=bool),
            cut=((rows["status"] == "interrupted") | why.str.startswith("round_cut_short")).to_numpy(dtype=bool),
        )

    @property
    def lost(self) -> Flags:
        found: Flags = self.by_rule | self.by_itself | self.gap
        return found

    @property
    def unexplained(self) -> int:
        """Count attempts that were replayed without a record of the lost trial."""
        known = np.bincount(self.groups, self.by_rule | self.by_itself) > 0
        found: int = int(((np.bincount(self.groups, self.replayed) > 0) & ~known).sum())
        return found

    @property
    def newest(self) -> Flags:
        """Return a mask of the trials of each round's newest attempt."""
        last: dict[int, int] = {}
        for number, attempt in zip(self.rounds.tolist(), self.attempts.tolist(), strict=True):
            last[number] = max(attempt, last.get(number, attempt))
        found: Flags = self.attempts == np.array([last[number] for number in self.rounds.tolist()])
        return found

    def first_whole(self) -> dict[int, int]:
        """Return each round's first attempt that was not cut short, or its newest if all were."""
        found: dict[int, int] = {}
        for number in np.unique(self.rounds):
            own = self.rounds == number
            attempts = np.unique(self.attempts[own])
            whole = [attempt for attempt in attempts if not self.cut[own & (self.attempts == attempt)].any()]
            found[int(number)] = int((whole or attempts[-1:].tolist())[0])
        return found


def failed(rows: pd.DataFrame) -> "pd.Series[bool]":
    """Trials that failed by themselves: invalid ones, also where their round was left out later."""
    return rows["status"].eq("invalid").fillna(value=False).astype(bool) | rows["error_kind"].notna()


def own_losses(trials: Trials) -> frozenset[str]:
    """The labels that the rules leave out far more often than chance would among the trials of their rounds."""
    found = []
    for label in dict.fromkeys(trials.labels):
        count = int((trials.by_rule & (trials.labels == label)).sum())
        if count >= OWN_LEAST and tail(trials, trials.by_rule, trials.labels == label) <= OWN_LEVEL:
            found.append(str(label))
    return frozenset(found)


def tail(trials: Trials, lost: Flags, chosen: Flags) -> float:
    """The chance that as many of the chosen trials are lost, if each trial of an attempt is as likely to be lost.

    Args:
        chosen: at most one trial of each attempt.
    """
    groups = trials.groups
    losses, sizes = np.bincount(groups, lost), np.bincount(groups)
    shares = (losses / sizes)[groups[chosen]]
    chances = np.ones(1)
    for share in shares[shares > 0]:
        chances = np.convolve(chances, [1.0 - share, share])
    count = int((lost & chosen).sum())
    return float(min(chances[count:].sum(), 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class PairLosses:
    """Rounds' attempts in which one of two arms was lost and the other was not."""

    treatment: int
    control: int
    p_arm: float  # of so unequal numbers by chance
    p_place: float  # of so close a relation between the lost arm and its place in the round
    unknown: int  # attempts left out for a trial that is no longer known

    @property
    def unequal(self) -> bool:
        return self.treatment != self.control or self.unknown > 0

    @property
    def depend(self) -> bool:
        """Return whether losses may well depend on the arm, or on its place."""
        return min(self.p_arm, self.p_place) <= LIMIT_LEVEL or self.unknown > 0


def pair_losses(trials: Trials, treatment: str, control: str, *, seed: int) -> PairLosses:
    """Compare the losses of two labels."""
    signs, gaps = [], []
    for own, other in _pairs(trials, treatment, control):
        if trials.lost[own] != trials.lost[other]:
            lost, kept = (own, other) if trials.lost[own] else (other, own)
            signs.append(1.0 if lost == own else -1.0)
            gaps.append(float(trials.positions[lost] - trials.positions[kept]))
    who = np.array(signs)
    return PairLosses(
        treatment=int((who > 0).sum()),
        control=int((who < 0).sum()),
        p_arm=_coin(int((who > 0).sum()), len(who)),
        p_place=_sign_test(who * np.array(gaps), seed),
        unknown=trials.unexplained,
    )


def _pairs(trials: Trials, treatment: str, control: str) -> Iterator[tuple[int, int]]:
    groups = trials.groups
    where = [
        dict(zip(groups[own].tolist(), np.flatnonzero(own).tolist(), strict=True))
        for own in (
            trials.labels == treatment,
            trials.labels == control,
        )
    ]
    yield from ((place, where[1][group]) for group, place in where[0].items() if group in where[1])


def _coin(heads: int, throws: int) -> float:
    """Return the two-sided p-value of so many heads of a fair coin."""
    extreme = max(heads, throws - heads)
    return min(1.0, 2.0 * sum(comb(throws, count) for count in range(extreme, throws + 1)) / 2.0**throws)


def _sign_test(values: Floats, seed: int) -> float:
    """Two-sided p-value of the sum if each value's sign is a fair coin."""
    if not np.any(values):
        return 1.0
    if len(values) <= MOST_SIGNS:
        signs = 1.0 - 2.0 * (np.arange(2 ** len(values))[:, None] >> np.arange(len(values)) & 1)
    else:
        signs = 1.0 - 2.0 * np.random.Generator(np.random.PCG64(seed)).integers(0, 2, size=(DRAWS, len(values)))
        signs[0] = 1.0
    sums = np.abs(signs @ values)
    return float((sums >= abs(values.sum()) - 1e-9).mean())


def loss_notes(trials: Trials, arms: Sequence[str]) -> tuple[Reason, ...]:
    """Report how often rules left trials out, by arm and by place; empty if they left none out."""
    if not trials.by_rule.any():
        return ()
    return (_by_arm(trials, arms), *_by_place(trials))


def _by_arm(trials: Trials, arms: Sequence[str]) -> Reason:
    counts = []
    for arm in arms:
        own = trials.labels == arm
        p = tail(trials, trials.by_rule, own)
        lost = int((trials.by_rule & own).sum())
        counts.append(f"{arm} {lost} of {int(own.sum())}" + (f" (p = {p:.3f})" if lost else ""))
    text = (
        f"excluded by rules with their rounds, in all attempts: {', '.join(counts)};"
        " p: chance of as many if all arms were equally likely"
    )
    return Reason(code="losses_by_arm", text=text)


def _by_place(trials: Trials) -> Iterator[Reason]:
    places = np.unique(trials.positions)
    found = {int(place): tail(trials, trials.by_rule, trials.positions == place) for place in places}
    place, p = min(found.items(), key=lambda item: item[1])
    p = min(1.0, p * len(places))
    if p <= LIMIT_LEVEL:
        own = trials.positions == place
        text = (
            f"{int((trials.by_rule & own).sum())} of {int(trials.by_rule.sum())} trials excluded by rules ran in"
            f" place {place + 1} of their round (p = {p:.3f} if all places were equally likely)"
        )
        yield Reason(code="losses_by_place", text=text)
