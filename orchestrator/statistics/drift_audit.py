"""The audit of a run whose order was not drawn at random, such as another tool's. Pure: rows in, verdicts out.

No exchange of labels is justified there, so there is no p-value and no interval, and nothing is ever supported. The
verdict is the first of these that applies:

    not_engaged      a generation that requested a mechanism lacks the evidence that it ran, in either arm
    underpowered     an arm has no trial with the metric
    confounded       the arms had no prompt in common, or prompts or answers of other lengths
    could_be_drift   otherwise, with the drift that would explain the difference, beside what the control shows
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from orchestrator.statistics.comparability import Asked, EvidenceTable, Reason, Scope
from orchestrator.statistics.findings import AuditResult, Comparison, summarise
from orchestrator.statistics.observations import arm_summaries, arms_in_order, check, scopes_of
from orchestrator.statistics.unrandomised import PLACED, UNTIMED, explain_by_drift, explain_by_order

LENGTHS_APART = 0.05  # share by which the lengths of two arms' prompts or answers may differ
NOT_DRAWN = "the order was not drawn at random: each difference is shown with the drift that would explain it"
_ASKED = ["prompt_id", "turn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weighed:
    verdict: str
    ratio: float | None
    reasons: tuple[Reason, ...]


def audit_by_drift(
    trials: pd.DataFrame, *, control: str, metric: str, alpha: float, margin: float, seed: int, method_version: str
) -> AuditResult:
    """Judge a run that was not randomised.

    Args:
        trials: the rows of `StoredRun.trials`.

    Raises:
        ValueError: a column is missing, the metric is unknown, or the control is no arm of the run.
    """
    check(trials, metric)
    arms = arms_in_order(trials)
    if control not in arms:
        raise ValueError(f"control {control!r}: no such arm in the run; it has {arms}")
    rows = _rows(trials, metric)
    evidence = EvidenceTable.read(rows)
    treatments = [arm for arm in arms if arm != control]
    comparisons = tuple(
        _compare(rows, evidence, scope, treatment, control, metric)
        for treatment in treatments
        for scope in scopes_of(rows[rows["usable"]])
    )
    return AuditResult(
        method_version=method_version,
        control=control,
        metric=metric,
        alpha=alpha,
        margin=margin,
        seed=seed,
        comparisons=comparisons,
        waits=(),
        floors=(),
        best=(),
        carry_over=None,
        arms=arm_summaries(rows, [control, *treatments]),
        drift=None,
        drift_reason=NOT_DRAWN,
        summary=summarise(comparisons, None, metric),
    )


def _rows(trials: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The measured rows in their order, with `label`, `usable`, and log `y` where it was measured."""
    rows = trials[trials["kind"] == "measured"]
    value = rows[metric].astype("float64")
    usable = np.isfinite(value) & (value > 0) & (rows["status"] == "done").astype(bool) & rows["excluded_reason"].isna()
    rows = rows.assign(label=rows["arm"].astype(object), usable=usable, y=np.log(value.where(usable, np.nan)))
    return rows.sort_values("sequence", kind="stable")


def _compare(
    rows: pd.DataFrame, evidence: EvidenceTable, scope: Scope, treatment: str, control: str, metric: str
) -> Comparison:
    ran = evidence.engagement(treatment, scope)
    control_ran = evidence.engagement(control, scope)
    found = _weigh(rows, scope, treatment, control, metric)
    verdict = found.verdict
    reasons = found.reasons
    if idle := (*ran.reasons, *control_ran.reasons):
        verdict, reasons = "not_engaged", (*idle, *found.reasons)
    return Comparison(
        treatment=treatment,
        control=control,
        workload=scope.workload,
        prompt_class=scope.prompt_class,
        turn=scope.turn,
        metric=metric,
        verdict=verdict,
        direction=None,
        ratio=found.ratio,
        ci_low=None,
        ci_high=None,
        p_value=None,
        family_p=None,
        rounds=0,
        wins=None,
        aa_ratio=None,
        aa_low=None,
        aa_high=None,
        engaged_share=ran.share,
        included=None,
        reasons=(*reasons, *ran.notes, *control_ran.notes),
    )


def _weigh(rows: pd.DataFrame, scope: Scope, treatment: str, control: str, metric: str) -> _Weighed:
    used = rows[rows["usable"]]
    used = used[Asked.read(used).within(scope)]
    used = used[used["label"].isin([treatment, control])]
    for arm in (treatment, control):
        if not (used["label"] == arm).any():
            reason = Reason(code="not_measured", text=f"{arm}: no trial with {metric}")
            return _Weighed(verdict="underpowered", ratio=None, reasons=(reason,))
    shared = _on_shared_prompts(used, treatment, control)
    if shared.empty:
        reason = Reason(code="no_prompt_in_common", text=f"{treatment} and {control}: no prompt in common")
        return _Weighed(verdict="confounded", ratio=None, reasons=(reason,))
    ratio, reason = _explained(shared, control)
    reasons = (reason, *_times(shared))
    if unequal := tuple(_unequal(shared, treatment, control, metric)):
        return _Weighed(verdict="confounded", ratio=ratio, reasons=(*unequal, *reasons))
    return _Weighed(verdict="could_be_drift", ratio=ratio, reasons=reasons)


def _on_shared_prompts(used: pd.DataFrame, treatment: str, control: str) -> pd.DataFrame:
    """The rows of prompts that both arms had."""
    asked = pd.MultiIndex.from_frame(used[_ASKED].astype(object))
    both = [set(asked[(used["label"] == arm).to_numpy()]) for arm in (treatment, control)]
    return used[asked.isin(list(both[0] & both[1]))]


def _explained(shared: pd.DataFrame, control: str) -> tuple[float, Reason]:
    """Explain by values relative to the control's median of the same prompt, so that prompts can be pooled."""
    levels = shared[shared["label"] == control].groupby(_ASKED)["y"].median()
    level = levels.reindex(pd.MultiIndex.from_frame(shared[_ASKED])).to_numpy(dtype=np.float64)
    values = pd.DataFrame(
        {
            "arm": shared["label"].astype(str),
            "value": np.exp(shared["y"].to_numpy(dtype=np.float64) - level),
            "started_at": shared["started_at"],
            "sequence": shared["sequence"],
        }
    )
    if _flagged(shared, UNTIMED):
        (by_order,) = explain_by_order(values, control=control)
        return by_order.ratio, Reason(code="not_randomised", text=by_order.text)
    (by_time,) = explain_by_drift(values, control=control)
    return by_time.ratio, Reason(code="not_randomised", text=by_time.text)


def _times(shared: pd.DataFrame) -> Iterator[Reason]:
    if _flagged(shared, UNTIMED):
        yield Reason(code="no_times", text="the trials have no times of their own: drift is given per trial")
    elif _flagged(shared, PLACED):
        text = "the trials have no times of their own: they were placed one after the other, pauses left out"
        yield Reason(code="times_placed", text=text)


def _flagged(rows: pd.DataFrame, flag: str) -> bool:
    return any(isinstance(flags, Sequence) and flag in flags for flags in rows.get("flags", ()))


def _unequal(shared: pd.DataFrame, treatment: str, control: str, metric: str) -> Iterator[Reason]:
    """Compare the lengths that both arms' rows record, by the median of each prompt."""
    checked = {"prompt_tokens": "prompt token counts differ"}
    if metric == "end_to_end_tps":
        checked["completion_tokens"] = "completion token counts differ"
    for column, words in checked.items():
        medians = shared.assign(value=shared[column].astype("float64")).groupby(["label", *_ASKED])["value"].median()
        ours, theirs = (medians.xs(arm, level="label") for arm in (treatment, control))
        apart = (ours - theirs).abs() > LENGTHS_APART * np.maximum(ours, theirs)
        if apart.any():
            at = int(np.argmax(apart.to_numpy()))
            sides = f"{ours.iloc[at]:g} against {theirs.iloc[at]:g}"
            text = f"{words} for {int(apart.sum())} prompts: {sides} for {ours.index[at][0]}"
            yield Reason(code=f"{column}_differ", text=text)
