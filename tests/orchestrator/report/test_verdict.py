"""The sentence at the top, the warnings, and the Markdown."""

import re
from dataclasses import replace

import pytest

from orchestrator.findings.values import ArmTurns, Figure, Interval, TurnFigures
from orchestrator.report.answer import verdict_lines
from orchestrator.report.building import build_report
from orchestrator.report.document import Document
from orchestrator.report.material import Material
from orchestrator.report.render_markdown import render_markdown
from orchestrator.report.sections.later_turns import turns_title
from orchestrator.report.verdict import verdict_sentence
from orchestrator.report.warnings import warnings
from orchestrator.statistics.comparability import Reason, Scope
from orchestrator.statistics.findings import COURSE, PROMPT

from .conftest import MADE_AT


def with_run(material: Material, **values: object) -> Material:
    return replace(material, run=replace(material.run, **values))


def test_the_drift_stands_behind_what_it_leaves_undecided(material: Material) -> None:
    decided = verdict_sentence(material)
    assert decided.startswith("width 4 is ")  # too long for the control's name
    assert "machine" not in decided
    doubtful = tuple(
        replace(one, verdict="could_be_drift") for one in material.result.comparisons if one.treatment == "width 4"
    )
    undecided = replace(material, result=replace(material.result, comparisons=doubtful))
    assert re.fullmatch(
        r"Against plain, width 4 is undecided, because the machine lost \d+\u00a0% of its speed\.",
        verdict_sentence(undecided),
    )


def test_a_long_headline_leaves_the_control_to_its_line(material: Material) -> None:
    named = tuple(replace(one, treatment=one.treatment * 9) for one in material.overall)
    found = replace(material, result=replace(material.result, comparisons=named))
    assert not verdict_sentence(found).startswith("Against")


def test_a_drift_that_equal_arms_show_as_well_is_not_reported(material: Material) -> None:
    """This drift is that of two control runs; the band of the picture shows the drift within the rounds."""
    (over_all,) = (floor for floor in material.result.floors if floor.scope == Scope())
    wide = replace(over_all, effect=replace(over_all.effect, ci_low=0.5, ci_high=2.0))
    doubtful = tuple(replace(one, verdict="could_be_drift") for one in material.result.comparisons)
    result = replace(material.result, floors=(wide,), comparisons=doubtful)
    assert "because" not in verdict_sentence(replace(material, result=result))


def test_the_first_picture_states_the_drift_that_the_answer_states(material: Material) -> None:
    (trials,) = (one for one in build_report(material, made_at=MADE_AT).pictures if one.key == "trials")
    control = verdict_lines(material)[0].because.removesuffix(" during the run")
    assert re.fullmatch(r"lost \d+\u00a0% of its speed", control)
    assert trials.title.startswith(f"The machine {control}; ")
    quiet = replace(material, result=replace(material.result, drift=0.0))
    (same,) = (one for one in build_report(quiet, made_at=MADE_AT).pictures if one.key == "trials")
    assert re.match(r"The control's own level moved by \d+\u00a0%; ", same.title)


@pytest.mark.parametrize("code", [PROMPT, COURSE])
@pytest.mark.parametrize("length", [12, 25, 44, 200])
def test_a_headline_of_varying_effects_is_short(material: Material, code: str, length: int) -> None:
    why = Reason(code=code, text="the effect changes in the course of the run (p = 0.0312): " + "1.032, " * 30)
    one = replace(material.overall[0], reasons=(why,), verdict="could_be_drift", direction=None)
    several = tuple(replace(one, treatment=f"{name}{'x' * (length - 1)}") for name in "abc")
    found = replace(material, result=replace(material.result, comparisons=several))
    sentence = verdict_sentence(found)
    assert len(sentence) <= 164  # three names of 20 characters
    assert "p = " not in sentence
    assert len(verdict_sentence(replace(found, result=replace(found.result, comparisons=several[:2])))) <= 110


@pytest.mark.parametrize(
    ("verdict", "title"),
    [
        ("supported", "Turn 2 starts 1.6 times as late with b as with a"),
        ("could_be_drift", "Time to the first token, turn by turn"),
        ("confounded", "Time to the first token, turn by turn"),
    ],
)
def test_a_title_claims_only_what_a_verdict_supports(verdict: str, title: str) -> None:
    unknown = Figure(value=None, source="unknown")
    ratio = Interval(ratio=1.6, ci_low=0.7, ci_high=3.1, p_value=0.3, rounds=6)

    def figures(turn: int) -> TurnFigures:
        return TurnFigures(
            turn=turn,
            generations=6,
            ttft_s=1.0,
            prompt_tokens=10.0,
            cached_tokens=unknown,
            new_tokens=unknown,
            prefill_tps=unknown,
            ttft_ratio=ratio if turn else None,
            verdict=verdict if turn else None,
        )

    arm = ArmTurns(arm="b", workload="w", turns=(figures(0), figures(1)), flags=(), remarks=())
    assert turns_title([arm], "a") == title


def test_many_arms_are_counted(material: Material) -> None:
    first = material.overall[0]
    several = tuple(
        replace(first, treatment=f"arm {number}", verdict=verdict)
        for number, verdict in enumerate(["supported", "supported", "could_be_drift", "no_difference", "underpowered"])
    )
    sentence = verdict_sentence(replace(material, result=replace(material.result, comparisons=several)))
    assert sentence.startswith("Of 5 arms compared with plain, 2 are faster (most of all arm ")
    assert re.search(r"1 makes no difference, 1 is undecided, because the machine .* and 1 has too few", sentence)


def test_no_complete_round_is_no_verdict(material: Material) -> None:
    none = tuple(replace(one, rounds=0) for one in material.result.comparisons)
    found = replace(material, result=replace(material.result, comparisons=none))
    assert verdict_sentence(found) == "Nothing to judge yet: no round is complete."


def test_parts_that_disagree_leave_no_winner(material: Material) -> None:
    split = replace(material.findings.recommendation, disagree=True, sentence="It depends.")
    assert (
        verdict_sentence(replace(material, findings=replace(material.findings, recommendation=split))) == "It depends."
    )


def test_an_unfinished_run_reports_it_first(material: Material) -> None:
    words = dict(warnings(with_run(material, status="interrupted", note=None)))
    assert "The run is interrupted: " in words["Unfinished"]
    assert "Unfinished" not in dict(warnings(with_run(material, status="done")))


def test_what_was_not_randomised_gets_no_verdict(material: Material) -> None:
    reason = Reason(code="not_randomised", text="a drift of +30 % an hour would explain it")
    found = tuple(
        replace(one, verdict="could_be_drift", direction=None, ci_low=None, ci_high=None, wins=None, reasons=(reason,))
        for one in material.overall
    )
    imported = replace(material, result=replace(material.result, comparisons=found))
    source = {"origin": "llama_bench", "source_name": "a.json"}
    made = build_report(with_run(imported, randomised=False, simulated=False, status="done", **source), made_at=MADE_AT)
    assert re.fullmatch(r"The order was not drawn at random: the .* may be drift\.", made.verdict)
    assert dict(made.warnings)["Not randomised"].endswith("Verdicts need a run of interlace itself.")
    assert all("would explain it" in line.figure for line in made.lines[1:])
    assert not {section.key for section in made.sections} & {"ratios", "rounds"}


@pytest.mark.parametrize("images", [None, "img (1)"])
def test_markdown_holds_all_and_obeys_nobody(report: Document, images: str | None) -> None:
    text = render_markdown(report, images=images)
    assert text.startswith("# width 4 is ")
    assert "| arm |" in text
    assert ("![" in text) == (images is not None)
    if images is not None:
        assert "](img%20%281%29/trials.png)" in text
    outside = re.sub(r"^(`{3,})text\n.*?^\1$", "", text, flags=re.S | re.M)
    assert "<script>" not in outside.replace("\\<", "")
    assert not re.search(r"(?<!\\)\]\(javascript", outside)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202a-\u202e]", text)
    rows = [re.sub(r"\\\|", "", line) for line in outside.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in rows)


def test_arms_that_share_a_verdict_are_grouped(material: Material) -> None:
    first = material.overall[0]
    pair = tuple(replace(first, treatment=name, verdict="underpowered") for name in ("a", "b"))
    sentence = verdict_sentence(replace(material, result=replace(material.result, comparisons=pair, drift=None)))
    assert sentence == "Against plain, a and b have too few rounds to tell."
