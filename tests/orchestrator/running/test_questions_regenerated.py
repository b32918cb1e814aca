"""Which answers of servers are asked for again, and what their tokens and log-probabilities are good for."""

from typing import Any

import pytest

from orchestrator.findings.records import Answer
from orchestrator.running.questions import Question, apart, judge, questions, repetitions, scorer, with_tokens
from tests.orchestrator.plans import plan, prompt
from tests.orchestrator.running.records import answer, arm, widths
from workers.protocol import Regenerated, Scored, TokenScore

PLANNED = plan(arm("control"), arm("server"), arm("inside"), arm("other", checkpoint="d"))


def server(of: str, text: str, **values: Any) -> Answer:
    """An answer without tokens, as a server gives it."""
    return answer(of, text=text, stamps_of="chunk", **values)


def regenerated(text: str, *token_ids: int, logprobs: list[float] | None = None) -> Regenerated:
    return Regenerated(
        request_id="r", text=text, token_ids=list(token_ids), logprobs=logprobs or [-0.1] * len(token_ids)
    )


# ---- which ----


def test_a_server_whose_text_differs_is_asked_again() -> None:
    answers = [answer("control", 1, 2, text="ab"), server("server", "ab"), server("server", "ac")]
    (only,) = repetitions(PLANNED, answers)
    assert (only.place, only.text) == (("server", "quick/0", 0), "ac")
    assert only.messages == ({"role": "user", "content": "question 0, turn 0"},)
    assert only.max_tokens == PLANNED.prompts[0].max_tokens


def test_where_the_control_is_the_server_it_is_asked_once_for_all() -> None:
    answers = [server("control", "ab"), answer("inside", 1, 3, text="ac"), server("server", "ad")]
    assert {repetition.arm for repetition in repetitions(PLANNED, answers)} == {"control", "server"}


@pytest.mark.parametrize(
    "other",
    [
        server("server", "ab"),  # the same
        server("server", "ac", prompt_sha256="another"),
        server("server", "ac", prompt_sha256=None),
        answer("inside", 1, 3, text="ac"),  # it tells its tokens already
    ],
    ids=["the same text", "another prompt", "an unknown prompt", "known tokens"],
)
def test_everything_else_is_left_alone(other: Answer) -> None:
    assert not repetitions(PLANNED, [answer("control", 1, 2, text="ab"), other])


def test_so_many_of_each_arm_the_shortest_first() -> None:
    prompts = tuple(prompt(number) for number in range(4))
    planned = plan(arm("control"), arm("server"), prompts=prompts, probe_prompts=2)
    answers = []
    for number in range(4):
        answers.append(answer("control", 1, 2, text="ab", prompt_id=f"quick/{number}"))
        answers.append(server("server", "ac", prompt_id=f"quick/{number}", completion_tokens=9 - number))
    assert [repetition.prompt_id for repetition in repetitions(planned, answers)] == ["quick/3", "quick/2"]


def test_a_later_turn_is_asked_for_in_its_conversation() -> None:
    planned = plan(arm("control"), arm("server"), prompts=(prompt(turns=2),))
    first = [answer("control", 1, text="Hello."), server("server", "Hello.")]
    second = [answer("control", 2, turn=1, text="ab"), server("server", "ac", turn=1)]
    (only,) = repetitions(planned, [*first, *second])
    assert [message["content"] for message in only.messages] == ["question 0, turn 0", "Hello.", "question 0, turn 1"]


# ---- what comes of it ----


def test_only_the_very_text_that_was_measured_gets_the_tokens() -> None:
    answers = [answer("control", 1, 2, text="ab"), server("server", "ab"), server("server", "ac")]
    told = {("server", "quick/0", 0): regenerated("ac", 1, 3)}
    known = with_tokens(answers, told)
    assert [each.token_ids for each in known] == [(1, 2), None, (1, 3)]
    (only,) = questions(PLANNED, known, widths(control=1, server=4))
    assert (only.arm, only.token_index, only.control_token, only.arm_token) == ("server", 1, 2, 3)


def test_who_is_asked_how_sure_the_checkpoint_was() -> None:
    loaded = widths(control=None, server=None, inside=3, other=None)
    assert scorer(PLANNED, [answer("control", 1), server("server", "a")], loaded) == "control"
    inside = [server("control", "a"), answer("inside", 1), answer("other", 1)]
    assert scorer(PLANNED, inside, loaded) == "inside"
    assert scorer(PLANNED, [server("control", "a"), answer("other", 1)], loaded) == "control"


def question(of: str, token_index: int) -> Question:
    known = [1] * token_index
    (only,) = questions(PLANNED, [answer("control", *known, 2), answer(of, *known, 3)], widths())
    return only


def test_two_servers_say_themselves_how_far_they_lie_apart() -> None:
    told = {
        ("control", "quick/0", 0): regenerated("ab", 1, 1, 2, logprobs=[-0.5, -0.25, -0.1]),
        ("server", "quick/0", 0): regenerated("ac", 1, 1, 3, logprobs=[-0.5, -0.375, -9.0]),
    }
    assert apart(PLANNED, question("server", 2), told) == 0.125  # the place itself holds two different tokens
    assert apart(PLANNED, question("server", 0), told) is None
    assert apart(PLANNED, question("other", 2), told | {("other", "quick/0", 0): regenerated("ad", 1, 1, 3)}) is None
    assert apart(PLANNED, question("inside", 2), told) is None


def scored(control: float, other: float) -> Scored:
    rivals = [TokenScore(token_id=token, text="t", logprob=value) for token, value in ((2, control), (3, other))]
    return Scored(request_id="r", top=rivals, rivals=rivals, context_text="", changes=[], compared_places=1)


@pytest.mark.parametrize(
    ("servers_apart", "verdict"), [(0.06, "near_tie"), (0.04, "real"), (0.0, "real"), (None, "unknown")]
)
def test_a_lead_is_held_against_how_far_the_servers_lie_apart(servers_apart: float | None, verdict: str) -> None:
    found = judge(scored(-0.7, -0.8), servers_apart=servers_apart)
    assert found.verdict == verdict
    assert found.gap == pytest.approx(0.1)
    assert found.rounding == servers_apart
    assert ("servers" in found.reason) == (servers_apart is not None)
