"""The audit: could this result be drift? Stored trials in, verdicts out; no database, no printing.

Each treatment is compared with the control over all prompts, in each workload, prompt class and turn. If these have
opposite directions, a scope that holds them all has none. A verdict is the first of these that applies:

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

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial

import pandas as pd

from orchestrator.effects import Series
from orchestrator.schedule import AA_LABEL
from orchestrator.statistics.carry_over import carry_over
from orchestrator.statistics.comparability import Asked, Declared, DifferenceTable, EvidenceTable, Reason, Scope
from orchestrator.statistics.comparison import compare
from orchestrator.statistics.directions import Compared, best_everywhere, parts_of, split_where_parts_disagree
from orchestrator.statistics.family import Standing, adjusted, standing, step_down
from orchestrator.statistics.findings import AaFloor, AuditResult, BestSet, Comparison, Included, summarise
from orchestrator.statistics.gaps import gap_notes, with_gaps
from orchestrator.statistics.lags import Ran
from orchestrator.statistics.losses import PairLosses, Trials, loss_notes, pair_losses
from orchestrator.statistics.observations import (
    ALL,
    REQUIRED,
    Usable,
    arm_summaries,
    arms_in_order,
    check,
    first_attempts,
    measured_rows,
    scopes_of,
)
from orchestrator.statistics.oddities import oddities
from orchestrator.statistics.run_drift import run_drift
from orchestrator.statistics.scoped import AuditRun, Inference, Scoped, effect_by, scoped_trials
from orchestrator.statistics.tails import OF_METRICS, inter_token_times, unknown_inter_tokens
from orchestrator.statistics.trial_notes import hot_starts, left_out, replays, was_replayed
from orchestrator.vocabulary import METRICS

__all__ = ["METHOD_VERSION", "AaFloor", "AuditResult", "BestSet", "Comparison", "Included", "Inference", "audit"]

# 3: of more than 256 rounds, neighbours are exchanged together
# 4: later turns' waits are parts; their prompts' lengths confound only what they could explain; samplers are whole
# 5: the mean over prompts instead of a typical round; pairs share what both have; families by each pair's own noise
# 6: carry-over of many trials forbids "supported", as does an effect that heat could make; rules drop whole rounds,
#    first attempts bound the verdict; waits by uncached tokens; best sets over all scopes; early stops by whole passes
# 7: "no difference" requires similar times between tokens as well
# 8: versions that the arms' environments declare are compared and do not confound
# 9: trials that lack values without a stored loss count as lost; an arm that fails more often is not "no difference"
# 10: values in steps larger than the margin, as of a coarse clock, are no "no difference"; an effect that one step can
#     make is not "supported"; two trials without a value in one arm alone are no "no difference" either
METHOD_VERSION = "10"
TTFT = "ttft_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The arguments of an audit: see `audit`."""

    control: str
    metric: str
    alpha: float
    margin: float
    seed: int
    inference: Inference
    together: int
    arms: tuple[str, ...] = ()
    declared: Declared = field(default_factory=dict)


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
    declared: Declared | None = None,
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
        arms: the planned arms, if known: an arm without a trial still gets a comparison.
        together: rounds whose labels were dealt as one, as in a Williams square; 1: each round's were.
        declared: the packages that the arms' environments name, by arm: they are compared, not confounded by.

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
        declared=declared or {},
    )
    check(trials, metric)
    return _audited(trials[list(REQUIRED)], asked)[0]  # each step copies the frame: without what it does not read


def _audited(trials: pd.DataFrame, asked: _Asked) -> tuple[AuditResult, Mapping[Scope, Standing]]:
    """The audit, and how the arms stand in each scope."""
    control, metric = asked.control, asked.metric
    measured = measured_rows(trials, metric)
    ran = arms_in_order(trials)
    never_ran = [arm for arm in asked.arms if arm not in ran]
    if control not in (*ran, *never_ran):
        raise ValueError(f"control {control!r}: no such arm in the run; it has {ran}")
    usable, lost = Usable.read(measured), with_gaps(Trials.read(trials), measured)
    order_run = replace(Ran.read(trials), together=asked.together)
    entries = [*ran, AA_LABEL] if AA_LABEL in set(lost.labels) else ran
    drift, drift_reason = run_drift(trials, control=control, metric=metric)
    run = AuditRun(
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
        differences=DifferenceTable.read(
            measured[measured["usable"]], control=control, metric=metric, declared=asked.declared
        ),
        inter_tokens=inter_token_times(measured, metric),
        no_inter_tokens=_no_inter_tokens(measured, metric, ran),
        carry_over=carry_over(usable.trials(ALL), control=control, seed=asked.seed, ran=order_run),
        ran=order_run,
        losses=_losses(lost, [arm for arm in ran if arm != control], control, asked.seed),
        loss_notes=(*loss_notes(lost, entries), *gap_notes(lost, entries)),
        notes={
            arm: (*left_out(measured, arm), *hot_starts(measured, arm), *oddities(measured, arm))
            for arm in (*ran, *never_ran)
        },
        replays=replays(trials),
        drift=drift,
        drift_reason=drift_reason,
    )
    scoped = [scoped_trials(usable, scope, run) for scope in scopes_of(measured)]
    pairs = list(zip(scoped, _included_scopes(trials, run, scoped), strict=True))
    comparisons = tuple(
        compare(run, one, with_excluded, treatment)
        for treatment in (*run.treatments, *run.never_ran)
        for one, with_excluded in pairs
    )
    return _result(run, measured, scoped, comparisons, _waits(trials, run, asked.declared))


def _waits(trials: pd.DataFrame, run: AuditRun, declared: Declared) -> _Waits:
    """Compare waits for any metric: an arm that decodes faster but delays the second turn for minutes is not faster."""
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
            declared=declared,
        )
        part, found = _audited(own, asked)
        place = str(workload) if several else None
        comparisons += [replace(one, workload=place) for one in part.comparisons if one.turn is not None]
        standings |= {replace(scope, workload=place): each for scope, each in found.items() if scope.turn}
    return _Waits(comparisons=tuple(comparisons), standings=standings)


def _result(
    run: AuditRun,
    measured: pd.DataFrame,
    scoped: Sequence[Scoped],
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


def _included_scopes(trials: pd.DataFrame, run: AuditRun, scoped: Sequence[Scoped]) -> Sequence[Scoped | None]:
    """Each scope with the first attempts, excluded trials too; None when nothing was replayed, excluded or lost."""
    if not run.losses and not was_replayed(trials):
        return [None] * len(scoped)
    everything = Usable.read(first_attempts(trials, run.metric), include_excluded=True)
    return [scoped_trials(everything, one.scope, run, main=False) for one in scoped]


def _no_inter_tokens(measured: pd.DataFrame, metric: str, arms: Sequence[str]) -> tuple[Reason, ...]:
    if metric not in OF_METRICS:
        return ()
    return tuple(reason for arm in arms if (reason := unknown_inter_tokens(measured, arm)) is not None)


def _floors(scoped: Sequence[Scoped]) -> Sequence[AaFloor]:
    return [
        AaFloor(**asdict(one.scope), effect=effect) for one in scoped if (effect := one.effects[AA_LABEL]) is not None
    ]


def _standing(run: AuditRun, one: Scoped) -> Standing:
    """Rank the arms; with too few rounds to distinguish any two, all are as good as the best."""
    ratios = {run.control: 1.0}
    ratios |= {arm: effect.ratio for arm in run.treatments if (effect := one.effects[arm]) is not None}
    return standing(one.used, ratios=ratios, lower_is_better=METRICS[run.metric].lower_is_faster)


def _family_of(run: AuditRun, series: Mapping[Compared, Series]) -> Mapping[Compared, float]:
    """P-values for the family of all these comparisons, by the inference that holds for the run."""
    if run.inference == "fixed":
        return step_down(series, alpha=run.alpha, seed=run.seed)
    return adjusted(
        {
            key: effect_by(one, alpha=run.alpha, seed=run.seed, inference=run.inference).p_value
            for key, one in series.items()
        }
    )
