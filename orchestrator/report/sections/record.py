"""The record behind the numbers: evidence, published claims, excluded trials, the machine, how to run it again."""

import shlex
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from orchestrator.report.document import Absent, Cell, Grid, Section
from orchestrator.report.material import Material, Sign
from orchestrator.report.sections.arm_numbers import included_words
from orchestrator.report.sections.effect_sizes import verdict_cell
from orchestrator.report.words import MISSING, count, counted, listed, percent, shortened, size, span, times
from orchestrator.statistics.claims import Beside
from orchestrator.vocabulary import VERDICTS

EXAMPLE_CHARACTERS = 300
MOST_LEFT_OUT = 30
SHORT = 12  # characters of a hash
NOT_RECORDED = "not recorded"


# ---- evidence ----


def evidence_section(material: Material) -> Section | Absent:
    """Build the section on requested, engaged and useful mechanisms, with their signs."""
    title = "Did the mechanism run?"
    if not material.signs:
        return Absent(title=title, reason="no evidence is stored for a measured generation")
    rows = tuple(
        (
            sign.arm,
            sign.mechanism,
            _flag(sign.requested),
            _flag(sign.engaged, wanted=sign.requested),
            _flag(sign.useful, wanted=sign.requested),
            count(sign.generations),
            sign.source,
            Cell(text=shortened(sign.example, EXAMPLE_CHARACTERS), code=True),
        )
        for sign in material.signs
    )
    columns = ("arm", "mechanism", "requested", "engaged", "useful", "generations", "source", "for example")
    return Section(
        key="evidence",
        title=title,
        lead=_evidence_lead(material.signs),
        grids=(Grid(columns=columns, rows=rows, numeric=frozenset((5,)), below=frozenset((6, 7))),),
    )


def _evidence_lead(signs: Sequence[Sign]) -> str:
    asked = [sign for sign in signs if sign.requested]
    total = sum(sign.generations for sign in asked)
    if not total:
        return "No arm asked for a mechanism: all decoded plainly, and no evidence contradicts it."
    ran = sum(sign.generations for sign in asked if sign.engaged)
    useful = sum(sign.generations for sign in asked if sign.useful)
    return (
        f"A mechanism was requested for {counted(total, 'measured generation')}: {percent(ran / total)} show that it"
        f" ran, {percent(useful / total)} that it was useful."
    )


def _flag(value: bool | None, *, wanted: bool | None = None) -> Cell:
    if value is None:
        return Cell(text="unknown", tone="doubt")
    tone = None if wanted is None else ("good" if value else "bad") if wanted else ("bad" if value else None)
    return Cell(text="yes" if value else "no", tone=tone)


# ---- claims ----


def claims_section(material: Material) -> Section | Absent:
    """Build the section on published figures about the same contrasts."""
    title = "Compared with published figures"
    if not material.claims:
        return Absent(title=title, reason="no stored claim is about a contrast that this run measured")
    near = [pair for pair in material.claims if pair.comparable]
    far = [pair for pair in material.claims if not pair.comparable]
    grids = [_claims_grid(near)] if near else []
    if far:
        caption = "Published figures for other machines or models"
        grids.append(replace(_claims_grid(far), caption=caption, folded=True, extra=True))
    same = "" if near else "No published figure is about this chip and model. "
    lead = f"{same}If a condition differs, neither figure refutes the other."
    return Section(key="claims", title=title, lead=lead, grids=tuple(grids))


def _claims_grid(pairs: Sequence[Beside]) -> Grid:
    columns = ("claim", "here", "claimed", "measured", "verdict", "so", "source", "differs (claimed against measured)")
    rows = tuple(_claim_row(pair) for pair in pairs)
    return Grid(columns=columns, rows=rows, numeric=frozenset((2, 3)), below=frozenset((5, 6, 7)))


def _claim_row(pair: Beside) -> tuple[str | Cell, ...]:
    interval = "" if pair.ci_low is None else f" ({span(pair.ci_low, pair.ci_high)})"
    return (
        f"{pair.claim.statement} ({pair.claim.name})",
        f"{pair.treatment} against {pair.control}",
        _claimed(pair),
        f"{times(pair.ratio)}{interval}",
        MISSING if pair.verdict is None else verdict_cell(pair.verdict),
        _stands(pair),
        pair.claim.source,
        "; ".join(pair.differs) or "no recorded condition",
    )


def _claimed(pair: Beside) -> str:
    low, high = pair.claim.low, pair.claim.high
    if low is None or high is None:
        return f"up to {times(high)}" if low is None else times(low)
    return times(low) if low == high else f"{times(low)} to {times(high)}"


def _stands(pair: Beside) -> Cell:
    if pair.stands == "unusable" and pair.verdict is not None:
        verdict = VERDICTS[pair.verdict]
        return Cell(text=f"no figure to compare: the comparison is {verdict.words}", tone="bad")
    words = {
        "agrees": ("the interval holds the claim", "good"),
        "below": ("below the claim", "doubt"),
        "above": ("above the claim", "doubt"),
        "undecided": ("no interval to decide by", "muted"),
    }
    text, tone = words[pair.stands]
    return Cell(text=text, tone=tone)


# ---- what was left out ----


def left_out_section(material: Material) -> Section | Absent:
    """Build the section on trials that the verdict does not use, with the reasons."""
    title = "Trials left out, and why"
    trials = material.trials.drop_duplicates("trial_id")
    out = trials[
        trials["kind"].isin(["measured", "bracket"])
        & ((trials["status"] != "done") | trials["excluded_reason"].notna())
    ]
    warmups = int(trials["kind"].isin(["warmup", "preflight"]).sum())
    note = f"{counted(warmups, 'warm-up trial')} stored and left out by design." if warmups else ""
    if out.empty:
        return Absent(title=title, reason=f"every measured trial was used. {note}".strip())
    rows = tuple(_left_out_row(row) for row in out.head(MOST_LEFT_OUT).to_dict("records"))
    columns = ("arm", "round", "state", "why", "said")
    grid = Grid(columns=columns, rows=rows, numeric=frozenset((1,)), below=frozenset((4,)))
    lines = [note] if note else []
    if len(out) > MOST_LEFT_OUT:
        lines.append(f"The first {MOST_LEFT_OUT} of {len(out)}.")
    for one in material.overall:
        if one.included is not None:
            lines.append(f"{included_words(one)}.")
    lead = f"{counted(len(out), 'trial')} left out by rules that were set before the run, never by a trial's own speed."
    return Section(
        key="left-out",
        title=title,
        lead=lead,
        grids=(grid,),
        lines=tuple(lines),
    )


def _left_out_row(row: "Mapping[Hashable, Any]") -> tuple[str | Cell, ...]:
    why = row["error_kind"] if not pd.isna(row["error_kind"]) else row["excluded_reason"]
    said = row["error_message"]
    return (
        str(row["arm"]),
        MISSING if pd.isna(row["round"]) else str(int(str(row["round"])) + 1),
        Cell(text=str(row["status"]), tone="bad" if row["status"] == "invalid" else "doubt"),
        MISSING if pd.isna(why) else str(why).replace("_", " "),
        Cell(text="" if pd.isna(said) else shortened(str(said), EXAMPLE_CHARACTERS), code=True),
    )


# ---- environment ----


def environment_section(material: Material) -> Section:
    """Build the section on the machine, the versions and the arms' weights."""
    run = material.run
    machine = Grid(columns=("machine", ""), rows=tuple(_machine_rows(material)))
    versions = Grid(
        columns=("trials", "interlace", "Python", "MLX", "mlx-lm", "system"),
        rows=tuple(
            (
                count(each.trials),
                each.interlace,
                each.python,
                each.mlx or NOT_RECORDED,
                each.mlx_lm or NOT_RECORDED,
                f"{each.os}, {each.os_build}" if each.os_build else each.os,
            )
            for each in material.versions
        ),
        numeric=frozenset((0,)),
    )
    lead = None
    if len(material.versions) > 1:
        lead = "More than one set of versions ran: arms with environments of their own, or an update in the middle."
    return Section(
        key="environment",
        title="Where it ran",
        lead=lead,
        grids=(machine, *((versions,) if material.versions else ()), _arms_grid(material)),
        lines=() if run.note is None else (f"Note of the run: {run.note}",),
    )


def _machine_rows(material: Material) -> Iterable[tuple[str | Cell, ...]]:
    run, trials = material.run, material.trials
    yield "host", run.host
    yield "chip", run.chip or NOT_RECORDED
    yield "cores", count(run.cpu_count)
    yield "memory", size(run.memory_bytes)
    if run.bandwidth_bytes_per_s is not None:
        yield (
            "memory bandwidth",
            f"{size(run.bandwidth_bytes_per_s)}/s ({run.bandwidth_source or 'source not recorded'})",
        )
    else:
        yield "memory bandwidth", f"unknown: {run.bandwidth_source or NOT_RECORDED}"
    yield "power source", _values(trials["power_source"], trials["power_reason"])
    yield "power mode", _values(trials["power_mode"], None)
    yield "nice value", _values(trials["nice"], None)
    yield "lid", _values(trials["lid"], None)
    yield "display", _values(trials["display"], None)
    yield "thermal level (highest of a trial)", _values(trials["thermal_max"], trials["thermal_reason"])


def _values(values: "pd.Series[Any]", reasons: "pd.Series[Any] | None") -> str:
    known = [str(value) for value in values.dropna().drop_duplicates()]
    if known:
        return ", ".join(sorted(known))
    stated = [] if reasons is None else [str(reason) for reason in reasons.dropna().drop_duplicates()]
    return f"{NOT_RECORDED}{': ' + stated[0] if stated else ''}"


def _arms_grid(material: Material) -> Grid:
    rows = tuple(
        (
            f"{arm.name} (control)" if arm.is_control else arm.name,
            f"{arm.engine} {arm.engine_version or ''}".strip(),
            arm.checkpoint or NOT_RECORDED,
            count(arm.bits),
            size(arm.weights_bytes),
            arm.draft or MISSING,
            count(arm.block_size),
            MISSING if arm.temperature is None else f"{arm.temperature:g}",
            Cell(text=(arm.digest or NOT_RECORDED)[:40], code=True),
            Cell(text=arm.config_sha256[:SHORT], code=True),
        )
        for arm in material.arms
    )
    columns = (
        "arm",
        "engine",
        "checkpoint",
        "bits",
        "weights",
        "draft",
        "width",
        "temperature",
        "digest of the weights",
        "configuration",
    )
    return Grid(columns=columns, rows=rows, numeric=frozenset((3, 4, 6, 7)), below=frozenset((8, 9))).without_empty()


# ---- again ----


def again_section(material: Material) -> Section:
    """Build the section on how to run it and judge it again."""
    run, plan = material.run, material.plan
    title = "Run it again"
    rows = (
        ("run", Cell(text=run.run_id, code=True)),
        ("plan (SHA-256)", Cell(text=run.plan_sha256, code=True)),
        ("prompts (SHA-256)", Cell(text=run.workload_sha256, code=True)),
        ("seed of the orders", Cell(text=str(run.seed), code=True)),
        ("orders drawn from", run.order_distribution if run.randomised else "not drawn"),
        ("planned by", f"interlace {plan.interlace_version}"),
        ("prompts", f"{len(plan.prompts)} of {listed(list(dict.fromkeys(each.workload for each in plan.prompts)))}"),
        ("rounds, interleaved by", f"{plan.design.rounds}, {plan.design.interleave_by}"),
    )
    grid = Grid(columns=("", ""), rows=rows)
    if run.origin != "interlace":
        lead = f"The results were read from {run.source_name or 'a file'} ({run.origin}); interlace did not run them."
        return Section(key="again", title=title, lead=lead, grids=(grid,))
    command = shlex.join(["interlace", "run", *plan.command])
    code = f"{command}\ninterlace audit {run.run_id}\ninterlace report {run.run_id} -o report.html"
    lead = "The same command on the same versions draws the same orders; the verdict follows from the stored trials."
    return Section(key="again", title=title, lead=lead, grids=(grid,), code=code, lines=tuple(plan.notes))
