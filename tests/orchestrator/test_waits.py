"""A later turn's wait is part of every judgement, and its prompt's length confounds only what it can explain."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from orchestrator.audit import AuditResult, Comparison
from orchestrator.judging import judge
from orchestrator.stored_run import StoredRun
from tests.orchestrator.meanings import Told, article_plan, run
from tests.orchestrator.plans import arm, plan, prompt

WAIT = "the wait for the first token of two_turns, turn 2"


@pytest.fixture(scope="module")
def decoding(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The article's situation, in a run that compares decode rates: these never see a wait."""
    return run(article_plan(metric="decode_tps"), tmp_path_factory.mktemp("decoding"))


def of(result: AuditResult, scope: str) -> Comparison:
    (found,) = (one for one in result.comparisons if one.scope.words == scope)
    return found


def test_faster_decoding_with_a_late_second_turn_has_no_overall_winner(decoding: Told) -> None:
    whole = of(decoding.result, "over all")
    assert (whole.verdict, whole.direction) == ("supported", None)
    assert whole.split is not None
    assert WAIT in whole.split.text
    assert of(decoding.result, "two_turns").direction is None
    assert of(decoding.result, "quick").direction == "faster"  # nothing waits there
    assert decoding.result.best[0].arms == ()
    for text in (decoding.result.summary, decoding.terminal()):
        assert "dflash is" not in text
        assert "supported, faster" not in text


def test_the_waits_are_the_turns_of_the_findings(decoding: Told) -> None:
    told = {(one.workload, one.treatment, one.turn): one.ratio for one in decoding.result.waits}
    assert set(told) == {("two_turns", "dflash", 0), ("two_turns", "dflash", 1)}
    (_, dflash) = decoding.findings.turns
    assert [turn.ttft_ratio.ratio if turn.ttft_ratio else None for turn in dflash.turns] == list(told.values())


def changed(told: Told, *, turn: int, factor: float) -> AuditResult:
    """Judged as if the treatment's prompts of this turn were longer."""
    frame: pd.DataFrame = StoredRun.load(told.database, told.run_id).trials.copy()
    rows = (frame["arm"] == "dflash") & (frame["turn"] == turn) & (frame["workload"] == "two_turns")
    longer = (frame.loc[rows, "prompt_tokens"].astype("float64") * factor).round() + 1
    frame.loc[rows, "prompt_tokens"] = longer.astype("Int64")
    return judge(frame, told.plan)


def test_an_answer_of_another_length_does_not_hide_a_wait_of_many_times(decoding: Told) -> None:
    """The second prompt holds the first answer: near-ties, other bits and samplers make it a few tokens longer."""
    result = changed(decoding, turn=1, factor=1.05)
    late = next(one for one in result.waits if one.turn == 1)
    assert late.verdict == "supported"
    assert late.ratio is not None
    assert late.ratio > 10
    (note,) = (reason.text for reason in late.reasons if reason.code == "prompt_tokens_differ")
    assert "that explains a factor of 1.1" in note
    assert of(result, "over all").direction is None


def test_lengths_that_could_have_made_the_effect_confound_it(decoding: Told) -> None:
    assert of(changed(decoding, turn=1, factor=1.5), "two_turns, turn 2").verdict == "confounded"
    assert of(decoding.result, "two_turns, turn 2").verdict == "supported"


def test_another_first_prompt_is_another_prompt(decoding: Told) -> None:
    result = changed(decoding, turn=0, factor=1.0)
    assert next(one for one in result.waits if one.turn == 0).verdict == "confounded"
    assert of(result, "two_turns, turn 1").verdict == "confounded"


def test_whole_samplers_are_compared(tmp_path: Path) -> None:
    """At equal temperatures, other values of top_p and top_k change the meaning of the accept length."""
    wide, tight = arm("wide"), arm("tight", effect=1.5)
    warm = {"temperature": 0.6, "top_p": 1.0, "top_k": 0, "min_p": 0.0}

    def sampled(**changes: float) -> Comparison:
        sampling = (wide.sampling | warm, tight.sampling | warm | changes)
        arms = (replace(wide, sampling=sampling[0]), replace(tight, sampling=sampling[1]))
        folder = tmp_path / "_".join(changes) if changes else tmp_path / "equal"
        folder.mkdir()
        return of(run(plan(*arms, prompts=(prompt(0),), rounds=6), folder).result, "over all")

    assert sampled().verdict == "supported"
    told = sampled(top_p=0.1, top_k=1)
    assert told.verdict == "confounded"
    assert "temperature 0.6, top_p 0.1, top_k 1 against temperature 0.6" in told.reasons[0].text
