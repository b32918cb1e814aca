"""Comparison of measured results with published claims, with the conditions that differ. Pure.

A claim is about a contrast: what differs between its two sides (speculation, bits, block_size, draft, engine), or the
machine's drift. A comparison is set beside every claim about the same contrast. Claims are written in one direction, to
speculation, to fewer bits and to the wider block; a comparison that goes the other way is turned round.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.statistics.findings import AuditResult, Comparison
from orchestrator.vocabulary import VERDICTS

DRIFT = "drift"
UNKNOWN = "unknown"

_ABOUT = ("hardware", "checkpoint")  # of a claim's conditions


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """See conf.schema.ClaimConfig."""

    name: str
    statement: str
    factors: tuple[str, ...]
    metric: str
    low: float | None
    high: float | None
    prompt_class: str | None
    turn: int | None
    source: str  # document, revision, date
    conditions: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFacts:
    """The recorded settings that distinguish one arm from another."""

    engine: str
    speculates: bool
    bits: int | None
    block_size: int | None
    draft: str | None
    checkpoint: str
    temperature: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """A claim and a measurement of the same contrast."""

    claim: Claim
    treatment: str
    control: str
    ratio: float  # in the claim's direction
    ci_low: float | None
    ci_high: float | None
    verdict: str | None  # None: a drift, which is no comparison of arms
    stands: str  # agrees | below | above | undecided | unusable: the verdict forbids to read the ratio
    differs: tuple[str, ...]  # "hardware: Apple M4 Max against Apple M5 Pro", claimed first
    comparable: bool  # about this chip and model; else the two figures have little to do with each other


def claim_of(values: Mapping[str, Any]) -> Claim:
    """Convert a composed claim to a value."""
    source = values["source"]
    return Claim(
        name=values["name"],
        statement=values["statement"],
        factors=tuple(values["factors"]),
        metric=values["metric"],
        low=values["low"],
        high=values["high"],
        prompt_class=values["prompt_class"],
        turn=values["turn"],
        source=f"{source['document']} ({source['revision']}, {source['date']})",
        conditions=values["conditions"],
    )


def contrast(treatment: ArmFacts, control: ArmFacts) -> frozenset[str]:
    """Return the settings that differ between two arms."""
    found = set()
    if treatment.speculates != control.speculates:
        found.add("speculation")
    elif treatment.engine != control.engine:
        found.add("engine")
    if treatment.bits != control.bits:
        found.add("bits")
    if treatment.speculates and control.speculates:
        found |= {"block_size"} if treatment.block_size != control.block_size else set()
        found |= {"draft"} if treatment.draft != control.draft else set()
    return frozenset(found)


def beside(
    result: AuditResult, claims: Iterable[Claim], *, arms: Mapping[str, ArmFacts], conditions: Mapping[str, str]
) -> tuple[Beside, ...]:
    """Every pair of a claim and a comparison about the same contrast.

    Args:
        arms: facts of every arm of the run, by name.
        conditions: what the whole run shares: hardware, mlx_version, workload, max_tokens, concurrency, ...
    """
    found: list[Beside] = []
    for claim in claims:
        if claim.factors == (DRIFT,):
            control = arms.get(result.control)
            own = {} if control is None else _arm_conditions(control, control)
            found += _drift_beside(result, claim, dict(conditions) | own)
            continue
        for one in result.comparisons:
            if (pair := _pair(claim, one, arms, conditions)) is not None:
                found.append(pair)
    return tuple(found)


def _pair(claim: Claim, one: Comparison, arms: Mapping[str, ArmFacts], conditions: Mapping[str, str]) -> Beside | None:
    same_question = (one.metric, one.prompt_class, one.turn) == (claim.metric, claim.prompt_class, claim.turn)
    one_workload = one.workload is not None and one.turn is None  # a turn is always some workload's
    if not same_question or one_workload or one.ratio is None:
        return None
    treatment, control = arms[one.treatment], arms[one.control]
    if contrast(treatment, control) != set(claim.factors):
        return None
    direction = _direction(treatment, control, claim.factors)
    if direction is None:
        return None
    if direction > 0:
        ratio, low, high, first, last = one.ratio, one.ci_low, one.ci_high, control, treatment
    else:
        ratio, first, last = 1 / one.ratio, treatment, control
        low, high = _inverse(one.ci_high), _inverse(one.ci_low)
    measured = dict(conditions) | _arm_conditions(first, last)
    return Beside(
        claim=claim,
        treatment=one.treatment,
        control=one.control,
        ratio=ratio,
        ci_low=low,
        ci_high=high,
        verdict=one.verdict,
        stands=_stands(claim, low, high) if VERDICTS[one.verdict].usable else "unusable",
        differs=_differs(claim.conditions, measured),
        comparable=_comparable(claim.conditions, measured),
    )


def _drift_beside(result: AuditResult, claim: Claim, conditions: Mapping[str, str]) -> list[Beside]:
    if result.drift is None:
        return []
    return [
        Beside(
            claim=claim,
            treatment=f"{result.control}, last control run",
            control=f"{result.control}, first control run",
            ratio=1 + result.drift,
            ci_low=None,
            ci_high=None,
            verdict=None,
            stands="undecided",
            differs=_differs(claim.conditions, conditions),
            comparable=_comparable(claim.conditions, conditions),
        )
    ]


def _direction(treatment: ArmFacts, control: ArmFacts, factors: Sequence[str]) -> int | None:
    """+1 when the comparison goes the way that claims are written, -1 when against it, None when mixed."""
    steps = {
        "speculation": int(treatment.speculates) - int(control.speculates),
        "bits": (control.bits or 0) - (treatment.bits or 0),
        "block_size": (treatment.block_size or 0) - (control.block_size or 0),
    }
    signs = {1 if steps[factor] > 0 else -1 for factor in factors if factor in steps}
    return signs.pop() if len(signs) == 1 else (None if signs else 1)


def _inverse(value: float | None) -> float | None:
    return None if value is None else 1 / value


def _stands(claim: Claim, low: float | None, high: float | None) -> str:
    """Return where the measured interval lies relative to the claimed range."""
    if low is None or high is None:
        return "undecided"
    if claim.high is not None and low > claim.high:
        return "above"
    if claim.low is not None and high < claim.low:
        return "below"
    return "agrees"


def _arm_conditions(first: ArmFacts, last: ArmFacts) -> dict[str, str]:
    """Each condition as one value, or as "from -> to" where the two sides differ."""
    values = {
        "engine": (first.engine, last.engine),
        "checkpoint": (first.checkpoint, last.checkpoint),
        "bits": (first.bits, last.bits),
        "block_size": (first.block_size, last.block_size),
        "temperature": (first.temperature, last.temperature),
    }
    return {name: _levels(*pair) for name, pair in values.items()}


def _levels(first: object, last: object) -> str:
    known = [
        UNKNOWN if value is None else f"{value:g}" if isinstance(value, float) else str(value)
        for value in (first, last)
    ]
    if known[0] == UNKNOWN:
        return known[1]  # plain decoding has no block size: the speculative side's counts
    return known[0] if known[0] == known[1] else f"{known[0]} -> {known[1]}"


def _differs(claimed: Mapping[str, str], measured: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        f"{name}: {value} against {measured.get(name, UNKNOWN)}"
        for name, value in claimed.items()
        if value.strip().lower() != measured.get(name, UNKNOWN).strip().lower()
    )


def _comparable(claimed: Mapping[str, str], measured: Mapping[str, str]) -> bool:
    """Return whether the claimed chip and model, as far as they are stated, are those of the run."""
    stated = [(claimed[name].split(",")[0], measured.get(name, UNKNOWN)) for name in _ABOUT if name in claimed]
    return all(_plain(claim) in _plain(here) for claim, here in stated)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower())
