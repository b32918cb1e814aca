"""The audit: could this result be drift? Stored trials in, verdicts out; no database, no printing.

Each treatment is compared with the control over all prompts, in each prompt class and in each turn. A verdict is the
first of these that applies:

    not_engaged      a generation that requested a mechanism lacks the evidence that it ran, in either arm
    confounded       something besides the arms' declared settings differs within rounds
    underpowered     too few complete rounds to reach the level at all
    no_difference    the interval lies inside the equivalence margin
    supported        the interval is clear of 1 and of the A/A floor
    could_be_drift   none of these

The floor is the interval of the control's second entry against its first: what two equal arms look like in this run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from orchestrator.comparability import Engagement, Reason, differences, engagement
from orchestrator.effects import Effect, effect_of
from orchestrator.observations import (
    LOWER_IS_FASTER,
    ArmSummary,
    Scope,
    ScopeTrials,
    arm_summaries,
    arms_in_order,
    measured_rows,
    scope_trials,
    scopes_of,
)
from orchestrator.schedule import AA_LABEL, minimum_rounds

METHOD_VERSION = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A treatment against the control in one scope. Numbers are None where there is nothing to compute them from."""

    treatment: str
    control: str
    prompt_class: str | None  # None: over all
    turn: int | None  # None: all turns
    metric: str
    verdict: str
    direction: str | None  # faster | slower, when supported
    ratio: float | None  # of the metric, treatment over control
    ci_low: float | None
    ci_high: float | None
    p_value: float | None
    rounds: int  # complete ones
    wins: int | None  # rounds in which the treatment was the faster
    aa_ratio: float | None
    aa_low: float | None
    aa_high: float | None
    engaged_share: float | None  # of the treatment's generations that requested a mechanism
    reasons: tuple[Reason, ...]  # the deciding ones first


@dataclass(frozen=True, slots=True, kw_only=True)
class AaFloor:
    """The control against itself in one scope."""

    prompt_class: str | None
    turn: int | None
    effect: Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """What one version of the method says of a run."""

    method_version: str
    control: str
    metric: str
    alpha: float
    margin: float
    seed: int
    comparisons: tuple[Comparison, ...]  # by treatment, over all first
    floors: tuple[AaFloor, ...]
    arms: tuple[ArmSummary, ...]
    drift: float | None  # of the metric, last control run over the first, minus 1
    drift_reason: str | None  # why there is none
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """What all comparisons of an audit share."""

    control: str
    metric: str
    alpha: float
    margin: float
    seed: int


def audit(
    trials: pd.DataFrame, *, control: str, metric: str, alpha: float = 0.05, margin: float = 0.02, seed: int = 0
) -> AuditResult:
    """Judge a run.

    Args:
        trials: the run's rows of the view `trial_flat`, of every kind and status.
        control: the arm that the others are compared with.
        metric: the column to compare: a rate, or `ttft_s`, of which less is faster.
        alpha: level of each comparison; intervals have confidence 1 - alpha.
        margin: ratios between 1 - margin and 1 / (1 - margin) are called no difference.
        seed: of the exchanges drawn where there are too many to take all.

    Raises:
        ValueError: a column is missing, the metric is unknown, or the control is no arm of the run.
    """
    question = _Question(control=control, metric=metric, alpha=alpha, margin=margin, seed=seed)
    measured = measured_rows(trials, metric)
    arms = arms_in_order(trials)
    if control not in arms:
        raise ValueError(f"control {control!r}: no such arm in the run; it has {arms}")
    treatments = [arm for arm in arms if arm != control]
    scoped = [(scope, scope_trials(measured, scope)) for scope in scopes_of(measured)]
    floors = {scope: _effect(used, AA_LABEL, question) for scope, used in scoped}
    comparisons = tuple(
        _compare(measured, used, scope, treatment, floors[scope], question)
        for treatment in treatments
        for scope, used in scoped
    )
    drift, drift_reason = run_drift(trials, control=control, metric=metric)
    return AuditResult(
        method_version=METHOD_VERSION,
        control=control,
        metric=metric,
        alpha=alpha,
        margin=margin,
        seed=seed,
        comparisons=comparisons,
        floors=tuple(
            AaFloor(prompt_class=scope.prompt_class, turn=scope.turn, effect=effect)
            for scope, effect in floors.items()
            if effect is not None
        ),
        arms=arm_summaries(measured, [control, AA_LABEL, *treatments]),
        drift=drift,
        drift_reason=drift_reason,
        summary=_summary(comparisons, drift, metric),
    )


def run_drift(trials: pd.DataFrame, *, control: str, metric: str) -> tuple[float | None, str | None]:
    """The metric in the control run after the last round over that before the first, minus 1; or why there is none."""
    runs = trials[
        (trials["kind"] == "bracket")
        & (trials["arm"] == control)
        & (trials["status"] == "done")
        & trials["excluded_reason"].isna()
    ]
    runs = runs[runs[metric].notna()]
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


def _effect(used: ScopeTrials, treatment: str, question: _Question) -> Effect | None:
    series = used.pair(treatment, question.control)
    return None if series is None else effect_of(series, alpha=question.alpha, seed=question.seed)


def _compare(
    measured: pd.DataFrame,
    used: ScopeTrials,
    scope: Scope,
    treatment: str,
    floor: Effect | None,
    question: _Question,
) -> Comparison:
    rows = scope.of(measured)
    effect = _effect(used, treatment, question)
    ran = engagement(rows[rows["label"] == treatment], treatment)
    control_ran = engagement(rows[rows["arm"] == question.control], question.control)
    usable = rows[rows["usable"]]
    confounders = differences(
        usable[usable["label"] == treatment], usable[usable["label"] == question.control], question.metric
    )
    verdict, reasons = _decide(effect, floor, (ran, control_ran), confounders, question)
    notes = (*ran.notes, *control_ran.notes, *_left_out(rows, (treatment, question.control)))
    return Comparison(
        treatment=treatment,
        control=question.control,
        prompt_class=scope.prompt_class,
        turn=scope.turn,
        metric=question.metric,
        verdict=verdict,
        direction=_direction(effect, question.metric) if verdict == "supported" else None,
        ratio=effect.ratio if effect else None,
        **_bounds(effect),
        p_value=effect.p_value if effect else None,
        rounds=effect.rounds if effect else 0,
        wins=_wins(effect, question.metric),
        aa_ratio=floor.ratio if floor else None,
        aa_low=_bounds(floor)["ci_low"],
        aa_high=_bounds(floor)["ci_high"],
        engaged_share=ran.share,
        reasons=(*reasons, *notes),
    )


def _bounds(effect: Effect | None) -> dict[str, float | None]:
    """None where too few rounds leave the interval open."""
    if effect is None:
        return {"ci_low": None, "ci_high": None}
    return {
        "ci_low": effect.ci_low if effect.ci_low > 0 else None,
        "ci_high": effect.ci_high if np.isfinite(effect.ci_high) else None,
    }


def _direction(effect: Effect | None, metric: str) -> str | None:
    if effect is None:
        return None
    return "faster" if (effect.ratio > 1) != (metric in LOWER_IS_FASTER) else "slower"


def _wins(effect: Effect | None, metric: str) -> int | None:
    if effect is None:
        return None
    return effect.losses if metric in LOWER_IS_FASTER else effect.wins


def _decide(
    effect: Effect | None,
    floor: Effect | None,
    ran: Sequence[Engagement],
    confounders: Sequence[Reason],
    question: _Question,
) -> tuple[str, tuple[Reason, ...]]:
    """The verdict and what decided it."""
    if idle := tuple(reason for arm in ran for reason in arm.reasons):
        return "not_engaged", idle
    if confounders:
        return "confounded", tuple(confounders)
    needed = minimum_rounds(question.alpha)
    if effect is None or effect.rounds < needed:
        complete = effect.rounds if effect else 0
        text = f"{complete} complete rounds; a level of {question.alpha:g} needs {needed}"
        return "underpowered", (Reason(code="too_few_rounds", text=text),)
    return _weigh(effect, floor, question)


def _weigh(effect: Effect, floor: Effect | None, question: _Question) -> tuple[str, tuple[Reason, ...]]:
    interval = f"{effect.ci_low:.3f} to {effect.ci_high:.3f}"
    if effect.ci_low > 1 - question.margin and effect.ci_high < 1 / (1 - question.margin):
        text = f"the interval {interval} lies inside the margin of {question.margin:.1%}"
        return "no_difference", (Reason(code="inside_margin", text=text),)
    against = []
    if effect.ci_low <= 1 <= effect.ci_high:
        against.append(Reason(code="interval_includes_1", text=f"the interval {interval} includes 1"))
    if floor is None:
        note = Reason(code="no_floor", text="the control was not entered twice: no A/A floor to be clear of")
    else:
        band = f"{floor.ci_low:.3f} to {floor.ci_high:.3f}"
        note = Reason(code="clear_of_floor", text=f"the interval {interval} is clear of the A/A floor {band}")
        if effect.ci_low <= floor.ci_high and floor.ci_low <= effect.ci_high:
            against.append(Reason(code="inside_floor", text=f"the interval {interval} overlaps the A/A floor {band}"))
    if against:
        return "could_be_drift", tuple(against)
    clear = Reason(code="clear_of_1", text=f"the interval {interval} is clear of 1")
    return "supported", (clear, note)


def _left_out(rows: pd.DataFrame, labels: Sequence[str]) -> tuple[Reason, ...]:
    """How many trials of the two arms are not used, and why."""
    notes = []
    for label in labels:
        unused = rows[(rows["label"] == label) & ~rows["usable"]].drop_duplicates("sequence")
        if unused.empty:
            continue
        why = unused["excluded_reason"].astype(object).where(unused["excluded_reason"].notna(), unused["status"])
        if "error_kind" in unused.columns:
            why = unused["error_kind"].astype(object).where(unused["error_kind"].notna(), why)
        counts = ", ".join(f"{count} {name}" for name, count in why.value_counts().items())
        notes.append(Reason(code="left_out", text=f"{label}: {len(unused)} trials left out ({counts})"))
    return tuple(notes)


_WORDS = {
    "supported": "supported",
    "no_difference": "no difference",
    "could_be_drift": "could be drift",
    "not_engaged": "not engaged",
    "confounded": "confounded",
    "underpowered": "underpowered",
}


def _summary(comparisons: Sequence[Comparison], drift: float | None, metric: str) -> str:
    """One sentence an arm over all prompts, words first; then the run's drift."""
    sentences = [_sentence(one) for one in comparisons if one.prompt_class is None and one.turn is None]
    if not sentences:
        sentences.append("Nothing to compare: the run has no arm besides its control.")
    if drift is not None:
        sentences.append(f"From first to last control run {metric} changed by {drift:+.1%}.")
    return " ".join(sentences)


def _sentence(one: Comparison) -> str:
    head = f"{one.treatment} against {one.control}: {_WORDS[one.verdict]}"
    if one.verdict in ("not_engaged", "confounded", "underpowered"):
        return f"{head}; {'; '.join(reason.text for reason in one.reasons[:2])}."
    figure = f"{one.ratio:.3f}x ({one.ci_low:.3f} to {one.ci_high:.3f}) in {one.rounds} rounds"
    return f"{head}{', ' + one.direction if one.direction else ''}, {figure}."
