"""Did the arm's mechanism run, and does anything besides its declared settings differ from the control? Pure.

Each finding is a reason: a code for programs, words for people. Two arms are compared round by round, so a version that
changed in the middle of a run for all of them is no difference.
"""

from dataclasses import dataclass

import pandas as pd

# How far the completions' lengths may differ, as a share, before a metric is not comparable. An end-to-end rate spreads
# the prompt's processing over the tokens, so any difference moves it. A decode rate only sees the context grow.
LENGTH_TOLERANCE = {"end_to_end_tps": 0.0, "decode_tps": 0.25}

# Must be equal within a round, whatever the arms are.
_ENVIRONMENT = {
    "host": "host",
    "os_build": "OS build",
    "mlx_version": "MLX version",
    "mlx_lm_version": "mlx-lm version",
    "interlace_version": "interlace version",
    "python": "Python version",
    "power_source": "power source",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a verdict is what it is, or what to know beside it."""

    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Engagement:
    """What the evidence says of an arm's generations."""

    share: float | None  # of the generations that requested a mechanism, those that show it ran; None: none did
    reasons: tuple[Reason, ...]  # why it counts as not engaged; empty when it does not
    notes: tuple[Reason, ...]


def engagement(rows: pd.DataFrame, arm: str) -> Engagement:
    """Judge an arm's measured generations, the invalid ones included: a trial without evidence must not hide."""
    rows = rows[rows["status"].isin(["done", "invalid"])]
    requested = _flag(rows["requested"])
    engaged = _flag(rows["engaged"])
    asked = int(requested.sum())
    reasons = []
    if stray := int((~requested & engaged).sum()):
        reasons.append(
            Reason(
                code="unrequested_mechanism",
                text=f"{arm}: a mechanism ran unasked in {stray} of {len(rows)} generations",
            )
        )
    if not asked:
        return Engagement(share=None, reasons=tuple(reasons), notes=())
    known = rows["engaged"].notna().to_numpy(dtype=bool)
    if idle := int((requested & known & ~engaged).sum()):
        reasons.append(Reason(code="not_engaged", text=f"{arm}: not engaged in {idle} of {asked} generations"))
    if unknown := int((requested & ~known).sum()):
        text = f"{arm}: no evidence either way in {unknown} of {asked} generations"
        reasons.append(Reason(code="engagement_unknown", text=text))
    share = float((requested & engaged).sum()) / asked
    return Engagement(share=share, reasons=tuple(reasons), notes=_useless(rows, arm, asked))


def _useless(rows: pd.DataFrame, arm: str, asked: int) -> tuple[Reason, ...]:
    if "useful" not in rows.columns:
        return ()
    useless = int((_flag(rows["engaged"]) & rows["useful"].notna() & ~_flag(rows["useful"])).sum())
    if not useless:
        return ()
    return (
        Reason(code="not_useful", text=f"{arm}: engaged, but nothing accepted in {useless} of {asked} generations"),
    )


def _flag(column: "pd.Series[bool]") -> "pd.Series[bool]":
    return column.astype("boolean").fillna(value=False).astype(bool)


def differences(treatment: pd.DataFrame, control: pd.DataFrame, metric: str) -> tuple[Reason, ...]:
    """What differs besides the arms' declared settings, over the rounds that hold both. Each is a confounder."""
    by_trial = _paired(treatment, control, ["round"])
    found = [_unequal(by_trial, column, words) for column, words in _ENVIRONMENT.items() if column in treatment.columns]
    if "engine_version" in treatment.columns and "engine" in treatment.columns:
        same_engine = by_trial[by_trial["engine_t"] == by_trial["engine_c"]]
        found.append(_unequal(same_engine, "engine_version", "engine version"))
    by_generation = _paired(treatment, control, ["round", "prompt_id", "turn"])
    found.append(_unequal_counts(by_generation, "prompt_tokens", "prompt token", 0.0))
    if metric in LENGTH_TOLERANCE:
        tolerance = LENGTH_TOLERANCE[metric]
        found.append(_unequal_counts(by_generation, "completion_tokens", "completion token", tolerance))
    return tuple(reason for reason in found if reason is not None)


def _paired(treatment: pd.DataFrame, control: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    return treatment.drop_duplicates(keys).merge(control.drop_duplicates(keys), on=keys, suffixes=("_t", "_c"))


def _unequal(pairs: pd.DataFrame, column: str, words: str) -> Reason | None:
    left, right = pairs[f"{column}_t"], pairs[f"{column}_c"]
    differ = left.notna() & right.notna() & (left != right).fillna(value=False)
    if not differ.any():
        return None
    first = pairs[differ].iloc[0]
    text = (
        f"{words} differs in {int(differ.sum())} of {len(pairs)} rounds: {first[f'{column}_t']} against"
        f" {first[f'{column}_c']}"
    )
    return Reason(code=f"{column}_differs", text=text)


def _unequal_counts(pairs: pd.DataFrame, column: str, words: str, tolerance: float) -> Reason | None:
    left, right = (pairs[f"{column}_{side}"].astype("float64") for side in "tc")
    larger = left.where(left >= right, right)
    differ = (left - right).abs() > tolerance * larger
    if not differ.any():
        return None
    first = pairs[differ].iloc[0]
    text = (
        f"{words} counts differ in {int(differ.sum())} of {len(pairs)} generations: {first[f'{column}_t']} against"
        f" {first[f'{column}_c']} for prompt {first['prompt_id']}"
    )
    return Reason(code=f"{column}_differ", text=text)
