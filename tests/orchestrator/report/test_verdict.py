"""The sentence at the top, the warnings, and the Markdown."""

import re
from dataclasses import replace

import pytest

from orchestrator.report.building import build_report
from orchestrator.report.markdown import render_markdown
from orchestrator.report.material import Material
from orchestrator.report.parts import Report
from orchestrator.report.verdict import verdict_sentence, warnings
from orchestrator.statistics.unrandomised import DriftExplanation

from .conftest import MADE_AT


def with_run(material: Material, **values: object) -> Material:
    return replace(material, run=replace(material.run, **values))


def test_the_verdict_is_one_sentence_with_the_drift(material: Material) -> None:
    sentence = verdict_sentence(material)
    assert sentence.startswith("Against plain, width 4 is ")
    assert re.search(r"although the control itself lost \d+\u00a0% of its speed during the run\.$", sentence)


def test_many_arms_are_counted(material: Material) -> None:
    first = material.overall[0]
    several = tuple(
        replace(first, treatment=f"arm {number}", verdict=verdict)
        for number, verdict in enumerate(["supported", "supported", "could_be_drift", "no_difference", "underpowered"])
    )
    sentence = verdict_sentence(replace(material, result=replace(material.result, comparisons=several)))
    assert sentence.startswith("Of 5 arms held against plain, 2 are faster (most of all arm ")
    assert "1 makes no difference, 1 could be drift and 1 has too few rounds" in sentence


def test_no_complete_round_is_no_verdict(material: Material) -> None:
    none = tuple(replace(one, rounds=0) for one in material.result.comparisons)
    found = replace(material, result=replace(material.result, comparisons=none))
    assert verdict_sentence(found) == "Nothing to judge yet: no round is complete."


def test_parts_that_disagree_leave_no_winner(material: Material) -> None:
    split = replace(material.findings.recommendation, disagree=True, sentence="It depends.")
    assert (
        verdict_sentence(replace(material, findings=replace(material.findings, recommendation=split))) == "It depends."
    )


def test_an_unfinished_run_says_so_first(material: Material) -> None:
    words = dict(warnings(with_run(material, status="interrupted", note=None)))
    assert "The run is interrupted: " in words["Unfinished"]
    assert "Unfinished" not in dict(warnings(with_run(material, status="done")))


def test_what_was_not_randomised_gets_no_verdict(material: Material) -> None:
    explained = DriftExplanation(
        treatment="width 4",
        control="plain",
        ratio=1.3,
        hours_apart=1.0,
        explaining_drift_per_hour=0.3,
        seen_drift_per_hour=0.2,
        text="a drift of +30 % an hour would explain it",
    )
    imported = with_run(
        material, randomised=False, simulated=False, status="done", origin="llama_bench", source_name="a.json"
    )
    imported = replace(imported, explanations=(explained,))
    made = build_report(imported, made_at=MADE_AT)
    assert made.verdict.startswith(
        "The order was not drawn at random, so no difference here can be told from drift; width 4"
    )
    assert dict(made.warnings)["Not randomised"].endswith("Verdicts need a run of interlace itself.")
    assert [line.verdict for line in made.lines] == ["not randomised"]
    titles = {section.key for section in made.sections}
    assert not titles & {"ratios", "rounds"}


@pytest.mark.parametrize("images", [None, "img (1)"])
def test_markdown_holds_all_and_obeys_nobody(report: Report, images: str | None) -> None:
    text = render_markdown(report, images=images)
    assert text.startswith("# Against plain")
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
