"""Builds the document of a run from its material: an audit, or a whole report. Pure."""

import datetime as dt
from collections.abc import Iterable
from dataclasses import replace

from orchestrator.report.answer import next_commands, verdict_lines
from orchestrator.report.document import Absent, Document, Fork, Section
from orchestrator.report.material import Material, RunFacts, rounds_words
from orchestrator.report.sections.arm_numbers import arms_section, composition_section, notes_section
from orchestrator.report.sections.ceiling import ceiling_section
from orchestrator.report.sections.depth import depth_sections
from orchestrator.report.sections.effect_sizes import effects_section
from orchestrator.report.sections.later_turns import turns_section
from orchestrator.report.sections.record import (
    again_section,
    claims_section,
    environment_section,
    evidence_section,
    left_out_section,
)
from orchestrator.report.sections.round_lines import rounds_section
from orchestrator.report.sections.run_course import course_section
from orchestrator.report.sections.same_answers import losslessness_section
from orchestrator.report.sections.speculation import sampling_section, widths_section
from orchestrator.report.verdict import verdict_sentence
from orchestrator.report.warnings import warnings
from orchestrator.report.words import counted, local_time

Part = Section | Absent


def build_report(material: Material, *, made_at: dt.datetime) -> Document:
    """Build every section with content, in the order of reading; the others appear by name, with the reason."""
    parts: list[Part] = [
        course_section(material),
        effects_section(material),
        notes_section(material),
        rounds_section(material),
        composition_section(material),
        *_meaning(material),
        arms_section(material),
        evidence_section(material),
        claims_section(material),
        left_out_section(material),
        environment_section(material),
        again_section(material),
    ]
    made = (
        f"interlace report of run {material.run.run_id}, method {material.result.method_version},"
        f" made {made_at:%Y-%m-%d %H:%M} UTC"
    )
    absent = tuple(part for part in parts if isinstance(part, Absent))
    return replace(_said(material, parts), about=_about(material), absent=absent, made=made)


def build_answer(material: Material, *, claims_asked: bool = False) -> Document:
    """Build the screen after a run: the verdict, a line or two per arm, and the next commands.

    Args:
        claims_asked: show the published claims beside it.
    """
    claims = claims_section(material) if claims_asked else None
    parts = [] if claims is None else [claims]
    absent = tuple(part for part in parts if isinstance(part, Absent))
    return replace(_said(material, parts), about=_about_answer(material), absent=absent)


def build_audit(material: Material, *, claims_asked: bool = False) -> Document:
    """Build what a person reads after a run: the report's words without the evidence behind them.

    Args:
        claims_asked: whether to report that no claim is about a contrast of the run.
    """
    claims = claims_section(material)
    parts: list[Part] = [
        effects_section(material),
        course_section(material),
        arms_section(material),
        composition_section(material),
        *_meaning(material),
        notes_section(material),
        claims,
    ]
    absent = (claims,) if claims_asked and isinstance(claims, Absent) else ()
    asked = claims if claims_asked else None
    sections = [part if part is asked else _brief(part) for part in parts if isinstance(part, Section)]
    return replace(_said(material, sections), about=_about_answer(material), absent=absent)


def _meaning(material: Material) -> tuple[Part, ...]:
    """Return the parts on what the numbers mean."""
    return (
        losslessness_section(material.findings.losslessness),
        widths_section(material),
        ceiling_section(material),
        *depth_sections(material),
        turns_section(material),
        sampling_section(material),
    )


def _said(material: Material, parts: Iterable[Part]) -> Document:
    return Document(
        title=material.run.experiment,
        about=(),
        warnings=warnings(material),
        verdict=verdict_sentence(material),
        lines=verdict_lines(material),
        commands=next_commands(material),
        sections=tuple(part for part in parts if isinstance(part, Section)),
    )


def _brief(section: Section) -> Section:
    """Shorten a section for an audit: without its extra tables, and with the first fork of each arm only."""
    first: dict[str, Fork] = {}
    for fork in section.forks:
        first.setdefault(fork.arm_name, fork)
    return replace(section, grids=tuple(grid for grid in section.grids if not grid.extra), forks=tuple(first.values()))


def _about_answer(material: Material) -> tuple[str, ...]:
    run = material.run
    return (local_time(run.created_at), run.chip or run.host, f"run {run.run_id}", *_said_by_people(run))


def _about(material: Material) -> tuple[str, ...]:
    run = material.run
    trials = material.trials[material.trials["kind"] == "measured"]["trial_id"].nunique()
    return (
        local_time(run.created_at),
        run.chip or run.host,
        f"{counted(len(material.plan.arms), 'arm')}, {rounds_words(material)}, {counted(trials, 'measured trial')}",
        *_said_by_people(run),
    )


def _said_by_people(run: RunFacts) -> tuple[str, ...]:
    return (run.said,) if run.said else ()
