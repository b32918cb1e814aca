"""From what is known of a run to the whole report. Pure."""

import datetime as dt

from orchestrator.report.material import Material
from orchestrator.report.parts import Absent, Report, Section
from orchestrator.report.sections.meaning import meaning_sections
from orchestrator.report.sections.record import (
    again_section,
    claims_section,
    environment_section,
    evidence_section,
    left_out_section,
)
from orchestrator.report.sections.results import (
    arms_section,
    composition_section,
    course_section,
    effects_section,
    rounds_section,
    rounds_words,
)
from orchestrator.report.verdict import verdict_lines, verdict_sentence, warnings
from orchestrator.report.words import counted


def build_report(material: Material, *, made_at: dt.datetime) -> Report:
    """Every section that has something to say, in the order of reading; the others by name, with the reason."""
    parts = [
        course_section(material),
        effects_section(material),
        rounds_section(material),
        composition_section(material),
        *meaning_sections(material),
        arms_section(material),
        evidence_section(material),
        claims_section(material),
        left_out_section(material),
        environment_section(material),
        again_section(material),
    ]
    return Report(
        title=material.run.experiment,
        about=_about(material),
        warnings=warnings(material),
        verdict=verdict_sentence(material),
        lines=verdict_lines(material),
        sections=tuple(part for part in parts if isinstance(part, Section)),
        absent=tuple(part for part in parts if isinstance(part, Absent)),
        made=(
            f"interlace report of run {material.run.run_id}, method {material.result.method_version},"
            f" made {made_at:%Y-%m-%d %H:%M} UTC"
        ),
    )


def _about(material: Material) -> tuple[str, ...]:
    run = material.run
    trials = material.trials[material.trials["kind"] == "measured"]["trial_id"].nunique()
    return (
        f"{run.created_at:%d %B %Y, %H:%M} UTC",
        run.chip or run.host,
        f"{counted(len(material.plan.arms), 'arm')}, {rounds_words(material)}, {counted(trials, 'measured trial')}",
    )
