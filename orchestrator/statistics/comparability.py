"""Checks that an arm's mechanism ran and that only its declared settings differ from the control. Pure.

Each finding is a reason: a code for programs and a text for people. Two arms are compared round by round, so a version
that changed in the middle of a run for all of them is no difference. Everything is read from the frame once; a query
about one arm in one scope is then a lookup in arrays.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

Flags = npt.NDArray[np.bool_]
Words = npt.NDArray[np.object_]
Floats = npt.NDArray[np.float64]
# By arm: the packages that its environment names, with their versions; an arm without an environment is left out.
Declared = Mapping[str, Mapping[str, str | None]]

# How far the completions' lengths may differ, as a share, before a metric is not comparable. An end-to-end rate spreads
# the prompt's processing over the tokens, so any difference moves it. A decode rate only sees the context grow.
LENGTH_TOLERANCE = {"end_to_end_tps": 0.0, "decode_tps": 0.25}

# A later turn's prompt holds the arm's own answers, so arms that answer otherwise have prompts of other lengths there.
# What that explains is bounded in `_prompt_sizes`; what the bound leaves unexplained is the arms'.
# A rate changes by the completion's length itself at most: an end-to-end rate of n tokens is n / (a + b n).
EXPLAINED = 0.25  # of an effect: what lengths explain of it at most before it is no longer the arms'
NEGLIGIBLE = 0.1  # of the margin: lengths that explain less than that never matter

# Must be equal within a round, whatever the arms are.
ENVIRONMENT = {
    "host": "host",
    "os_build": "OS build",
    "mlx_version": "MLX version",
    "mlx_build": "build of MLX's Metal kernels",
    "mlx_lm_version": "mlx-lm version",
    "interlace_version": "interlace version",
    "python": "Python version",
    "power_source": "power source",
    "power_mode": "power mode",
    "nice": "nice value",
    # A proposal is accepted when it matches what the target would pick, so another sampler is another quantity.
    "sampler": "sampler",
}
# Of these columns: the distributions whose version they hold, or `PYTHON`.
PYTHON = "python"
_VERSIONS = {
    "mlx_version": ("mlx",),
    "mlx_build": ("mlx", "mlx-metal"),
    "mlx_lm_version": ("mlx-lm",),
    "python": (PYTHON,),
}
_OWN_COLUMN = frozenset({"mlx", "mlx-lm", "mlx-metal build", "interlace"})  # of the packages: judged by a column
# Change at some moment of a night, whatever the arms are, and then differ within one round. In more rounds than that
# the arms themselves differ in them.
PASSING = {"lid": "lid", "display": "display"}
PASSING_SHARE = 0.25
# Read to compare two arms. A frame without one of them cannot be judged: a check that is skipped passes everything.
COLUMNS = (
    *ENVIRONMENT,
    *PASSING,
    *("environment_id", "missing_reason", "mlx_missing", "packages", "engine", "engine_version"),
    *("arm", "status", "requested", "engaged", "useful"),
    *("workload", "prompt_class", "prompt_id", "turn", "prompt_tokens", "cached_tokens", "completion_tokens"),
)
UNKNOWN = "unknown"  # for columns that may not be empty
NO_MLX = "none"  # an environment that is known to have no MLX
_PAIRED_BY = ["round", "prompt_id", "turn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A reason for a verdict, or a note beside it."""

    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The part of the run that a comparison covers; a field of None means all."""

    workload: str | None = None
    prompt_class: str | None = None
    turn: int | None = None

    @property
    def words(self) -> str:
        """Return the scope as text: "over all", "code", "two_turns, turn 2"."""
        parts = [part for part in (self.workload, self.prompt_class) if part is not None]
        if self.turn is not None:
            parts.append(f"turn {self.turn + 1}")
        return ", ".join(parts) or "over all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The workload, prompt class and turn of each generation, one element per generation."""

    workload: Words
    prompt_class: Words
    turn: Words

    @classmethod
    def read(cls, rows: pd.DataFrame) -> Self:
        """Read rows of `trial_flat`; rows without workloads count as one workload."""
        return cls(
            workload=words(rows["workload"]),
            prompt_class=words(rows["prompt_class"]),
            turn=words(rows["turn"]),
        )

    def within(self, scope: Scope) -> Flags:
        """Return a mask of the generations that belong to the scope."""
        inside = np.ones(len(self.turn), dtype=bool)
        wanted = (scope.workload, scope.prompt_class, scope.turn)
        for column, value in zip((self.workload, self.prompt_class, self.turn), wanted, strict=True):
            if value is not None:
                inside &= column == value
        return inside


@dataclass(frozen=True, slots=True, kw_only=True)
class Engagement:
    """The evidence in an arm's generations that its mechanism ran."""

    share: float | None  # of the generations that requested a mechanism, those that show it ran; None: none did
    reasons: tuple[Reason, ...]  # why it counts as not engaged; empty when it does not
    notes: tuple[Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceTable:
    """Measured generations, those of invalid trials included: a trial without evidence must not hide."""

    arm: Words
    asked: Asked
    requested: Flags
    engaged: Flags
    known: Flags
    useless: Flags

    @classmethod
    def read(cls, measured: pd.DataFrame) -> Self:
        rows = measured[measured["status"].isin(["done", "invalid"])]
        engaged = _flag(rows["engaged"])
        return cls(
            arm=words(rows["arm"]),
            asked=Asked.read(rows),
            requested=_flag(rows["requested"]),
            engaged=engaged,
            known=rows["engaged"].notna().to_numpy(dtype=bool),
            useless=engaged & rows["useful"].notna().to_numpy(dtype=bool) & ~_flag(rows["useful"]),
        )

    def engagement(self, arm: str, scope: Scope) -> Engagement:
        """Judge one arm in one scope."""
        rows = (self.arm == arm) & self.asked.within(scope)
        asked = int((rows & self.requested).sum())
        counted = {
            "unrequested_mechanism": rows & ~self.requested & self.engaged,
            "not_engaged": rows & self.requested & self.known & ~self.engaged,
            "engagement_unknown": rows & self.requested & ~self.known,
        }
        said = {
            "unrequested_mechanism": f"a mechanism ran unasked in {{}} of {int(rows.sum())} generations",
            "not_engaged": f"not engaged in {{}} of {asked} generations",
            "engagement_unknown": f"no evidence either way in {{}} of {asked} generations",
        }
        useless = int((rows & self.requested & self.useless).sum())
        note = f"{arm}: engaged, but nothing accepted in {useless} of {asked} generations"
        return Engagement(
            share=float((rows & self.requested & self.engaged).sum()) / asked if asked else None,
            reasons=tuple(
                Reason(code=code, text=f"{arm}: {said[code].format(int(found.sum()))}")
                for code, found in counted.items()
                if found.any()
            ),
            notes=(Reason(code="not_useful", text=note),) if useless else (),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    code: str
    words: str
    differ: Flags
    left: Words
    right: Words
    strength: str = "confounds"  # or "limits": what is not known to be equal; or "notes": a remark that never decides
    passing: bool = False  # it decides nothing in a few of the rounds
    # |log| of what the difference explains at most: it counts only where that is much of the effect. None: always.
    sizes: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """Differences besides the arms' declared settings."""

    confounding: tuple[Reason, ...]  # could have made the effect, or a good part of it
    harmless: tuple[Reason, ...]  # could not
    unknown: tuple[Reason, ...] = ()  # what is not known to be equal: neither an effect nor "no difference" is shown


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceTable:
    """Every usable generation beside the control's of the same round, prompt and turn."""

    label: Words
    asked: Asked
    prompt_id: Words
    checks: tuple[_Check, ...]

    @classmethod
    def read(cls, usable: pd.DataFrame, *, control: str, metric: str, declared: Declared | None = None) -> Self:
        usable = _with_growth(usable)
        of_control = usable[usable["label"] == control].drop_duplicates(_PAIRED_BY)
        pairs = usable.merge(of_control, on=_PAIRED_BY, suffixes=("", "_control"))
        return cls(
            label=words(pairs["label"]),
            asked=Asked.read(pairs),
            prompt_id=words(pairs["prompt_id"]),
            checks=tuple(_checks(pairs, metric, declared or {})),
        )

    def confounders(self, label: str, scope: Scope, *, log_effect: float | None, margin: float) -> Differences:
        """Return the differences between one arm and the control besides their declared settings.

        Args:
            log_effect: of the treatment, on the log scale; None: unknown.
            margin: effects within it make no difference.
        """
        rows = (self.label == label) & self.asked.within(scope)
        confounding: list[Reason] = []
        harmless: list[Reason] = []
        unknown: list[Reason] = []
        places = {"confounds": confounding, "limits": unknown, "notes": harmless}
        for check in self.checks:
            if not (rows & check.differ).any():
                continue
            reason = self._reason(check, rows)
            if check.passing and (rows & check.differ).sum() <= PASSING_SHARE * rows.sum():
                harmless.append(reason)
                continue
            if check.sizes is None or log_effect is None:
                places[check.strength].append(reason)
                continue
            explained = float(np.nanmean(check.sizes[rows]))
            if explained > max(EXPLAINED * abs(log_effect), NEGLIGIBLE * -np.log1p(-margin)):
                confounding.append(reason)
            else:
                text = f"{reason.text}; that explains a factor of {np.exp(explained):.3f} at most"
                harmless.append(Reason(code=reason.code, text=text))
        return Differences(confounding=tuple(confounding), harmless=tuple(harmless), unknown=tuple(unknown))

    def _reason(self, check: _Check, rows: Flags) -> Reason:
        where = np.flatnonzero(rows & check.differ)
        first = where[0]
        text = (
            f"{check.words} in {len(where)} of {int(rows.sum())} generations: {check.left[first]} against"
            f" {check.right[first]}, first for prompt {self.prompt_id[first]}"
        )
        return Reason(code=check.code, text=text)


def _checks(pairs: pd.DataFrame, metric: str, declared: Declared) -> Iterable[_Check]:
    factors = _Factors.read(pairs, declared)
    for column, name in ENVIRONMENT.items():
        check = _unequal(pairs, column, name)
        yield from factors.judged(check, factors.names(*_VERSIONS[column])) if column in _VERSIONS else [check]
    for column, name in PASSING.items():
        yield replace(_unequal(pairs, column, name), passing=True)
    yield from _unknown_mlx(pairs)
    same_engine = words(pairs["engine"]) == words(pairs["engine_control"])
    of_engine = _unequal(pairs, "engine_version", "engine version", among=same_engine)
    yield from factors.judged(of_engine, factors.explain(of_engine))
    yield factors.others()
    yield from _unequal_prompts(pairs, metric)
    if metric != "decode_tps":
        yield _unequal_caches(pairs)
    if metric in LENGTH_TOLERANCE:
        tolerance = LENGTH_TOLERANCE[metric]
        yield _unequal_counts(pairs, "completion_tokens", "completion token counts differ", tolerance)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Factors:
    """The packages by which the environments of two arms differ as declared, one element per pair.

    What an arm declares is what is compared. A version that nobody declared and that differs all the same moved along
    with a declared one: it is part of what installing that release means, and is named. Between arms that differ in
    no declared package it has no such reason, and confounds.
    """

    differing: Words  # frozensets
    own: Words  # recorded versions, by package
    control: Words

    @classmethod
    def read(cls, pairs: pd.DataFrame, declared: Declared) -> Self:
        found = [
            _differing(declared.get(arm, {}), declared.get(control, {}))
            for arm, control in zip(words(pairs["arm"]), words(pairs["arm_control"]), strict=True)
        ]
        differing = np.empty(len(found), dtype=object)
        differing[:] = found
        return cls(differing=differing, own=_packages(pairs["packages"]), control=_packages(pairs["packages_control"]))

    def names(self, *packages: str) -> Flags:
        """Return a mask of the pairs that differ in one of these as declared."""
        return np.array([not found.isdisjoint(packages) for found in self.differing], dtype=bool)

    def explain(self, check: _Check) -> Flags:
        """Return a mask of the pairs in which a declared package has exactly the versions that a check compares."""
        return np.array(
            [
                any((own.get(name), control.get(name)) == (_version(left), _version(right)) for name in found)
                for found, own, control, left, right in zip(
                    self.differing, self.own, self.control, check.left, check.right, strict=True
                )
            ],
            dtype=bool,
        )

    def judged(self, check: _Check, is_declared: Flags) -> Iterable[_Check]:
        """A check of versions: nothing where they are declared, a remark where they moved along, else as it is."""
        moved = np.array([bool(found) for found in self.differing], dtype=bool)
        yield replace(check, differ=check.differ & ~is_declared & ~moved)
        code = check.code.replace("_differs", "_moved")
        words_ = check.words.replace(" differs", " moved along, which no arm declares,")
        yield replace(check, code=code, words=words_, differ=check.differ & ~is_declared & moved, strength="notes")

    def others(self) -> _Check:
        """The further packages that moved along."""
        sides = [
            _moved_words(own, control, found)
            for found, own, control in zip(self.differing, self.own, self.control, strict=True)
        ]
        left, right = (np.array([side[number] for side in sides], dtype=object) for number in (0, 1))
        return _Check(
            code="packages_moved",
            words="versions that no arm declares moved along",
            differ=np.array([bool(side[0]) for side in sides], dtype=bool),
            left=left,
            right=right,
            strength="notes",
        )


def _version(text: Any) -> str:
    """The version in an engine's text, which may name its package: `mlx-dspark 0.20.3`."""
    return str(text).rpartition(" ")[2]


def _differing(own: Mapping[str, str | None], control: Mapping[str, str | None]) -> frozenset[str]:
    return frozenset(name for name in {*own, *control} if own.get(name, "") != control.get(name, ""))


def _packages(column: "pd.Series[Any]") -> Words:
    """The recorded versions of each row; empty where none were recorded."""
    read: dict[Any, dict[str, Any]] = {}
    for text in words(column):
        if text not in read:
            read[text] = json.loads(text) if isinstance(text, str) else {}
    found = np.empty(len(column), dtype=object)
    found[:] = [read[text] for text in words(column)]
    return found


def _moved_words(own: Mapping[str, Any], control: Mapping[str, Any], declared: frozenset[str]) -> tuple[str, str]:
    """Return the versions that moved along on either side; empty for arms that differ in nothing declared.

    What only one of them has installed is not needed by the other: an environment holds what its engine runs.
    """
    if not declared:
        return "", ""
    names = sorted((own.keys() & control.keys()) - declared - _OWN_COLUMN)
    moved = [name for name in names if own[name] and control[name] and own[name] != control[name]]
    return tuple(", ".join(f"{name} {side[name] or 'none'}" for name in moved) for side in (own, control))  # type: ignore[return-value]


def _unequal(pairs: pd.DataFrame, column: str, name: str, *, among: Flags | None = None) -> _Check:
    """Compare two recorded values; a value that was not recorded is not known to differ."""
    left, right = words(pairs[column]), words(pairs[f"{column}_control"])
    missing = (None, UNKNOWN)
    differ = np.array(
        [a not in missing and b not in missing and a != b for a, b in zip(left, right, strict=True)], bool
    )
    if among is not None:
        differ &= among
    return _Check(code=f"{column}_differs", words=f"{name} differs", differ=differ, left=left, right=right)


def _unknown_mlx(pairs: pd.DataFrame) -> Iterable[_Check]:
    """Find servers whose MLX version is unknown, as it may differ, and servers without MLX, which are another engine's.

    Arms of one environment, which may be one server, share whatever it holds.
    """
    own, control = (words(pairs[f"mlx_missing{side}"]) for side in ("", "_control"))
    apart = words(pairs["environment_id"]) != words(pairs["environment_id_control"])
    left, right = (
        words(pairs[f"mlx_version{side}"].fillna(pairs[f"missing_reason{side}"])) for side in ("", "_control")
    )
    unknown, without = "the MLX version of a server is unknown", "one of the two runs without MLX"
    for code, name, differ, strength in (
        ("mlx_version_unknown", unknown, ((own == UNKNOWN) | (control == UNKNOWN)) & apart, "limits"),
        ("mlx_in_one_only", without, (own == NO_MLX) != (control == NO_MLX), "notes"),
    ):
        yield _Check(code=code, words=name, differ=differ.astype(bool), left=left, right=right, strength=strength)


def _unequal_counts(pairs: pd.DataFrame, column: str, name: str, tolerance: float) -> _Check:
    left, right = _both(pairs, column)
    differ = np.abs(left - right) > tolerance * np.maximum(left, right)
    return _Check(
        code=f"{column}_differ",
        words=name,
        differ=differ,
        left=words(pairs[column]),
        right=words(pairs[f"{column}_control"]),
        sizes=_log_ratio(left, right),
    )


def _unequal_prompts(pairs: pd.DataFrame, metric: str) -> Iterable[_Check]:
    """First turns have the same prompts: other lengths are other prompts. For later turns see `_prompt_sizes`."""
    found = _unequal_counts(pairs, "prompt_tokens", "prompt token counts differ", 0.0)
    later = (pairs["turn"] > 0).fillna(value=False).to_numpy(dtype=bool)
    yield replace(found, differ=found.differ & ~later, sizes=None)
    yield replace(found, differ=found.differ & later, sizes=np.where(found.differ, _prompt_sizes(pairs, metric), 0.0))


def _with_growth(usable: pd.DataFrame) -> pd.DataFrame:
    """Add `grown`: tokens of a turn's prompt that the turn before did not have, its answer included."""
    rows = usable.sort_values(["round", "label", "prompt_id", "turn"], kind="stable")
    before = rows.groupby(["round", "label", "prompt_id"], dropna=False)["prompt_tokens"].shift()
    return usable.assign(grown=rows["prompt_tokens"].astype("float64") - before.astype("float64"))


def _prompt_sizes(pairs: pd.DataFrame, metric: str) -> Floats:
    """|log| of the largest factor that the lengths of two prompts can explain, one element per pair.

    While it decodes an engine reads the context: the square of the lengths' ratio bounds that. Until the first token it
    works on the tokens that no cache holds, each with the context before it: the uncached tokens' ratio times the
    context's. Only what grows with the answers is the lengths'; uncached tokens beyond that are the engine's. So both
    arms are compared at one length, the control's or the treatment's, and the smaller factor is what must be explained.
    Where it is not known what was cached, all that the turn before had is taken to be.
    """
    prompt, prompt_control = _both(pairs, "prompt_tokens")
    context = _log_ratio(prompt, prompt_control)
    if metric == "decode_tps":
        return 2.0 * context
    grown, grown_control = (np.maximum(each, 1.0) for each in _both(pairs, "grown"))
    cached = _both(pairs, "cached_tokens")
    uncached = [np.maximum(length - held, 1.0) for length, held in zip((prompt, prompt_control), cached, strict=True)]
    by_length = []
    for waiting, own in zip(uncached, (grown, grown_control), strict=True):
        rest = np.where(np.isnan(waiting), 0.0, waiting - own)
        # An engine that caches its own answers works on less than what has grown.
        by_length.append(np.where(rest < 0, np.inf, _log_ratio(grown + rest, grown_control + rest)))
    nearest = np.minimum(*by_length)
    waits = np.where(np.isinf(nearest), _log_ratio(*uncached), nearest)
    found: Floats = context + np.where(np.isnan(waits), context, waits)
    return found


def _both(pairs: pd.DataFrame, column: str) -> tuple[Floats, Floats]:
    own, other = (pairs[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in (column, f"{column}_control"))
    return own, other


def _log_ratio(left: Floats, right: Floats) -> Floats:
    found: Floats = np.abs(np.log(np.maximum(left, 1.0) / np.maximum(right, 1.0)))
    return found


def _unequal_caches(pairs: pd.DataFrame) -> _Check:
    """First turns begin without history: an arm did not have to process what it had from a cache there.

    Of a prompt whose beginning is cached the rest costs in proportion to its length, so the bound is linear.
    """
    found = _unequal_counts(pairs, "cached_tokens", "tokens of the first prompt from a cache differ", 0.0)
    first = (pairs["turn"] == 0).fillna(value=False).to_numpy(dtype=bool)
    asked, held = _both(pairs, "prompt_tokens"), _both(pairs, "cached_tokens")
    left, right = (length - cached for length, cached in zip(asked, held, strict=True))
    return replace(found, differ=found.differ & first, sizes=np.where(first, _log_ratio(left, right), np.nan))


def words(column: "pd.Series[Any]") -> Words:
    """The column as plain objects, None where it is missing."""
    plain = column.astype(object)
    found: Words = plain.where(column.notna(), None).to_numpy(dtype=object)
    return found


def _flag(column: "pd.Series[Any]") -> Flags:
    found: Flags = column.astype("boolean").fillna(value=False).to_numpy(dtype=bool)
    return found
