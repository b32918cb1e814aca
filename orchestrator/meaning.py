"""Interpret a run's numbers: read its rows and pass them to `orchestrator.findings`. See docs/meaning.md."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from orchestrator.effects import Effect
from orchestrator.findings.ceilings import ceilings
from orchestrator.findings.depth_costs import depth_curves
from orchestrator.findings.losslessness import losslessness
from orchestrator.findings.recommendation import recommend
from orchestrator.findings.records import TIMING_ENGINES, Answer, ArmRecord, PassTimes, Probed, plain_arm_of, unknown
from orchestrator.findings.samplers import sampling
from orchestrator.findings.speed_by_round import speed_by_round
from orchestrator.findings.turns import Ratios, TtftRatio, arm_turns
from orchestrator.findings.values import Figure, Findings, Interval
from orchestrator.findings.verification import Measured, pass_curves, passes_of, verify_costs
from orchestrator.findings.widths import width_curves
from orchestrator.judging import inference_of
from orchestrator.plan import Arm, Plan, canonical_json
from orchestrator.statistics.comparability import Scope
from orchestrator.statistics.findings import AuditResult
from orchestrator.statistics.observations import ScopeTrials, Usable, measured_rows
from orchestrator.statistics.scoped import effect_between
from orchestrator.stored_run import StoredRun

TTFT = "ttft_s"
WIDTH_SETTING = "block_size"
_NOT_A_SETTING = ("name", "temperature")  # of a sampling: the arm's row has the temperature


def findings(run: StoredRun, result: AuditResult) -> Findings:
    """All findings of a stored run and its audit."""
    trials, plan, timed = run.trials, run.plan, run.pass_times
    answers = Answer.read(run.answers)
    arms = _arms(run.arms, plan, run.answers)
    passes = passes_of(arms, answers, target=_by_role(timed, "target"), draft=_by_role(timed, "draft"))
    simulated = bool(trials["simulated"].fillna(value=False).any())
    measured = _decode_ratios(trials, plan, arms)
    costs = verify_costs(arms, answers, passes=passes, measured=measured)
    turns = arm_turns([arm.name for arm in arms], answers, ratios=_turn_ratios(trials, result))
    notes = ("simulated: there is no ceiling to compare it with",) if simulated else ()
    bandwidth = _bandwidth(run.machine)
    over_all = {cost.arm: cost for cost in costs if cost.prompt_class is None}
    return Findings(
        run_id=run.run_id,
        simulated=simulated,
        metric=result.metric,
        control=result.control,
        rounds=max((one.rounds for one in result.comparisons), default=0),
        speed_by_round=speed_by_round(trials, control=result.control, metric=result.metric),
        losslessness=losslessness(arms, answers, control=result.control, probes=_probes(run.divergences)),
        verify_costs=costs,
        width_curves=width_curves(arms, answers, costs=costs, passes=passes, measured=measured),
        pass_curves=pass_curves(arms, passes),
        ceilings=() if simulated else ceilings(arms, answers, costs=over_all, bandwidth=bandwidth),
        turns=turns,
        depths=depth_curves([arm.name for arm in arms], answers, control=result.control, alpha=result.alpha),
        sampling=sampling(arms, answers),
        recommendation=recommend(result, turns),
        notes=notes,
    )


def _arms(rows: pd.DataFrame, plan: Plan, answers: pd.DataFrame) -> tuple[ArmRecord, ...]:
    """The arms' records: the control first, then in the order of the plan."""
    planned = {arm.name: place for place, arm in enumerate(plan.arms)}
    families = {arm.name: _family(arm) for arm in plan.arms}
    sampling_of = {
        arm.name: {key: value for key, value in arm.sampling.items() if key not in _NOT_A_SETTING} for arm in plan.arms
    }
    asked = answers.groupby("arm")["requested"].any() if len(answers) else pd.Series(dtype=bool)
    stamps_of = answers.dropna(subset=["stamps_of"]).drop_duplicates("arm").set_index("arm")["stamps_of"]
    found = []
    for row in rows.astype(object).where(rows.notna(), None).to_dict("records"):
        name, width = str(row["arm"]), row["block_size"]
        speculates = bool(asked.get(name, default=False)) or (width is not None and width > 1)
        found.append(
            ArmRecord(
                name=name,
                is_control=bool(row["is_control"]),
                engine=str(row["engine"]),
                family=families.get(name, name),
                checkpoint=row["checkpoint"],
                weights=row["checkpoint_digest"],
                draft=row["draft"],
                width=width,
                temperature=row["temperature"],
                sampling=sampling_of.get(name, {}),
                stamps_of=stamps_of.get(name),
                speculates=speculates and str(row["engine"]) not in TIMING_ENGINES,
                read_bytes=row["bytes_read_per_token"],
                kv_bytes=row["kv_bytes_per_token"],
                draft_read_bytes=row["draft_bytes_read_per_token"],
                draft_kv_bytes=row["draft_kv_bytes_per_token"],
            )
        )
    return tuple(sorted(found, key=lambda arm: (not arm.is_control, planned.get(arm.name, len(planned)))))


def _family(arm: Arm) -> str:
    """All of an arm's configuration but its verify width."""
    engine = {key: value for key, value in arm.engine.items() if key != WIDTH_SETTING}
    return canonical_json([arm.checkpoint, engine, arm.sampling, arm.draft, arm.environment])


def _by_role(rows: pd.DataFrame, role: str) -> dict[str, PassTimes]:
    found = {}
    for arm, own in rows[rows["role"] == role].groupby("arm", sort=False):
        repeats, context = int(own["repeats"].min()), int(own["context_tokens"].iloc[0])
        found[str(arm)] = PassTimes(
            arm=str(arm),
            role=role,
            seconds={int(width): float(s) for width, s in zip(own["width"], own["median_s"], strict=True)},
            source=f"passes timed after the rounds, {repeats} of each width, {context} tokens of context",
        )
    return found


def _probes(rows: pd.DataFrame) -> dict[tuple[str, str, int], Probed]:
    plain = rows.astype(object).where(rows.notna(), None)
    return {(row["arm"], row["prompt_id"], row["turn"]): _probed(row) for row in plain.to_dict("records")}


def _probed(row: "dict[Any, Any]") -> Probed:
    return Probed(
        token_index=row["token_index"],
        control_text=row["control_text"],
        arm_text=row["arm_text"],
        context_text=row["context_text"],
        top=tuple((int(token), str(text), float(p)) for token, text, p in row["top"] or ()),
        gap=row["gap"],
        rounding=row["rounding"],
        verdict=row["verdict"],
        reason=row["reason"],
    )


def _bandwidth(rows: pd.DataFrame) -> Figure:
    """The memory bandwidth of the run, or that of the host if the run has none."""
    row = rows.iloc[0]
    if pd.notna(row["bandwidth_bytes_per_s"]):
        return Figure(value=float(row["bandwidth_bytes_per_s"]), source=str(row["bandwidth_source"]))
    detail: Mapping[str, Any] = row["host_detail"] if isinstance(row["host_detail"], dict) else {}
    if detail.get("bandwidth_gb_per_s") is not None:
        return Figure(value=float(detail["bandwidth_gb_per_s"]) * 1e9, source=str(detail.get("bandwidth_source")))
    why = row["bandwidth_source"] if pd.notna(row["bandwidth_source"]) else detail.get("bandwidth_source")
    return unknown(f"the memory's bandwidth is unknown: {why or 'not measured'}")


def _decode_ratios(trials: pd.DataFrame, plan: Plan, arms: Sequence[ArmRecord]) -> Measured:
    """decode_tps of each speculative arm over its plain arm: over all, and in each class where there are several."""
    if not trials["randomised"].fillna(value=True).all():
        return {}  # an effect cannot be distinguished from drift
    rows = measured_rows(trials, "decode_tps")
    used = Usable.read(rows)
    classes = sorted(str(name) for name in rows["prompt_class"].dropna().unique())
    scopes = [Scope(), *(Scope(prompt_class=name) for name in classes if len(classes) > 1)]
    found = {}
    for scope in scopes:
        in_scope = used.trials(scope)
        for arm in arms:
            plain = plain_arm_of(arm, arms) if arm.speculates else None
            effect = None if plain is None else _effect(in_scope, arm.name, plain.name, plan)
            if effect is not None:
                found[arm.name, scope.prompt_class] = _interval(effect)
    return found


def _effect(used: ScopeTrials, treatment: str, control: str, plan: Plan) -> Effect | None:
    design = plan.design
    return effect_between(
        used,
        treatment=treatment,
        control=control,
        alpha=design.alpha,
        seed=design.seed,
        inference=inference_of(plan),
    )


def _interval(effect: Effect) -> Interval:
    return Interval(
        ratio=effect.ratio,
        ci_low=effect.ci_low if effect.ci_low > 0 else None,
        ci_high=effect.ci_high if effect.ci_high != float("inf") else None,
        p_value=effect.p_value,
        rounds=effect.rounds,
    )


def _turn_ratios(trials: pd.DataFrame, result: AuditResult) -> Ratios:
    """TTFT ratios by turn of conversations with several turns, whichever metric the run compares."""
    compared = result.comparisons if result.metric == TTFT else result.waits
    found = {}
    for one in compared:
        if one.turn is None or one.ratio is None or one.p_value is None:
            continue
        interval = Interval(
            ratio=one.ratio, ci_low=one.ci_low, ci_high=one.ci_high, p_value=one.p_value, rounds=one.rounds
        )
        workload = one.workload or str(trials["workload"].iloc[0])
        found[workload, one.treatment, one.turn] = TtftRatio(interval=interval, verdict=one.verdict)
    return found
