"""Times to the first token follow the tokens that no cache holds: answers of other lengths explain that much."""

import numpy as np
import pandas as pd
import pytest

from orchestrator.audit import audit
from orchestrator.statistics.findings import Comparison
from tests.orchestrator.statistics.frames import MESSAGE, MS_A_TOKEN, conversation


def second_turn(frame: pd.DataFrame) -> Comparison:
    result = audit(frame, control="plain", metric="ttft_s")
    return next(one for one in result.comparisons if one.turn == 1)


@pytest.mark.parametrize("known", [True, False])
def test_a_longer_answer_of_its_own_is_no_slower_engine(*, known: bool) -> None:
    found = second_turn(conversation(answers=(10, 100), known=known))
    assert found.ratio == pytest.approx(4.0, rel=0.05)
    assert found.verdict == "confounded"
    assert "prompt token counts differ" in found.reasons[0].text


def test_an_engine_that_caches_nothing_is_not_let_off_by_a_token_more() -> None:
    found = second_turn(conversation(answers=(60, 61), document=8000, caches=(True, False)))
    assert (found.verdict, found.direction) == ("supported", "slower")
    found = second_turn(conversation(answers=(60, 90), document=8000, caches=(True, False)))
    assert (found.verdict, found.direction) == ("supported", "slower")


def test_without_any_cache_the_whole_prompt_counts() -> None:
    frame = conversation(answers=(60, 80), document=4000, caches=(False, False))
    slow = frame.assign(ttft_s=frame["ttft_s"] * np.where(frame["arm"] == "other", 1.5, 1.0))
    assert second_turn(slow).verdict == "supported"
    slightly = frame.assign(ttft_s=frame["ttft_s"] * np.where(frame["arm"] == "other", 1.02, 1.0))
    assert second_turn(slightly).verdict in ("confounded", "could_be_drift")


def test_an_engine_that_caches_its_own_answers_too() -> None:
    frame = conversation(answers=(10, 100))
    later = (frame["turn"] == 1).to_numpy(dtype=bool)
    frame["cached_tokens"] = pd.array(np.where(later, frame["prompt_tokens"] - MESSAGE, 0), dtype="Int64")
    frame["ttft_s"] = np.where(later, MESSAGE, 1000) * MS_A_TOKEN * np.where(frame["arm"] == "other", 3.0, 1.0)
    frame["ttft_s"] *= np.exp(0.01 * np.random.default_rng(0).standard_normal(len(frame)))
    found = second_turn(frame)
    assert (found.verdict, found.direction) == ("supported", "slower")
