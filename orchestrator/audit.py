"""The audit: could this result be drift? Stored trials in, verdicts out; no database, no printing.

Each treatment is compared with the control over all prompts, in each workload, prompt class and turn. Where these have
opposite directions, what holds them all has none. A verdict is the first of these that applies:

    not_engaged      a generation that requested a mechanism lacks the evidence that it ran, in either arm
    confounded       something besides the arms' declared settings differs within rounds
    underpowered     too few complete rounds to reach the level at all
    no_difference    the interval lies inside the equivalence margin, a typical round does, and neither does the effect
                     vary by prompt or over the run nor do the arms' slowest trials or slowest tokens differ
    supported        the interval is clear of 1; neither the treatment's ratio lies in the A/A floor nor the floor's
                     ratio in the interval; and the difference stands out among all treatments of the run
    could_be_drift   none of these

The floor is the effect of the control's second entry against its first, with its interval: what two equal arms look
like in this run. Runs whose order was not drawn at random are for `orchestrator.statistics.unrandomised`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import pandas as pd

from orchestrator.effects import Effect, Series, effect_of, typical_of
from orchestrator.schedule import AA_LABEL, minimum_rounds
from orchestrator.statistics.bounds import limited, worst_cases
from orchestrator.statistics.carry_over import CarryOver, carry_over
from orchestrator.statistics.comparability import Asked, Differences, DifferenceTable, EvidenceTable, Reason, Scope
from orchestrator.statistics.directions import Compared, best_everywhere, parts_of, split_where_parts_disagree
from orchestrator.statistics.family import Standing, adjusted, standing, step_down
from orchestrator.statistics.findings import AaFloor, AuditResult, BestSet, Comparison, Included, summarise
from orchestrator.statistics.heat import carry_over_reason, hides_a_difference, may_be_heat
from orchestrator.statistics.lags import LagModel, Placed, Ran
from orchestrator.statistics.losses import PairLosses, Trials, loss_notes, pair_losses
from orchestrator.statistics.observations import (
    ALL,
    LOWER_IS_FASTER,
    ScopeTrials,
    Usable,
    arm_summaries,
    arms_in_order,
    first_attempts,
    measured_rows,
    scopes_of,
)
from orchestrator.statistics.oddities import oddities
from orchestrator.statistics.sequential import sequential_effect
from orchestrator.statistics.tails import OF_METRICS, inter_token_times, unknown_inter_tokens, unlike_inter_tokens
from orchestrator.statistics.variation import Variation, unlike_tails, variation_of
from orchestrator.statistics.verdicts import Case, decide, lies_inside

__all__ = ["METHOD_VERSION", "AaFloor", "AuditResult", "BestSet", "Comparison", "Included", "Inference", "audit"]

# 3: of more than 256 rounds, neighbours are exchanged together
# 4: later turns' waits are parts; their prompts' lengths confound only what they could explain; samplers are whole
# 5: the mean over prompts instead of a typical round; pairs share what both have; families by each pair's own noise
# 6: carry-over of many trials forbids "supported", as does an effect that heat could make; rules drop whole rounds,
#    first attempts bound the verdict; waits by uncached tokens; best sets over all scopes; early stops by whole passes
# 7: "no difference" asks the times between tokens as well
METHOD_VERSION = "7"
TTFT = "ttft_s"
RUN_DRIFT = "run_drift"  # code of the reason that tells it

# fixed: as many rounds as planned; anytime: rounds went on until the comparison was decided.
Inference = Literal["fixed", "anytime"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What all comparisons of an audit share."""

    control: str
    treatments: tuple[str, ...]  # those with trials: a family
    never_ran: tuple[str, ...]
    metric: str
    alpha: float
    margin: float
    seed: int
    inference: Inference
    together: int  # rounds whose labels were dealt as one
    evidence: EvidenceTable
    differences: DifferenceTable
    inter_tokens: Usable | None  # None: unknown, or the metric does not hide them
    no_inter_tokens: tuple[Reason, ...]  # of the arms whose times between tokens are unknown
    carry_over: CarryOver | None
    ran: Ran
    losses: Mapping[str, PairLosses]  # by treatment; empty where none was lost
    loss_notes: tuple[Reason, ...]
    notes: Mapping[str, tuple[Reason, ...]]  # by arm: trials left out, and those that count although they ran early
    replays: tuple[Reason, ...]
    drift: float | None  # between the control runs at both ends
    drift_reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scoped:
    """One scope's trials and what is computed of them for all treatments at once."""

    scope: Scope
    used: ScopeTrials
    series: Mapping[str, Series | None]  # each label against the control, AA_LABEL among them
    effects: Mapping[str, Effect | None]
    variations: Mapping[str, Variation]  # of the treatments with rounds enough
    family: Mapping[str, float]
    lags: LagModel | None  # None: too few trials
    inter_tokens: ScopeTrials | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What an audit is asked for: see `audit`."""

    control: str
    metric: str
    alpha: float
    margin: float
    seed: int
    inference: Inference
    together: int
    arms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waits:
    """The turns' times to the first token, in the run's own scopes."""

    comparisons: tuple[Comparison, ...]
    standings: Mapping[Scope, Standing]


def audit(
    trials: pd.DataFrame,
    *,
    control: str,
    metric: str,
    alpha: float = 0.05,
    margin: float = 0.02,
    seed: int = 0,
    inference: Inference = "fixed",
    arms: Sequence[str] = (),
    together: int = 1,
) -> AuditResult:
    """Judge a run whose rounds were drawn at random.

    Args:
        trials: the rows of `StoredRun.trials`, of every kind and status.
        control: the arm that the others are compared with.
        metric: the column to compare: a rate, or `ttft_s`, of which less is faster.
        alpha: level of each comparison and of each family; intervals have confidence 1 - alpha.
        margin: ratios between 1 - margin and 1 / (1 - margin) are called no difference.
        seed: of the exchanges drawn where there are too many to take all.
        inference: "anytime" when the run's design lets it end as soon as it is decided: intervals and p-values then
            hold at any time of stopping, at the price of some width.
        arms: the planned ones, where they are known: one without a trial is a comparison like any other.
        together: rounds whose labels were dealt as one, as in a Williams square; 1: each round's were.

    Raises:
        ValueError: a column is missing, the metric is unknown, or the control is no arm of the run.
    """
    asked = _Asked(
        control=control,
        metric=metric,
        alpha=alpha,
        margin=margin,
        seed=seed,
        inference=inference,
        together=together,
        arms=tuple(arms),
    )
    return _audited(trials, asked)[0]


def _audited(trials: pd.DataFrame, asked: _Asked) -> tuple[AuditResult, Mapping[Scope, Standing]]:
    """The audit, and how the arms stand in each scope."""
    control, metric = asked.control, asked.metric
    measured = measured_rows(trials, metric)
    ran = arms_in_order(trials)
    never_ran = [arm for arm in asked.arms if arm not in ran]
    if control not in (*ran, *never_ran):
        raise ValueError(f"control {control!r}: no such arm in the run; it has {ran}")
    usable, lost = Usable.read(measured), Trials.read(trials)
    order_run = replace(Ran.read(trials), together=asked.together)
    drift, drift_reason = run_drift(trials, control=control, metric=metric)
    run = _Run(
        control=control,
        treatments=tuple(arm for arm in ran if arm != control),
        never_ran=tuple(arm for arm in never_ran if arm != control),
        metric=metric,
        alpha=asked.alpha,
        margin=asked.margin,
        seed=asked.seed,
        inference=asked.inference,
        together=asked.together,
        evidence=EvidenceTable.read(measured),
        differences=DifferenceTable.read(measured[measured["usable"]], control=control, metric=metric),
        inter_tokens=inter_token_times(measured, metric),
        no_inter_tokens=_no_inter_tokens(measured, metric, ran),
        carry_over=carry_over(usable.trials(ALL), control=control, seed=asked.seed, ran=order_run),
        ran=order_run,
        losses=_losses(lost, [arm for arm in ran if arm != control], control, asked.seed),
        loss_notes=loss_notes(lost, [*ran, AA_LABEL] if AA_LABEL in set(lost.labels) else ran),
        notes={
            arm: (*_left_out(measured, arm), *_hot_starts(measured, arm), *oddities(measured, arm))
            for arm in (*ran, *never_ran)
        },
        replays=_replays(trials),
        drift=drift,
        drift_reason=drift_reason,
    )
    scoped = [_scoped(usable, scope, run) for scope in scopes_of(measured)]
    pairs = list(zip(scoped, _included_scopes(trials, run, scoped), strict=True))
    comparisons = tuple(
        _compare(run, one, with_excluded, treatment)
        for treatment in (*run.treatments, *run.never_ran)
        for one, with_excluded in pairs
    )
    return _result(run, measured, scoped, comparisons, _waits(trials, run))


def _waits(trials: pd.DataFrame, run: _Run) -> _Waits:
    """Whatever a run compares: what decodes faster and lets the second turn wait for minutes is not faster."""
    if run.metric == TTFT:
        return _Waits(comparisons=(), standings={})
    later = trials.loc[(trials["turn"] > 0).fillna(value=False), "prompt_id"].unique()
    several = trials["workload"].nunique() > 1
    comparisons: list[Comparison] = []
    standings: dict[Scope, Standing] = {}
    for workload, own in trials[trials["prompt_id"].isin(later)].groupby("workload", sort=False):
        if run.control not in set(own["arm"]):
            continue
        asked = _Asked(
            control=run.control,
            metric=TTFT,
            alpha=run.alpha,
            margin=run.margin,
            seed=run.seed,
            inference=run.inference,
            together=run.together,
        )
        told, found = _audited(own, asked)
        place = str(workload) if several else None
        comparisons += [replace(one, workload=place) for one in told.comparisons if one.turn is not None]
        standings |= {replace(scope, workload=place): each for scope, each in found.items() if scope.turn}
    return _Waits(comparisons=tuple(comparisons), standings=standings)


def _result(
    run: _Run,
    measured: pd.DataFrame,
    scoped: Sequence[_Scoped],
    comparisons: tuple[Comparison, ...],
    waits: _Waits,
) -> tuple[AuditResult, Mapping[Scope, Standing]]:
    parts = parts_of([one.scope for one in scoped], Asked.read(measured))
    comparisons = split_where_parts_disagree(comparisons, parts, waits=[one for one in waits.comparisons if one.turn])
    standings = {one.scope: _standing(run, one) for one in scoped}
    aa_entry = [AA_LABEL] if (measured["label"] == AA_LABEL).any() else []  # a design may have none
    result = AuditResult(
        method_version=METHOD_VERSION,
        control=run.control,
        metric=run.metric,
        alpha=run.alpha,
        margin=run.margin,
        seed=run.seed,
        comparisons=comparisons,
        waits=waits.comparisons,
        floors=tuple(_floors(scoped)),
        best=best_everywhere(standings, parts, alpha=run.alpha, family=partial(_family_of, run), waits=waits.standings),
        carry_over=run.carry_over,
        arms=arm_summaries(measured, [run.control, *aa_entry, *run.treatments, *run.never_ran]),
        drift=run.drift,
        drift_reason=run.drift_reason,
        summary=summarise(comparisons, run.drift, run.metric),
    )
    return result, standings


def _losses(lost: Trials, treatments: Sequence[str], control: str, seed: int) -> Mapping[str, PairLosses]:
    if not lost.lost.any() and not lost.unexplained:
        return {}
    return {arm: pair_losses(lost, arm, control, seed=seed) for arm in treatments}


def _included_scopes(trials: pd.DataFrame, run: _Run, scoped: Sequence[_Scoped]) -> Sequence[_Scoped | None]:
    """Each scope with the first attempts, excluded trials too; None when nothing was replayed, excluded or lost."""
    if not run.losses and not _replayed(trials):
        return [None] * len(scoped)
    everything = Usable.read(first_attempts(trials, run.metric), include_excluded=True)
    return [_scoped(everything, one.scope, run, main=False) for one in scoped]


def _replayed(trials: pd.DataFrame) -> bool:
    rows = trials[(trials["kind"] == "measured") & trials["round"].notna()]
    return bool((rows["attempt"] > 0).fillna(value=False).any())


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


def _scoped(usable: Usable, scope: Scope, run: _Run, *, main: bool = True) -> _Scoped:
    used = replace(usable.trials(scope), together=run.together)
    series = {label: used.pair(label, run.control) for label in (AA_LABEL, *run.treatments, *run.never_ran)}
    effects = {label: None if one is None else _effect(one, run) for label, one in series.items()}
    family: Mapping[str, float] = {}
    if len(run.treatments) > 1 and run.inference == "anytime":
        family = adjusted({arm: effect.p_value for arm in run.treatments if (effect := effects[arm])})
    elif len(run.treatments) > 1:
        compared = {arm: one for arm in run.treatments if (one := series[arm]) is not None}
        family = step_down(compared, alpha=run.alpha, seed=run.seed)
    return _Scoped(
        scope=scope,
        used=used,
        series=series,
        effects=effects,
        variations={
            arm: variation_of(one, alpha=run.alpha, margin=run.margin, seed=run.seed)
            for arm in run.treatments
            if (one := series[arm]) is not None and one.rounds >= minimum_rounds(run.alpha)
        },
        family=family,
        lags=_lags(used, run) if main else None,
        inter_tokens=replace(run.inter_tokens.trials(scope), together=run.together) if run.inter_tokens else None,
    )


def _no_inter_tokens(measured: pd.DataFrame, metric: str, arms: Sequence[str]) -> tuple[Reason, ...]:
    if metric not in OF_METRICS:
        return ()
    return tuple(reason for arm in arms if (reason := unknown_inter_tokens(measured, arm)) is not None)


def _lags(used: ScopeTrials, run: _Run) -> LagModel | None:
    return LagModel.fit(Placed.find(used, run.ran, control=run.control)) if len(used.y) else None


def _effect(series: Series, run: _Run) -> Effect:
    return effect_by(series, alpha=run.alpha, seed=run.seed, inference=run.inference)


def effect_between(
    used: ScopeTrials, *, treatment: str, control: str, alpha: float, seed: int, inference: Inference
) -> Effect | None:
    """One label against another in a scope; None when no round holds both."""
    series = used.pair(treatment, control)
    return None if series is None else effect_by(series, alpha=alpha, seed=seed, inference=inference)


def effect_by(series: Series, *, alpha: float, seed: int, inference: Inference) -> Effect:
    """The effect by the inference that holds for the run."""
    if inference == "anytime":
        return sequential_effect(series.raw, alpha=alpha, prompts=series.strata)
    return effect_of(series, alpha=alpha, seed=seed)


def _floors(scoped: Sequence[_Scoped]) -> Sequence[AaFloor]:
    return [
        AaFloor(**asdict(one.scope), effect=effect) for one in scoped if (effect := one.effects[AA_LABEL]) is not None
    ]


def _standing(run: _Run, one: _Scoped) -> Standing:
    """With too few rounds to tell any two arms apart, all of them are as good as the best."""
    ratios = {run.control: 1.0}
    ratios |= {arm: effect.ratio for arm in run.treatments if (effect := one.effects[arm]) is not None}
    return standing(one.used, ratios=ratios, lower_is_better=run.metric in LOWER_IS_FASTER)


def _family_of(run: _Run, series: Mapping[Compared, Series]) -> Mapping[Compared, float]:
    """P-values for the family of all these comparisons, by the inference that holds for the run."""
    if run.inference == "fixed":
        return step_down(series, alpha=run.alpha, seed=run.seed)
    return adjusted(
        {
            key: effect_by(one, alpha=run.alpha, seed=run.seed, inference=run.inference).p_value
            for key, one in series.items()
        }
    )


def _compare(run: _Run, one: _Scoped, included: _Scoped | None, treatment: str) -> Comparison:
    scope, effect, floor = one.scope, one.effects[treatment], one.effects[AA_LABEL]
    ran = run.evidence.engagement(treatment, scope)
    control_ran = run.evidence.engagement(run.control, scope)
    verdict, reasons = decide(_case(run, one, treatment, included=included))
    if verdict == "underpowered" and effect is None:
        reasons = (Reason(code="too_few_rounds", text="no complete round yet"),)
    differences = _differences(run, one, treatment)
    unsaid = [reason for reason in differences.unknown if reason not in reasons]
    varied = one.variations.get(treatment)
    reasons = _with_variation(reasons, varied)
    notes = (*unsaid, *_missing_prompts(one, run, treatment), *differences.harmless, *ran.notes, *control_ran.notes)
    notes = (*notes, *_carry_over_note(run, reasons))
    if verdict == "no_difference":
        notes = (*notes, *(each for each in run.no_inter_tokens if each.text.startswith((treatment, run.control))))
    if scope == ALL:
        notes = (
            _drift_note(run),
            *run.replays,
            *run.loss_notes,
            *notes,
            *run.notes[treatment],
            *run.notes[run.control],
        )
    return Comparison(
        treatment=treatment,
        control=run.control,
        **asdict(scope),
        metric=run.metric,
        verdict=verdict,
        direction=_led(effect, varied, run.metric) if effect and verdict == "supported" else None,
        ratio=effect.ratio if effect else None,
        ci_low=_low(effect),
        ci_high=_high(effect),
        p_value=effect.p_value if effect else None,
        family_p=one.family.get(treatment),
        rounds=effect.rounds if effect else 0,
        wins=_wins(effect, run.metric),
        aa_ratio=floor.ratio if floor else None,
        aa_low=_low(floor),
        aa_high=_high(floor),
        engaged_share=ran.share,
        included=_included(run, included, treatment) if included else None,
        reasons=(*reasons, *notes),
        typical=effect.typical if effect else None,
    )


def _with_variation(reasons: tuple[Reason, ...], varied: Variation | None) -> tuple[Reason, ...]:
    """An effect that varies is said first; what else one number leaves out comes last."""
    if varied is None:
        return reasons
    codes = {reason.code for reason in varied.notes}
    others = tuple(reason for reason in reasons if reason.code not in codes)
    odd = () if varied.odd_rounds is None else (varied.odd_rounds,)
    return (*varied.varies, *others, *odd)


def _led(effect: Effect, varied: Variation | None, metric: str) -> str | None:
    """Which way it goes; None where prompts go different ways."""
    return None if varied is not None and varied.opposite else _direction(effect, metric)


def _missing_prompts(one: _Scoped, run: _Run, treatment: str) -> tuple[Reason, ...]:
    """Prompts of which the two arms have no round in common."""
    series = one.series[treatment]
    if one.used.cells is None or series is None or series.parts is None:
        return ()
    mine = np.isin(one.used.labels, [treatment, run.control])[one.used.cells.trial]
    asked = dict.fromkeys(str(name) for name in one.used.cells.prompts[one.used.cells.cell[mine]])
    gone = [name for name in asked if name not in series.parts.names]
    if not gone:
        return ()
    text = f"{treatment}: no round has a value of both arms for {', '.join(gone)}: left out of this comparison"
    return (Reason(code="prompts_left_out", text=text),)


def _unlike(run: _Run, one: _Scoped, treatment: str) -> tuple[Reason, ...]:
    """What forbids "no difference" where the mean shows none."""
    series, varied, effect = one.series[treatment], one.variations.get(treatment), one.effects[treatment]
    if series is None or varied is None or effect is None or not lies_inside(effect, run.margin):
        return ()
    tails = unlike_tails(
        series,
        alpha=run.alpha,
        margin=run.margin,
        seed=run.seed,
        lower_is_faster=run.metric in LOWER_IS_FASTER,
        arms=(treatment, run.control),
    )
    waits = None
    if one.inter_tokens is not None:
        waits = unlike_inter_tokens(
            one.inter_tokens,
            treatment=treatment,
            control=run.control,
            alpha=run.alpha,
            margin=run.margin,
            seed=run.seed,
        )
    found = [*varied.notes, *(reason for reason in (tails, waits) if reason is not None)]
    if not varied.inside and not found:
        text = (
            f"the mean is {math.exp(series.mean):.3f} and a typical round {math.exp(typical_of(series.contrasts)):.3f}"
        )
        found.append(Reason(code="outside_margin", text=f"{text}: not both lie inside the margin of {run.margin:.1%}"))
    return tuple(found)


def _drift_note(run: _Run) -> Reason:
    """What the control runs at both ends show, beside every verdict."""
    if run.drift is None:
        return Reason(code=RUN_DRIFT, text=f"drift of the run unknown: {run.drift_reason}")
    return Reason(code=RUN_DRIFT, text=f"the control itself changed by {run.drift:+.1%} from first to last run")


def _case(run: _Run, one: _Scoped, treatment: str, *, included: _Scoped | None = None) -> Case:
    effect = one.effects[treatment]
    differences = _differences(run, one, treatment)
    arms = (treatment, run.control)
    marked = carry_over_reason(run.carry_over) if run.carry_over and run.carry_over.matters else None
    hidden = run.carry_over is not None and hides_a_difference(run.carry_over, run.margin)
    heat = may_be_heat(one.lags, effect, treatment=treatment, control=run.control, alpha=run.alpha)
    return Case(
        effect=effect,
        floor=one.effects[AA_LABEL],
        idle=tuple(reason for arm in arms for reason in run.evidence.engagement(arm, one.scope).reasons),
        confounders=differences.confounding,
        family_p=one.family.get(treatment),
        family_size=len(run.treatments),
        carry_over=None if hidden else marked,
        alpha=run.alpha,
        margin=run.margin,
        squares=None if run.together == 1 else _squares(one.series.get(treatment)),
        doubts=() if heat is None or marked is not None else (heat,),
        limits=(
            *differences.unknown,
            *((marked,) if hidden and marked is not None else ()),
            *_limits(run, one, included, treatment),
        ),
        unlike=_unlike(run, one, treatment),
    )


def _squares(series: Series | None) -> int:
    """How many squares the two arms have rounds in common in: each is one exchange."""
    return 0 if series is None else len(np.unique(series.numbers // series.together))


def _limits(run: _Run, one: _Scoped, included: _Scoped | None, treatment: str) -> tuple[Reason, ...]:
    """What lost trials forbid."""
    losses = run.losses.get(treatment)
    if losses is None or included is None:
        return ()
    worst = worst_cases(included.used, treatment=treatment, control=run.control)
    filled = [series for used in worst if (series := used.pair(treatment, run.control)) is not None]
    bounds = [included.effects[treatment], *(_effect(series, run) for series in filled)]
    names = (treatment, run.control)
    found = limited(one.effects[treatment], bounds, losses, names=names, margin=run.margin)
    return () if found is None else (found,)


def _differences(run: _Run, one: _Scoped, treatment: str) -> Differences:
    effect = one.effects[treatment]
    log_effect = float(np.log(effect.ratio)) if effect else None
    return run.differences.confounders(treatment, one.scope, log_effect=log_effect, margin=run.margin)


def _included(run: _Run, one: _Scoped, treatment: str) -> Included:
    effect = one.effects[treatment]
    return Included(
        verdict=decide(_case(run, one, treatment))[0],
        ratio=effect.ratio if effect else None,
        ci_low=_low(effect),
        ci_high=_high(effect),
        rounds=effect.rounds if effect else 0,
    )


def _carry_over_note(run: _Run, reasons: Sequence[Reason]) -> tuple[Reason, ...]:
    found = run.carry_over
    if found is None or not found.matters or any(reason.code == "carry_over" for reason in reasons):
        return ()
    return (carry_over_reason(found),)


def _low(effect: Effect | None) -> float | None:
    """None where too few rounds leave the interval open."""
    return effect.ci_low if effect and effect.ci_low > 0 else None


def _high(effect: Effect | None) -> float | None:
    return effect.ci_high if effect and np.isfinite(effect.ci_high) else None


def _direction(effect: Effect, metric: str) -> str:
    return "faster" if (effect.ratio > 1) != (metric in LOWER_IS_FASTER) else "slower"


def _wins(effect: Effect | None, metric: str) -> int | None:
    if effect is None:
        return None
    return effect.losses if metric in LOWER_IS_FASTER else effect.wins


def _left_out(measured: pd.DataFrame, arm: str) -> tuple[Reason, ...]:
    """How many of the arm's trials are not used, and why."""
    with_its_round = (measured["status"] == "done") & measured["excluded_reason"].isna() & measured["y"].notna()
    unused = measured[(measured["label"] == arm) & ~measured["usable"] & ~with_its_round].drop_duplicates("sequence")
    if unused.empty:
        return ()
    status = unused["status"].replace("done", "without the metric")  # its flags say why
    why = unused["excluded_reason"].astype(object).where(unused["excluded_reason"].notna(), status)
    why = unused["error_kind"].astype(object).where(unused["error_kind"].notna(), why)
    counts = ", ".join(f"{count} {name}" for name, count in why.value_counts().items())
    noun = "trial" if len(unused) == 1 else "trials"
    return (Reason(code="left_out", text=f"{arm}: {len(unused)} {noun} left out ({counts})"),)


def _replays(trials: pd.DataFrame) -> tuple[Reason, ...]:
    """How often a round was run again, and why: what happened to it is told, though it counts no longer."""
    rows = trials[(trials["kind"] == "measured") & trials["round"].notna()]
    replaced = rows[rows["attempt"] < rows.groupby("round")["attempt"].transform("max")]
    left_out = replaced.dropna(subset=["excluded_reason"])
    if left_out.empty:
        return ()
    causes = left_out["excluded_reason"].astype(str).str.removeprefix("round_replayed: ").drop_duplicates()
    count = len(left_out[["round", "attempt"]].drop_duplicates())
    times = "once" if count == 1 else f"{count} times"
    return (Reason(code="replayed", text=f"a round was replayed {times} ({'; '.join(causes)})"),)


def _hot_starts(measured: pd.DataFrame, arm: str) -> tuple[Reason, ...]:
    """The arm's trials that count although what their gate waited for had not come when their time was up."""
    hot = (measured["gate_state"] == "hot_start").fillna(value=False).astype(bool)  # NULL: from before there were gates
    rows = measured[(measured["label"] == arm) & measured["usable"] & hot]
    count = rows["sequence"].nunique()
    if not count:
        return ()
    words = "trial ran before the machine was quiet, and counts"
    if count > 1:
        words = "trials ran before the machine was quiet, and count"
    return (Reason(code="hot_start", text=f"{arm}: {count} {words}"),)
