"""Only arms with equal samplers are comparable."""

from typing import Any

import pytest

from orchestrator.findings.samplers import sampling
from tests.orchestrator.findings.making import arm, drafting, stepped


def test_equal_samplers_need_no_note() -> None:
    assert sampling((arm(), drafting()), []).note is None
    hot: dict[str, Any] = {"temperature": 0.6, "sampling": {"top_p": 0.9}}
    assert sampling((arm(**hot), drafting(**hot)), []).note is None


@pytest.mark.parametrize(
    ("sampling_of", "words"),
    [
        (
            {"top_p": 0.1, "top_k": 1},
            "top_p, top_k: plain at temperature 0.6; spec at temperature 0.6, top_p 0.1, top_k 1",
        ),
        ({"min_p": 0.05}, "min_p: plain at temperature 0.6; spec at temperature 0.6, min_p 0.05"),
        ({"ignore_eos": True}, "ignore_eos: plain at temperature 0.6; spec at temperature 0.6, ignore_eos true"),
    ],
)
def test_the_temperature_is_not_all_of_a_sampler(sampling_of: dict[str, Any], words: str) -> None:
    defaults = {"top_p": 1.0, "top_k": 0, "min_p": 0.0}
    arms = (
        arm(temperature=0.6, sampling=defaults),
        drafting(temperature=0.6, sampling=defaults | sampling_of),
    )
    found = sampling(arms, [])
    assert found.note == f"only arms with equal samplers are comparable, and these differ in {words}"
    assert found.by_temperature == ()


def test_what_shapes_chances_means_nothing_to_greedy_decoding() -> None:
    assert sampling((arm(), drafting(sampling={"top_p": 0.1, "top_k": 1})), []).note is None
    assert sampling((arm(), drafting(sampling={"ignore_eos": True})), []).note is not None


def test_different_ones_are_named_with_what_each_accepts() -> None:
    arms = (arm(), drafting("hot", temperature=0.6), drafting("greedy"))
    answers = [
        stepped("hot", [(3, 0, 1), (3, 1, 2)], round_us=[1_000] * 2),
        stepped("greedy", [(3, 3, 4)], round_us=[1_000]),
    ]
    found = sampling(arms, answers)
    assert "hot at temperature 0.6" in str(found.note)
    assert [point.arm for point in found.by_temperature] == ["greedy", "hot"]
    assert [point.accept_length for point in found.by_temperature] == pytest.approx([4.0, 1.5])
    assert [point.acceptance_rate for point in found.by_temperature] == pytest.approx([1.0, 1 / 6])
