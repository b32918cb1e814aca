"""The answer: words per verdict, rounds that would decide, and the commands to type next."""

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.audit import Comparison
from orchestrator.report.answer import MOST_ROUNDS, next_commands, rounds_to_decide, verdict_lines
from orchestrator.report.building import build_answer
from orchestrator.report.material import Material
from orchestrator.report.verdict import verdict_sentence
from orchestrator.statistics.comparability import Reason
from orchestrator.statistics.findings import COURSE, PROMPT, SPLIT

INCLUDES_1 = Reason(code="interval_includes_1", text="the interval includes 1")
HEAT = Reason(code="carry_over", text="trials change the ones after them")
DRIFT = Reason(code="run_drift", text="the control itself changed by -34.0% from first to last run")


def undecided(material: Material, *, half: float, size: float, rounds: int = 8, **values: object) -> Comparison:
    """A comparison whose interval reaches `half` to both sides of `size`, both on the log scale."""
    ends = {"ratio": math.exp(size), "ci_low": math.exp(size - half), "ci_high": math.exp(size + half)}
    reasons = (INCLUDES_1, DRIFT)
    told = {"verdict": "could_be_drift", "direction": None, "reasons": reasons} | values
    return replace(material.overall[0], **ends, rounds=rounds, **told)


def advised(one: Comparison) -> int | None:
    return rounds_to_decide(one, alpha=0.05, margin=0.02)


def with_comparisons(material: Material, *comparisons: Comparison) -> Material:
    return replace(material, result=replace(material.result, comparisons=comparisons))


@given(st.floats(0.005, 0.3), st.floats(0.021, 0.5), st.floats(1.1, 3))
def test_wider_intervals_and_smaller_effects_need_more_rounds(
    material: Material, half: float, size: float, more: float
) -> None:
    asked = advised(undecided(material, half=half, size=size))
    wider = advised(undecided(material, half=half * more, size=size))
    larger = advised(undecided(material, half=half, size=size * more))
    for few, many in ((asked, wider), (larger, asked)):
        assert (few or MOST_ROUNDS + 1) <= (many or MOST_ROUNDS + 1)
    assert asked is None or 8 < asked <= MOST_ROUNDS


def test_an_effect_within_the_margin_needs_rounds_to_be_called_none(material: Material) -> None:
    assert advised(undecided(material, half=0.01, size=0.0)) is not None
    assert advised(undecided(material, half=0.01, size=0.0201)) is None  # on the edge, no number of rounds decides


def test_rounds_do_not_remove_heat(material: Material) -> None:
    assert advised(undecided(material, half=0.05, size=0.05)) is not None
    assert advised(undecided(material, half=0.05, size=0.05, reasons=(INCLUDES_1, HEAT, DRIFT))) is None
    # A note beside the verdict is no reason for it.
    assert advised(undecided(material, half=0.05, size=0.05, reasons=(INCLUDES_1, DRIFT, HEAT))) is not None


@pytest.mark.parametrize("verdict", ["supported", "no_difference", "not_engaged", "confounded"])
def test_no_rounds_are_advised_for_what_they_cannot_change(material: Material, verdict: str) -> None:
    assert advised(undecided(material, half=0.05, size=0.05, verdict=verdict)) is None


def test_too_few_rounds_need_the_fewest_that_reach_the_level(material: Material) -> None:
    assert advised(undecided(material, half=0.05, size=0.05, rounds=2, verdict="underpowered")) == 6


def test_the_command_to_decide_replaces_the_rounds_and_leaves_the_rest(material: Material) -> None:
    command = ("--config-dir", "my lab", "checkpoint=a", "engine.x=[1, 2]", "design.rounds=8", "+design.detect=3%")
    found = with_comparisons(
        replace(
            material,
            run=replace(material.run, status="done"),
            plan=replace(material.plan, command=command),
        ),
        undecided(material, half=0.05, size=0.1),
        undecided(material, half=0.05, size=0.07),
    )
    decide, why, pictures = next_commands(found)
    most = advised(found.overall[1])
    assert decide.text == f"interlace run --config-dir 'my lab' checkpoint=a 'engine.x=[1, 2]' design.rounds={most}"
    assert why.text == f"interlace audit {material.run.run_id} --full"
    assert pictures.text.startswith("interlace report ")


def test_an_unfinished_run_is_to_be_finished_first(material: Material) -> None:
    waiting = replace(material, run=replace(material.run, status="interrupted"))
    assert next_commands(waiting)[0].text == f"interlace resume {material.run.run_id}"


def test_an_imported_run_cannot_be_run_again(material: Material) -> None:
    imported = replace(material, run=replace(material.run, origin="llama_bench", status="done", randomised=False))
    assert [one.purpose for one in next_commands(imported)] == ["why", "pictures"]


@pytest.mark.parametrize(
    ("verdict", "answer"),
    [
        ("supported", "faster"),
        ("no_difference", "no difference"),
        ("could_be_drift", "undecided"),
        ("underpowered", "undecided"),
        ("not_engaged", "no proof it ran"),
        ("confounded", "not comparable"),
    ],
)
def test_each_verdict_has_its_answer(material: Material, verdict: str, answer: str) -> None:
    direction = "faster" if verdict == "supported" else None
    one = replace(material.overall[0], verdict=verdict, direction=direction, reasons=(INCLUDES_1, DRIFT))
    line = verdict_lines(with_comparisons(material, one))[1]
    assert line.answer == answer
    assert line.arm == one.treatment


def test_the_drift_stands_beside_what_it_leaves_undecided(material: Material) -> None:
    one = undecided(material, half=0.05, size=0.04)
    line = verdict_lines(with_comparisons(material, one))[1]
    assert line.because.startswith("the interval holds 1.00 while the machine lost ")
    assert line.absolute.endswith(" tokens/s")


def test_the_control_stands_first_with_its_rate_and_its_drift(material: Material) -> None:
    control = verdict_lines(material)[0]
    assert (control.arm, control.answer) == ("plain", "control")
    assert re.fullmatch(r"[\d.]+ tokens/s", control.absolute)
    assert re.fullmatch(r"lost \d+\u00a0% of its speed during the run", control.because)


@pytest.mark.parametrize(("direction", "sign"), [("faster", "\u25b2"), ("slower", "\u25bc"), (None, "\u2714")])
def test_the_sign_of_a_supported_verdict_says_which_way(material: Material, direction: str | None, sign: str) -> None:
    one = replace(material.overall[0], verdict="supported", direction=direction)
    assert verdict_lines(with_comparisons(material, one))[1].sign == sign


def test_an_answer_has_no_section(material: Material) -> None:
    answer = build_answer(material)
    assert answer.sections == ()
    assert answer.lines
    assert answer.commands


@pytest.mark.parametrize(("code", "answer"), [(PROMPT, "varies"), (COURSE, "varies"), (SPLIT, "mixed")])
def test_an_arm_without_one_answer_bears_no_tick(material: Material, code: str, answer: str) -> None:
    one = replace(material.overall[0], verdict="supported", direction=None, reasons=(Reason(code=code, text="why"),))
    line = verdict_lines(with_comparisons(material, one))[1]
    assert (line.sign, line.tone, line.answer, line.because) == ("!", "doubt", answer, "why")


def test_an_effect_of_varying_size_keeps_its_direction_and_has_no_single_ratio(material: Material) -> None:
    why = Reason(code=PROMPT, text="the effect depends on the prompt: from 0.45 for a to 0.49 for b")
    one = replace(material.overall[0], verdict="supported", direction="slower", reasons=(why,))
    found = with_comparisons(material, one)
    line = verdict_lines(found)[1]
    assert (line.sign, line.answer, line.ratio, line.because) == ("\u25bc", "slower", "", why.text)
    assert f"{one.treatment} is slower, but varies from prompt to prompt" in verdict_sentence(found)
