"""The material of a report: values only, read by `orchestrator.report.loading`."""

import datetime as dt
from dataclasses import dataclass

import pandas as pd

from orchestrator.audit import AuditResult, Comparison
from orchestrator.findings.values import Findings
from orchestrator.plan import Plan
from orchestrator.report.charts.theme import Palette
from orchestrator.report.words import counted
from orchestrator.statistics.claims import Beside
from orchestrator.statistics.factorial import Factorial
from orchestrator.statistics.factors import Table
from orchestrator.vocabulary import METRICS

FINISHED = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """The run and the machine that it ran on."""

    run_id: str
    experiment: str
    status: str
    created_at: dt.datetime
    finished_at: dt.datetime | None
    seed: int
    rounds: int  # planned
    plan_sha256: str
    workload_sha256: str
    order_distribution: str
    simulated: bool
    randomised: bool
    origin: str  # interlace, or the format of the file that it was read from
    source_name: str | None
    note: str | None
    host: str
    chip: str | None
    cpu_count: int | None
    memory_bytes: int | None
    bandwidth_bytes_per_s: float | None
    bandwidth_source: str | None
    said: str  # by people: tags and a note; empty: nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRow:
    """An arm as stored. Numbers are None where they were not recorded."""

    name: str
    is_control: bool
    engine: str
    engine_version: str | None
    checkpoint: str | None
    checkpoint_source: str | None
    revision: str | None
    digest: str | None
    bits: int | None
    weights_bytes: int | None
    draft: str | None
    block_size: int | None
    temperature: float | None
    config_sha256: str
    state: str
    state_reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """One recorded set of versions, and the number of trials with it."""

    trials: int
    interlace: str
    python: str
    mlx: str | None
    mlx_lm: str | None
    os: str
    os_build: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """How often an arm's measured generations gave one kind of evidence, with an example of its text."""

    arm: str
    mechanism: str
    source: str
    requested: bool
    engaged: bool | None
    useful: bool | None
    generations: int
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmEnergy:
    """The machine's energy in an arm's trials, by a counter that was read before and after each."""

    arm: str
    joules_per_token: float  # median over trials: a whole trial's energy over all tokens of its answers
    trials: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """Everything that one report shows."""

    run: RunFacts
    plan: Plan
    arms: tuple[ArmRow, ...]  # the control first
    trials: pd.DataFrame  # rows of the view trial_flat
    result: AuditResult
    composition: tuple[Table, Factorial] | None
    claims: tuple[Beside, ...]
    findings: Findings
    versions: tuple[Versions, ...]
    signs: tuple[Sign, ...]
    revisions: tuple[str, ...] = ()  # comparisons that an earlier version of the method decided otherwise
    caches_unknown: tuple[str, ...] = ()  # arms whose servers never report cached prompt tokens
    energy: tuple[ArmEnergy, ...] = ()  # empty: this machine's counter cannot be read

    @property
    def overall(self) -> tuple[Comparison, ...]:
        """Return the comparisons over all prompts and turns."""
        return tuple(one for one in self.result.comparisons if one.over_all)

    @property
    def treatments(self) -> tuple[str, ...]:
        return tuple(one.treatment for one in self.overall)


def palette_of(material: Material) -> Palette:
    control = material.result.control
    return Palette(control=control, arms=tuple(arm.name for arm in material.plan.arms if arm.name != control))


def rounds_of(material: Material) -> int:
    """Return the largest number of complete rounds of any comparison."""
    return max((one.rounds for one in material.overall), default=0)


def rounds_words(material: Material) -> str:
    return counted(rounds_of(material), "complete round") if material.run.randomised else "no rounds"


def metric_words(material: Material) -> str:
    return METRICS[material.result.metric].words
