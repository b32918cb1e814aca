"""Values that an audit computes once, for the whole run and for each of its scopes. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from orchestrator.effects import Effect, Series, effect_of
from orchestrator.schedule import AA_LABEL, minimum_rounds
from orchestrator.statistics.carry_over import CarryOver
from orchestrator.statistics.comparability import DifferenceTable, EvidenceTable, Reason, Scope
from orchestrator.statistics.family import adjusted, step_down
from orchestrator.statistics.lags import LagModel, Placed, Ran
from orchestrator.statistics.losses import PairLosses
from orchestrator.statistics.observations import ScopeTrials, Usable
from orchestrator.statistics.sequential import sequential_effect
from orchestrator.statistics.variation import Variation, variation_of

# fixed: as many rounds as planned; anytime: rounds went on until the comparison was decided.
Inference = Literal["fixed", "anytime"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRun:
    """Values that all comparisons of an audit share."""

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
class Scoped:
    """One scope's trials and what is computed of them for all treatments at once."""

    scope: Scope
    used: ScopeTrials
    series: Mapping[str, Series | None]  # each label against the control, AA_LABEL among them
    effects: Mapping[str, Effect | None]
    variations: Mapping[str, Variation]  # of the treatments with rounds enough
    family: Mapping[str, float]
    lags: LagModel | None  # None: too few trials
    inter_tokens: ScopeTrials | None = None


def scoped_trials(usable: Usable, scope: Scope, run: AuditRun, *, main: bool = True) -> Scoped:
    used = replace(usable.trials(scope), together=run.together)
    series = {label: used.pair(label, run.control) for label in (AA_LABEL, *run.treatments, *run.never_ran)}
    effects = {label: None if one is None else effect_in(one, run) for label, one in series.items()}
    family: Mapping[str, float] = {}
    if len(run.treatments) > 1 and run.inference == "anytime":
        family = adjusted({arm: effect.p_value for arm in run.treatments if (effect := effects[arm])})
    elif len(run.treatments) > 1:
        compared = {arm: one for arm in run.treatments if (one := series[arm]) is not None}
        family = step_down(compared, alpha=run.alpha, seed=run.seed)
    return Scoped(
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


def _lags(used: ScopeTrials, run: AuditRun) -> LagModel | None:
    return LagModel.fit_by_noise(Placed.find(used, run.ran, control=run.control)) if len(used.y) else None


def effect_in(series: Series, run: AuditRun) -> Effect:
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
