"""The contract of every engine: one test suite for all of them, those of other packages included. Needs pytest.

A test module takes part with a fixture `case` (an `EngineCase`, best of module scope) and a class that inherits:

    @pytest.fixture(scope="module")
    def case() -> Iterator[EngineCase]:
        with engine_case(make, requested=False) as case:
            yield case

    class TestContract(EngineContract):
        pass
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, NoReturn

import pytest

from workers.engines.base import Engine, LoadInfo, TurnRequest, TurnResult
from workers.errors import EngineError, FaultKind
from workers.protocol import Evidence
from workers.settings import declarations, problems
from workers.stopwatch import Stopwatch

FIRST = "Write down what a linked list is, and how an element is removed from it."
SECOND = "Now do the same for a tree."


class BrokenOff(Exception):
    """Raised at a tick, to end an answer before its time."""


def _break_off() -> NoReturn:
    raise BrokenOff


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCase:
    """One configuration of an engine under the contract."""

    make: Callable[[Mapping[str, Any]], Engine]  # not loaded; the settings are added to the case's own
    requested: bool  # asks for a mechanism beyond plain decoding
    engine: Engine  # loaded
    info: LoadInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One turn as the worker would record it."""

    result: TurnResult
    stamps_us: list[int]

    @property
    def evidence(self) -> Evidence:
        """The sign of the way of decoding; others, of a quantised cache say, come after it."""
        return self.result.evidence[0]


@contextmanager
def engine_case(make: Callable[[Mapping[str, Any]], Engine], *, requested: bool) -> Iterator[EngineCase]:
    """A loaded case, closed at the end."""
    engine = make({})
    case = EngineCase(make=make, requested=requested, engine=engine, info=engine.load())
    try:
        yield case
    finally:
        engine.close()


def converse(engine: Engine, *prompts: str, max_tokens: int = 12, seed: int = 3, sequence: int = 0) -> list[Answer]:
    """Hold one conversation in the order of calls that `workers.engines.base` lays down."""
    engine.start_conversation()
    messages: list[dict[str, str]] = []
    answers = []
    for turn, prompt in enumerate(prompts):
        messages.append({"role": "user", "content": prompt})
        request = TurnRequest(
            messages=list(messages),
            turn=turn,
            max_tokens=max_tokens,
            seed=seed,
            sequence=sequence,
            sequence_total=sequence + 1,
        )
        answers.append(answer(engine, request))
        messages.append({"role": "assistant", "content": answers[-1].result.text})
    return answers


def answer(engine: Engine, request: TurnRequest) -> Answer:
    """One turn."""
    engine.prepare(request)
    stopwatch = Stopwatch(engine.clock)
    stopwatch.time(engine.answer)
    result = engine.finish()
    engine.settle()
    return Answer(result=result, stamps_us=stopwatch.stamps_us(result.tokens_per_stamp))


class EngineContract:
    """Inherit as a Test class; see the module."""

    def test_the_width_is_normalised(self, case: EngineCase) -> None:
        if case.info.drafted_per_step is None:
            assert not case.requested
            assert case.info.verify_width == 1
        elif case.info.drafted_per_step == 0:  # fillers widen the passes, nothing is proposed
            assert case.info.verify_width is not None
            assert case.requested is (case.info.verify_width > 1)
        else:
            assert case.requested
            assert case.info.verify_width == case.info.drafted_per_step + 1

    def test_a_token_has_one_stamp_in_order(self, case: EngineCase) -> None:
        (only,) = converse(case.engine, FIRST)
        assert len(only.stamps_us) == only.result.tokens > 0
        assert len(only.result.token_ids) in (0, only.result.tokens)
        assert all(earlier <= later for earlier, later in pairwise(only.stamps_us))
        assert only.stamps_us[0] > 0

    @pytest.mark.parametrize("max_tokens", [1, 2, 7])
    def test_max_tokens_is_the_most_it_yields(self, case: EngineCase, max_tokens: int) -> None:
        (only,) = converse(case.engine, FIRST, max_tokens=max_tokens)
        count = only.result.tokens
        assert 1 <= count <= max_tokens
        assert only.result.finish_reason in {"stop", "length"}
        assert only.result.finish_reason == "stop" or count == max_tokens

    def test_values_are_plain_ones(self, case: EngineCase) -> None:
        """Numbers of an array package would not travel as JSON."""
        (only,) = converse(case.engine, FIRST)
        assert {type(token) for token in only.result.token_ids} <= {int}
        assert {type(value) for step in only.result.steps or () for value in step} <= {int}
        assert type(only.result.prompt_tokens) is int
        assert type(only.result.text) is str

    @pytest.mark.parametrize("max_tokens", [1, 2, 7, 30])
    def test_steps_add_up(self, case: EngineCase, max_tokens: int) -> None:
        (only,) = converse(case.engine, FIRST, max_tokens=max_tokens)
        steps = only.result.steps
        if steps is None:
            return
        for drafted, accepted, committed in steps:
            assert 0 <= accepted <= drafted
            assert 1 <= committed
            assert accepted <= committed <= accepted + 1
        count = only.result.tokens
        assert sum(committed for _, _, committed in steps) in {count, count - 1}

    def test_plain_decoding_has_no_steps(self, case: EngineCase) -> None:
        (only,) = converse(case.engine, FIRST)
        assert case.requested or only.result.steps is None

    def test_evidence_comes_with_every_turn(self, case: EngineCase) -> None:
        for each in converse(case.engine, FIRST, SECOND):
            assert all(sign.mechanism and sign.source and sign.text for sign in each.result.evidence)
            sign = each.evidence
            assert sign.requested is case.requested
            if not sign.requested:
                assert (sign.engaged, sign.useful) == (False, False)

    def test_evidence_agrees_with_the_steps(self, case: EngineCase) -> None:
        for each in converse(case.engine, FIRST, SECOND, max_tokens=20):
            sign = each.evidence
            if sign.drafted is None or sign.accepted is None:
                continue
            assert sign.engaged is (sign.drafted > 0) or sign.mechanism == "prompt_lookup"
            assert sign.useful is (sign.accepted > 0)
            steps = each.result.steps
            assert steps is not None
            assert sign.drafted == sum(drafted for drafted, _, _ in steps)
            assert sign.accepted == sum(accepted for _, accepted, _ in steps)

    def test_the_same_seed_gives_the_same_tokens(self, case: EngineCase) -> None:
        (first,) = converse(case.engine, FIRST)
        converse(case.engine, SECOND, seed=99)
        (again,) = converse(case.engine, FIRST)
        assert again.result.token_ids == first.result.token_ids
        assert again.result.text == first.result.text

    def test_a_prompt_is_known_by_its_hash(self, case: EngineCase) -> None:
        (first,) = converse(case.engine, FIRST)
        (again,) = converse(case.engine, FIRST, seed=4)
        (other,) = converse(case.engine, SECOND)
        assert len(first.result.prompt_sha256) == 64
        assert first.result.prompt_sha256 == again.result.prompt_sha256 != other.result.prompt_sha256
        assert first.result.prompt_tokens == again.result.prompt_tokens

    def test_a_second_turn_stands_on_the_first(self, case: EngineCase) -> None:
        first, second = converse(case.engine, FIRST, SECOND)
        assert second.result.prompt_tokens > first.result.prompt_tokens
        assert second.result.tokens
        cached = second.result.cached_tokens
        assert cached is None or 0 <= cached < second.result.prompt_tokens

    def test_a_conversation_starts_without_a_prefix(self, case: EngineCase) -> None:
        """Else the second trial of a prompt would not be a repetition of the first."""
        converse(case.engine, FIRST, SECOND)
        (fresh,) = converse(case.engine, FIRST)
        assert not fresh.result.cached_tokens

    def test_a_turn_that_was_broken_off_leaves_nothing_behind(self, case: EngineCase) -> None:
        (whole,) = converse(case.engine, FIRST)
        case.engine.start_conversation()
        message = {"role": "user", "content": SECOND}
        case.engine.prepare(TurnRequest(messages=[message], turn=0, max_tokens=12, seed=3))
        with pytest.raises(BrokenOff):
            case.engine.answer(_break_off)
        case.engine.settle()
        (after,) = converse(case.engine, FIRST)
        assert (after.result.token_ids, after.result.text) == (whole.result.token_ids, whole.result.text)
        assert len(after.stamps_us) == after.result.tokens

    def test_its_settings_are_declared(self, case: EngineCase) -> None:
        kind = type(case.engine).settings_kind
        declared = declarations(kind)
        assert {each.name for each in fields(kind)} == set(declared)
        assert all(each.meaning.endswith(".") for each in declared.values())
        assert not list(problems(kind, {name: getattr(kind(), name) for name in declared}))

    def test_a_setting_that_it_does_not_know_is_refused_by_name(self, case: EngineCase) -> None:
        with pytest.raises(EngineError, match="blok_size") as refused:
            case.make({"blok_size": 4}).load()
        assert refused.value.kind is FaultKind.unsupported_setting
        assert "\n" not in str(refused.value)
