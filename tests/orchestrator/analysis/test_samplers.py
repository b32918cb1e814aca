"""Only equal samplers compare."""

import pytest

from orchestrator.analysis.samplers import sampling
from tests.orchestrator.analysis.making import arm, drafting, stepped


def test_equal_samplers_need_no_note() -> None:
    assert sampling((arm(), drafting()), []).note is None


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
