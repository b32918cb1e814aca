"""One treatment against the control in one scope: its verdict with reasons and notes. Pure."""

import math
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from orchestrator.effects import Effect, Series, typical_of
from orchestrator.schedule import AA_LABEL
from orchestrator.statistics.bounds import limited, worst_cases
from orchestrator.statistics.comparability import Differences, Reason
from orchestrator.statistics.findings import Comparison, Included
from orchestrator.statistics.heat import carry_over_reason, hides_a_difference, may_be_heat
from orchestrator.statistics.observations import ALL
from orchestrator.statistics.resolution import steps_of
from orchestrator.statistics.run_drift import drift_note
from orchestrator.statistics.scoped import AuditRun, Scoped, effect_in
from orchestrator.statistics.tails import unlike_inter_tokens
from orchestrator.statistics.variation import Variation, unlike_tails
from orchestrator.statistics.verdicts import Case, decide, lies_inside
from orchestrator.vocabulary import METRICS


def compare(run: AuditRun, one: Scoped, included: Scoped | None, treatment: str) -> Comparison:
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
    left_out = [reason for reason in _missing_prompts(one, run, treatment) if reason not in reasons]
    notes = (*unsaid, *left_out, *differences.harmless, *ran.notes, *control_ran.notes)
    notes = (*notes, *_carry_over_note(run, reasons))
    if verdict == "no_difference":
        notes = (*notes, *(each for each in run.no_inter_tokens if each.text.startswith((treatment, run.control))))
    if scope == ALL:
        notes = (
            drift_note(run.drift, run.drift_reason),
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
    """Put an effect that varies first, and what else one number leaves out last."""
    if varied is None:
        return reasons
    codes = {reason.code for reason in varied.notes}
    others = tuple(reason for reason in reasons if reason.code not in codes)
    odd = () if varied.odd_rounds is None else (varied.odd_rounds,)
    return (*varied.varies, *others, *odd)


def _led(effect: Effect, varied: Variation | None, metric: str) -> str | None:
    """Return the direction of the effect, or None if prompts have different directions."""
    return None if varied is not None and varied.opposite else _direction(effect, metric)


def _missing_prompts(one: Scoped, run: AuditRun, treatment: str) -> tuple[Reason, ...]:
    """Report prompts for which the two arms have no round in common."""
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


def _unlike(run: AuditRun, one: Scoped, treatment: str) -> tuple[Reason, ...]:
    """Return the reasons against "no difference" although the mean shows none."""
    series, varied, effect = one.series[treatment], one.variations.get(treatment), one.effects[treatment]
    if series is None or varied is None or effect is None or not lies_inside(effect, run.margin):
        return ()
    tails = unlike_tails(
        series,
        alpha=run.alpha,
        margin=run.margin,
        seed=run.seed,
        lower_is_faster=METRICS[run.metric].lower_is_faster,
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
    steps = steps_of(one.used, treatment=treatment, control=run.control, margin=run.margin)
    coarse = None if steps is None else steps.against_equality()
    found = [*varied.notes, *(reason for reason in (tails, waits, coarse) if reason is not None)]
    found += _missing_prompts(one, run, treatment)
    if not varied.inside and not found:
        text = (
            f"the mean is {math.exp(series.mean):.3f} and a typical round {math.exp(typical_of(series.contrasts)):.3f}"
        )
        found.append(Reason(code="outside_margin", text=f"{text}: not both lie inside the margin of {run.margin:.1%}"))
    return tuple(found)


def _case(run: AuditRun, one: Scoped, treatment: str, *, included: Scoped | None = None) -> Case:
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
        doubts=(*(() if heat is None or marked is not None else (heat,)), *_coarse(run, one, treatment)),
        limits=(
            *differences.unknown,
            *((marked,) if hidden and marked is not None else ()),
            *_limits(run, one, included, treatment),
        ),
        unlike=_unlike(run, one, treatment),
    )


def _coarse(run: AuditRun, one: Scoped, treatment: str) -> tuple[Reason, ...]:
    """Report an effect that may be one step of a coarse clock."""
    series = one.series.get(treatment)
    steps = steps_of(one.used, treatment=treatment, control=run.control, margin=run.margin)
    found = None if steps is None or series is None else steps.against_effect(series.mean)
    return () if found is None else (found,)


def _squares(series: Series | None) -> int:
    """Count the squares in which the two arms share rounds: each is one exchange."""
    return 0 if series is None else len(np.unique(series.numbers // series.together))


def _limits(run: AuditRun, one: Scoped, included: Scoped | None, treatment: str) -> tuple[Reason, ...]:
    """Return the verdicts that lost trials rule out, as reasons."""
    losses = run.losses.get(treatment)
    if losses is None or included is None:
        return ()
    worst = worst_cases(included.used, treatment=treatment, control=run.control)
    filled = [series for used in worst if (series := used.pair(treatment, run.control)) is not None]
    bounds = [included.effects[treatment], *(effect_in(series, run) for series in filled)]
    names = (treatment, run.control)
    found = limited(one.effects[treatment], bounds, losses, names=names, margin=run.margin)
    return () if found is None else (found,)


def _differences(run: AuditRun, one: Scoped, treatment: str) -> Differences:
    effect = one.effects[treatment]
    log_effect = float(np.log(effect.ratio)) if effect else None
    return run.differences.confounders(treatment, one.scope, log_effect=log_effect, margin=run.margin)


def _included(run: AuditRun, one: Scoped, treatment: str) -> Included:
    effect = one.effects[treatment]
    return Included(
        verdict=decide(_case(run, one, treatment))[0],
        ratio=effect.ratio if effect else None,
        ci_low=_low(effect),
        ci_high=_high(effect),
        rounds=effect.rounds if effect else 0,
    )


def _carry_over_note(run: AuditRun, reasons: Sequence[Reason]) -> tuple[Reason, ...]:
    found = run.carry_over
    if found is None or not found.matters or any(reason.code == "carry_over" for reason in reasons):
        return ()
    return (carry_over_reason(found),)


def _low(effect: Effect | None) -> float | None:
    """Return the interval's lower end, or None if too few rounds leave it open."""
    return effect.ci_low if effect and effect.ci_low > 0 else None


def _high(effect: Effect | None) -> float | None:
    return effect.ci_high if effect and np.isfinite(effect.ci_high) else None


def _direction(effect: Effect, metric: str) -> str:
    return "faster" if (effect.ratio > 1) != (METRICS[metric].lower_is_faster) else "slower"


def _wins(effect: Effect | None, metric: str) -> int | None:
    if effect is None:
        return None
    return effect.losses if METRICS[metric].lower_is_faster else effect.wins
