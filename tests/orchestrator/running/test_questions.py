"""The questions after a run and the meaning of the answers: on values, and with rounding put into a real engine."""

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.findings.records import Answer
from orchestrator.plan import Arm, Plan, Prompt
from orchestrator.running.questions import (
    SUBSTITUTE_WIDTHS,
    Finding,
    Question,
    budget_s,
    context_of,
    judge,
    questions,
    timings,
)
from tests.orchestrator.plans import plan, prompt
from tests.orchestrator.running.records import answer, arm, widths
from tests.workers import tiny
from tests.workers.perturbed import Perturbed
from workers.engines.base import Engine
from workers.engines.contract import converse
from workers.engines.mlx_lm import MlxLm
from workers.engines.mlx_lm_draft import MlxLmDraft
from workers.protocol import Scored, ScoreTokens, TokenScore, WidthChange

TWO = plan(arm("control"), arm("b"))


# ---- which places ----


def test_the_first_token_that_differs_is_asked_about() -> None:
    (only,) = questions(TWO, [answer("control", 1, 2, 3, 4), answer("b", 1, 2, 9, 4)], widths(b=4))
    assert (only.arm, only.token_index, only.control_token, only.arm_token) == ("b", 2, 3, 9)
    assert only.token_ids == (1, 2)
    assert only.messages == ({"role": "user", "content": "question 0, turn 0"},)
    assert only.widths == (4,)
    assert only.reason_against is None


def test_equal_answers_leave_nothing_to_ask() -> None:
    assert not questions(TWO, [answer("control", 1, 2), answer("b", 1, 2)], widths(b=4))


def test_of_several_answers_the_first_that_differs_counts() -> None:
    answers = [answer("control", 1, 2), answer("b", 1, 2), answer("b", 1, 7), answer("b", 5, 2)]
    (only,) = questions(TWO, answers, widths(b=4))
    assert (only.token_index, only.arm_token) == (1, 7)


@pytest.mark.parametrize(
    "other",
    [
        answer("b", 9, prompt_sha256="another"),  # another prompt
        answer("b"),  # a server tells no token ids
    ],
    ids=["another prompt", "no token ids"],
)
def test_what_cannot_be_compared_is_not_asked(other: Answer) -> None:
    assert not questions(TWO, [answer("control", 1, 2), other], widths(b=4))


@pytest.mark.parametrize("sampled", [(0.7, 0.7), (0.0, 0.7), (0.7, 0.0)])
def test_only_greedy_arms_of_one_sampler_are_asked(sampled: tuple[float, float]) -> None:
    planned = plan(arm("control", temperature=sampled[0]), arm("b", temperature=sampled[1]))
    assert not questions(planned, [answer("control", 1), answer("b", 2)], widths(b=4))


def test_a_second_turn_is_asked_in_the_conversation_that_it_was_given_in() -> None:
    planned = plan(arm("control"), arm("b"), prompts=(prompt(turns=2),))
    first = [answer(name, 1, 2, text="Hello.") for name in ("control", "b")]
    second = [answer("control", 3, 4, turn=1, prompt_sha256="two"), answer("b", 3, 5, turn=1, prompt_sha256="two")]
    (only,) = questions(planned, [*first, *second], widths(b=4))
    assert only.turn == 1
    assert [message["content"] for message in only.messages] == [
        "question 0, turn 0", "Hello.", "question 0, turn 1",
    ]  # fmt: skip
    assert [message["role"] for message in only.messages] == ["user", "assistant", "user"]


def test_an_answer_that_ends_early_is_reported_and_not_asked() -> None:
    (only,) = questions(TWO, [answer("control", 1, 2), answer("b", 1, 2, 3)], widths(b=4))
    assert (only.control_token, only.arm_token) == (None, 3)
    assert only.reason_against is not None


def test_so_many_of_each_arm_are_asked_the_cheapest_first() -> None:
    prompts = tuple(prompt(number) for number in range(4))
    planned = plan(arm("control"), arm("b"), arm("c"), prompts=prompts, probe_prompts=2)
    answers = []
    for number in range(4):
        same = [1] * (5 - number)
        for name, token in (("control", 2), ("b", 3), ("c", 4)):
            answers.append(answer(name, *same, token, prompt_id=f"quick/{number}"))
    found = questions(planned, answers, widths(b=4, c=8))
    assert [each.passes_s for each in found] == sorted(each.passes_s for each in found)
    for name in ("b", "c"):
        of_arm = [each for each in found if each.arm == name]
        assert [each.prompt_id for each in of_arm] == ["quick/3", "quick/2", "quick/1", "quick/0"]
        assert [each.reason_against is None for each in of_arm] == [True, True, False, False]


@pytest.mark.parametrize(
    ("of_arms", "expected"),
    [
        ({"b": 4}, (4,)),
        ({"b": 4, "c": 8, "control": None}, (4, 8)),
        ({"b": None}, SUBSTITUTE_WIDTHS),  # all arms decode one token a pass
        ({"b": 5, "c": 2, "d": 3, "e": 8, "f": 16}, (2, 3, 5, 16)),  # its own, the ends, and no more than four
    ],
)
def test_the_widths_of_the_run_are_tried(of_arms: dict[str, int | None], expected: tuple[int, ...]) -> None:
    (only,) = questions(TWO, [answer("control", 1), answer("b", 2)], widths(**of_arms))
    assert only.widths == expected


# ---- what it means ----


def question(**values: Any) -> Question:
    (made,) = questions(TWO, [answer("control", 1, 2), answer("b", 1, 9)], widths(b=4))
    return replace(made, **values)


def scored(control: float, other: float, *changes: float, best: float | None = None) -> Scored:
    rivals = [TokenScore(token_id=2, text=" two", logprob=control), TokenScore(token_id=9, text=" nine", logprob=other)]
    top = sorted(rivals, key=lambda each: -each.logprob)
    if best is not None:
        top.insert(0, TokenScore(token_id=5, text=" five", logprob=best))
    return Scored(
        request_id="p",
        top=top,
        rivals=rivals,
        context_text="one",
        changes=[WidthChange(width=4 + place, at_place=each, largest=each) for place, each in enumerate(changes)],
        compared_places=3,
    )


@pytest.mark.parametrize(
    ("control", "other", "changes", "verdict"),
    [
        (-1.0, -1.01, [0.004, 0.006], "near_tie"),
        (-1.0, -1.25, [0.125], "near_tie"),
        (-1.0, -1.2501, [0.125], "real"),
        (-1.0, -3.0, [0.006], "real"),
        (-1.0, -1.0, [0.0], "near_tie"),  # an exact tie: nothing prefers either
        (-1.0, -1.0001, [0.0], "real"),  # where nothing is rounded differently, every lead counts
        (-1.005, -1.0, [0.006], "near_tie"),  # one token a pass prefers the other already
    ],
)
def test_a_lead_within_twice_the_rounding_is_a_near_tie(
    control: float, other: float, changes: list[float], verdict: str
) -> None:
    found = judge(scored(control, other, *changes))
    assert found.verdict == verdict
    assert found.gap == pytest.approx(control - other)
    assert found.rounding == max(changes)
    assert (found.control_text, found.arm_text, found.context_text) == (" two", " nine", "one")
    assert "nats" in found.reason


def test_a_control_that_does_not_repeat_itself_proves_nothing() -> None:
    found = judge(scored(-2.0, -3.0, 0.01, best=-0.5))
    assert found.verdict == "unknown"
    assert "not the likeliest" in found.reason


# ---- rounding put into a real engine ----


def score_of(engine: MlxLm, asked: Question, messages: list[dict[str, str]]) -> Finding:
    assert asked.control_token is not None
    assert asked.arm_token is not None
    request = ScoreTokens(
        request_id="p",
        messages=messages,
        prompt_sha256=asked.prompt_sha256,
        token_ids=list(asked.token_ids),
        rivals=[asked.control_token, asked.arm_token],
        widths=list(asked.widths),
        most_likely=5,
        budget_s=60.0,
    )
    return judge(engine.score(request))


def asked_of(control: Engine, other: Engine, text: str) -> list[Question]:
    answers = []
    for name, engine in (("control", control), ("b", other)):
        (said,) = converse(engine, text, max_tokens=40)
        answers.append(answer(name, *said.result.token_ids, prompt_sha256=said.result.prompt_sha256))
    asked_prompt = Prompt(
        id="quick/0",
        workload="quick",
        prompt_class="code",
        turns=(({"role": "user", "content": text},),),
        max_tokens=40,
    )
    return questions(plan(arm("control"), arm("b"), prompts=(asked_prompt,)), answers, widths(b=4))


TEXTS = ("Name three fruits.", "Tell a story.", "What is a tree?", "Count to ten.")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("models")
    return {"target": tiny.build(folder / "target"), "other": tiny.build_noisy(folder / "other", noise=0.05)}


def load(kind: type[Any], checkpoint: dict[str, Any], draft: dict[str, Any] | None = None) -> Any:
    engine = kind(settings={}, checkpoint=checkpoint, draft=draft, sampling={})
    engine.load()
    return engine


def test_what_rounding_turned_is_a_near_tie(built: dict[str, dict[str, Any]]) -> None:
    """Verify passes of four tokens whose logits are off by up to 0.4, as no CPU's but a GPU's might be, in both."""
    plain, wide = load(MlxLm, built["target"]), load(MlxLmDraft, built["target"], built["other"])
    for engine in (plain, wide):
        engine.target = replace(engine.target, model=Perturbed(engine.target.model, size=0.4))
    found = []
    for text in TEXTS:
        for asked in asked_of(plain, wide, text):
            found.append(score_of(plain, asked, [{"role": "user", "content": text}]))
    assert found, "no answer was turned: put in more rounding"
    assert {each.verdict for each in found} == {"near_tie"}
    assert all(each.gap is not None and 0 <= each.gap < 0.8 for each in found)


def test_what_other_weights_turned_is_real(built: dict[str, dict[str, Any]]) -> None:
    plain, other = load(MlxLm, built["target"]), load(MlxLm, built["other"])
    found = []
    for text in TEXTS:
        for asked in asked_of(plain, other, text):
            found.append(score_of(plain, asked, [{"role": "user", "content": text}]))
    assert found
    assert "real" in {each.verdict for each in found}
    assert "near_tie" not in {each.verdict for each in found if (each.gap or 0) > 1e-3}


# ---- passes ----


def named(*arms: Arm) -> Plan:
    return plan(*arms)


def test_a_checkpoint_is_timed_on_its_plainest_arm_at_all_widths_of_its_arms() -> None:
    planned = named(arm("d4", draft="s"), arm("plain"), arm("d8", draft="s"), arm("other", checkpoint="x"))
    found = timings(planned, widths(d4=4, plain=None, d8=8, other=None))
    assert [(each.what, each.arms, each.widths, each.draft) for each in found] == [
        ("c", ("plain", "d4", "d8"), (1, 4, 8), False),
        ("draft s", ("d4", "d8"), (), True),
    ]


def test_without_speculation_there_is_nothing_to_time() -> None:
    assert not timings(named(arm("a"), arm("b")), widths(a=None, b=None))


def test_a_round_that_ran_wider_than_its_arm_is_timed_too() -> None:
    """mlx-dspark copies long matches whole; without that width the cost of the rounds is unknown."""
    planned = named(arm("plain"), arm("d", draft="s"))
    long = [answer("d", 1, 2, steps_json="[[6, 2, 3], [14, 14, 15], [0, 0, 1]]"), answer("plain", 1, 2)]
    assert timings(planned, widths(plain=None, d=7), long)[0].widths == (1, 7, 15)
    short = [answer("d", 1, 2, steps_json="[[6, 2, 3], [2, 0, 1]]")]
    assert timings(planned, widths(plain=None, d=7), short)[0].widths == (1, 7)


def test_an_arm_that_never_loaded_is_not_asked() -> None:
    found = timings(named(arm("plain"), arm("d", draft="s")), widths(d=4))
    assert [each.arms for each in found] == [("d",), ("d",)]


def test_the_context_is_that_of_the_turn_of_median_length() -> None:
    lengths = {"quick/0": 40, "quick/1": 100, "quick/2": 4000}
    answers = [answer("control", 1, 2, 3, 4, prompt_id=key, prompt_tokens=size) for key, size in lengths.items()]
    planned = plan(arm("control"), arm("b"), prompts=tuple(prompt(number) for number in range(3)))
    found = context_of(planned, answers, "control")
    assert found is not None
    assert (found.context_tokens, found.messages[0]["content"]) == (102, "question 1, turn 0")
    assert context_of(planned, answers, "b") is None


@pytest.mark.parametrize(("trials_s", "expected"), [(20.0, 20.0), (900.0, 90.0), (30_000.0, 300.0)])
def test_probes_take_a_tenth_of_the_trials_time_within_bounds(trials_s: float, expected: float) -> None:
    assert budget_s(TWO, trials_s=trials_s) == expected
    assert budget_s(plan(arm("control"), probe_budget_s=7.0), trials_s=trials_s) == 7.0
