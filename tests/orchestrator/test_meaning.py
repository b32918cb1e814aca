"""Findings of whole runs on simulated machines: the source article's situation, reported in every format."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.findings.values import Figure
from orchestrator.report.building import build_audit, build_report
from orchestrator.report.document import Section as ReportSection
from orchestrator.report.render_json import audit_values, render_json
from orchestrator.report.render_markdown import render_markdown
from orchestrator.report.sections.same_answers import losslessness_section
from orchestrator.report.sections.speculation import widths_section
from tests.orchestrator.meanings import Told, article_plan, run
from tests.orchestrator.plans import arm, plan, prompt


@pytest.fixture(scope="module")
def article(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return run(article_plan(), tmp_path_factory.mktemp("article"))


def test_the_engine_that_wins_short_prompts_and_loses_the_second_turn_is_no_winner(article: Told) -> None:
    by_scope = {one.scope.words: one for one in article.result.comparisons}
    assert by_scope["quick"].direction == "faster"
    assert by_scope["quick"].ratio == pytest.approx(1.37, abs=0.05)
    assert by_scope["two_turns, turn 2"].direction == "slower"
    assert by_scope["over all"].direction is None
    assert by_scope["two_turns"].direction is None  # its first turn is faster
    found = article.findings.recommendation
    assert found.disagree
    assert found.sentence.startswith("It depends on the work: dflash for quick (1.3")
    assert "mtp for two_turns, turn 2" in found.sentence
    for text in (article.result.summary, found.sentence, article.terminal()):
        assert "dflash is" not in text
    assert article.result.best[0].arms == ()


def test_the_second_turn_is_described_by_its_time_its_counter_and_its_new_tokens(article: Told) -> None:
    mtp, dflash = article.findings.turns
    assert (mtp.arm, dflash.arm) == ("mtp", "dflash")
    lost, kept = dflash.turns[1], mtp.turns[1]
    assert lost.ttft_ratio is not None
    assert lost.ttft_ratio.ratio > 10  # an order of magnitude, whatever the design's metric
    assert lost.ttft_ratio.ci_low is not None
    assert lost.ttft_ratio.ci_low > 10
    assert lost.verdict == "supported"
    assert lost.cached_tokens.value == 0.0
    assert kept.cached_tokens.value is not None
    assert kept.cached_tokens.value > 600
    assert kept.new_tokens.value == kept.prompt_tokens - kept.cached_tokens.value  # type: ignore[operator]  # known
    assert dflash.flags == ("prefix_lost",)
    assert mtp.flags == ()
    # The prefill rate is of new tokens only: it does not jump where most were cached.
    assert kept.prefill_tps.value == pytest.approx(mtp.turns[0].prefill_tps.value, rel=0.2)


def test_the_late_turn_stands_in_the_answer_in_every_format(article: Told) -> None:
    text = " ".join(article.terminal().split())
    assert text.index("late: turn 2 of two_turns starts ") > text.index("treatment over control")
    assert "times as late with dflash as with mtp, 0 of" in text
    assert "- **! late**: turn 2 of two" in render_markdown(build_audit(article.material), images=None)
    for said in (
        build_audit(article.material),
        build_report(article.material, made_at=article.material.run.created_at),
    ):
        assert [line.verdict for line in said.lines if line.sentence.startswith("turn 2")] == ["late"]


def test_the_drift_is_drawn_for_all_arms_alike(article: Told) -> None:
    lines = {line.label: line.values for line in article.findings.speed_by_round}
    assert list(lines) == ["mtp", "A/A", "dflash"]
    for values in lines.values():
        assert values[0] is not None
        assert values[-1] is not None
        assert values[0] > 1.1 > 0.9 > values[-1]


def test_greedy_answers_are_alike(article: Told) -> None:
    found = article.findings.losslessness
    assert found is not None
    assert [(one.arm, one.identical, one.differs, one.deterministic) for one in found.arms] == [
        ("mtp", 4, 0, True),
        ("dflash", 4, 0, True),
    ]


def test_a_simulated_run_has_no_ceiling(article: Told) -> None:
    assert article.findings.ceilings == ()
    assert "simulated" in article.findings.notes[0]


@pytest.mark.parametrize(("width", "encoding"), [(80, "utf-8"), (80, "ascii"), (120, "utf-8"), (50, "utf-8")])
def test_the_terminal_shows_it_within_its_width(article: Told, width: int, encoding: str) -> None:
    shown = article.terminal(width=width, encoding=encoding)
    assert max(len(line) for line in shown.splitlines() if " interlace " not in line) <= width
    assert "\x1b" not in shown  # piped: no colours
    for words in (
        "It depends on the work",
        "speed by round",
        "Are the arms' answers the same?",
        "Turns of two_turns",
        "Drift of the run",
    ):
        assert words in shown
    assert ("●" in shown) == (encoding == "utf-8")


def test_json_and_markdown_carry_the_same_findings(article: Told) -> None:
    body = json.loads(render_json(audit_values(article.material)))
    assert body["run_id"] == article.run_id
    assert body["findings"]["recommendation"]["sentence"] == article.findings.recommendation.sentence
    assert body["findings"]["turns"][1]["turns"][1]["cached_tokens"]["value"] == 0.0
    text = render_markdown(build_audit(article.material), images=None)
    assert "It depends on the work" in text
    assert "| dflash | 1 |" in text
    assert "Turns of two\\_turns" in text


def test_an_audit_says_nothing_that_the_report_does_not_say(article: Told) -> None:
    """One document: the report has more sections, and the same words in those that both have."""
    audit = build_audit(article.material)
    report = build_report(article.material, made_at=article.material.run.created_at)
    assert (audit.title, audit.warnings, audit.verdict, audit.lines) == (
        report.title,
        report.warnings,
        report.verdict,
        report.lines,
    )
    by_key = {section.key: section for section in report.sections}
    for section in audit.sections:
        whole = by_key[section.key]
        assert (section.title, section.lead, section.lines) == (whole.title, whole.lead, whole.lines)
        assert set(section.grids) <= set(whole.grids)
        assert set(section.forks) <= set(whole.forks)


def test_what_a_name_holds_is_no_markup(article: Told) -> None:
    named = replace(article.findings.turns[0], remarks=("<script>\x1b[31m | [x](y)`",))
    material = replace(article.material, findings=replace(article.findings, turns=(named,)))
    text = render_markdown(build_audit(material), images=None)
    assert "<script>" not in text
    assert "\x1b" not in text
    assert "\\| \\[x\\](y)\\`" in text


def test_speculation_beside_a_plain_arm_is_predicted_from_its_rounds(tmp_path: Path) -> None:
    arms = (arm("plain"), arm("spec", acceptance=0.6, block_size=4), arm("wide", acceptance=0.6, block_size=6))
    told = run(plan(*arms, prompts=(prompt(0),), rounds=6), tmp_path)
    spec = next(cost for cost in told.findings.verify_costs if cost.arm == "spec")
    assert spec.plain_arm == "plain"
    assert spec.predicted.value is not None
    assert spec.measured is not None
    assert spec.predicted.value == pytest.approx(spec.measured.ratio, rel=0.1)  # the clock charges for each token
    said = "spec, wide: predicted is tokens / round: no check of measured"  # the clock's passes are not timed
    assert said in " ".join(told.terminal().split())
    section = widths_section(told.material)
    assert isinstance(section, ReportSection)
    assert f"{said}." in section.lines
    (curve,) = told.findings.width_curves
    assert [point.arm for point in curve.points if point.arm] == ["spec", "wide"]
    assert [point.width for point in curve.points] == [1, 4, 6]
    assert curve.refused is not None  # the simulated arms draw what they accept, each by its own luck
    assert f"no best width is predicted ({curve.refused})" in " ".join(told.terminal().split())
    assert any(f"no best width is predicted ({curve.refused})." in line for line in section.lines)

    lossless = told.findings.losslessness
    assert lossless is not None
    early = replace(lossless, arms=tuple(replace(one, too_early=f"{one.arm} parts early") for one in lossless.arms))
    section = losslessness_section(early)
    assert isinstance(section, ReportSection)
    assert "spec parts early." in section.lines

    seldom = replace(spec, proposing=0.05, rounds_timed=100, one_more=Figure(value=1.5, source=""))
    found = replace(told.findings, verify_costs=(seldom,))
    section = widths_section(replace(told.material, findings=found))
    assert isinstance(section, ReportSection)
    assert "spec: 5 of its 100 rounds propose anything; the others are plain steps, at any width." in section.lines
    assert "spec: one more token per round with a proposal would bring 1.50\u00d7." in section.lines
