"""Multi-token prediction by mtplx's own loop, in its own environment, on tiny random models with heads."""

from pathlib import Path
from typing import Any

import pytest

from tests.workers import tiny_drafts
from tests.workers.answering import answering, check
from tests.workers.environments import elsewhere
from workers.engines.contract import converse
from workers.engines.mlx_lm import MlxLm
from workers.engines.mtp import Mtp, steps_of
from workers.engines.speculative import VerifyStep
from workers.errors import EngineError, FaultKind, WorkerFault

MTP = "workers.engines.mtp.Mtp"
PROMPT = "Write down what a linked list is."


@pytest.fixture(scope="module")
def python() -> Path:
    return elsewhere()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def random(folder: Path) -> dict[str, Any]:
    return tiny_drafts.build_hybrid(folder / "random", heads=True)


@pytest.fixture(scope="module")
def echo(folder: Path) -> dict[str, Any]:
    return tiny_drafts.build_hybrid(folder / "echo", heads=True, echoes=True)


@pytest.mark.slow
def test_random_heads_engage_and_the_tokens_are_those_of_plain_decoding(
    python: Path, random: dict[str, Any], tmp_path: Path
) -> None:
    plain = MlxLm(settings={}, checkpoint=random, draft=None, sampling={"name": "greedy"})
    plain.load()
    wanted = [answer.result for answer in converse(plain, PROMPT, "And a tree?", max_tokens=17)]
    with answering(python, MTP, folder=tmp_path, checkpoint=random, settings={"depth": 2}) as worker:
        found = worker.ask(PROMPT, "And a tree?", max_tokens=17)
    for answer, expected in zip(found, wanted, strict=True):
        check(answer, max_tokens=17)
        assert answer.token_ids == list(expected.token_ids)
        assert answer.text == expected.text
        assert answer.finish_reason == expected.finish_reason
        assert answer.evidence[0].mechanism == "mtp"
        assert answer.evidence[0].engaged


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_heads_that_are_always_right_fill_every_step(
    python: Path, echo: dict[str, Any], tmp_path: Path, depth: int
) -> None:
    with answering(python, MTP, folder=tmp_path, checkpoint=echo, settings={"depth": depth}) as worker:
        assert worker.loaded.engine_setting == {"speculative_depth": depth}
        assert (worker.loaded.drafted_per_step, worker.loaded.verify_width) == (depth, depth + 1)
        for max_tokens in (1, 2, 1 + 3 * (depth + 1)):
            (answer,) = worker.ask(PROMPT, max_tokens=max_tokens)
            check(answer, max_tokens=max_tokens)
            assert len(answer.token_ids) == max_tokens
    sign = answer.evidence[0]
    assert (sign.engaged, sign.useful) == (True, True)
    assert sign.accepted == sum(step[1] for step in answer.steps or ())
    assert [step[:2] for step in answer.steps or ()][:2] == [[depth, depth]] * 2


@pytest.mark.slow
def test_copies_are_off_unless_asked_for_and_then_counted_apart(
    python: Path, random: dict[str, Any], tmp_path: Path
) -> None:
    """Two turns: in the second, what the model says stands in the context."""
    for copies in (False, True):
        settings = {"depth": 2, "copy_drafts": copies}
        with answering(python, MTP, folder=tmp_path, checkpoint=random, settings=settings) as worker:
            evidence = worker.ask(PROMPT, "And a tree?", max_tokens=17)[1].evidence
        assert [sign.mechanism for sign in evidence] == ["mtp", "copy_drafts"][: 1 + copies]
        assert evidence[0].accepted == 0
    assert evidence[1].accepted


@pytest.mark.slow
def test_versions_are_those_of_the_other_environment(python: Path, random: dict[str, Any], tmp_path: Path) -> None:
    with answering(python, MTP, folder=tmp_path, checkpoint=random) as worker:
        assert worker.process.hello is not None
        versions = worker.process.hello.versions
    assert versions["mlx-lm"] == "0.31.3"
    assert versions["mtplx"] == worker.loaded.engine_version == "2.12.2"


@pytest.mark.slow
def test_a_checkpoint_without_heads_never_runs_plainly(python: Path, folder: Path, tmp_path: Path) -> None:
    headless = tiny_drafts.build_hybrid(folder / "headless")
    with (
        pytest.raises(WorkerFault, match="headless has no multi-token prediction heads") as refused,
        answering(python, MTP, folder=tmp_path, checkpoint=headless),
    ):
        pass
    assert refused.value.kind is FaultKind.draft_mismatch


@pytest.mark.parametrize(
    ("settings", "sampling", "words"),
    [({"depth": 0}, {}, "depth is 0: give"), ({}, {"min_p": 0.1}, "has no min_p")],
)
def test_what_it_cannot_do_is_refused(
    random: dict[str, Any], settings: dict[str, Any], sampling: dict[str, Any], words: str
) -> None:
    engine = Mtp(settings=settings, checkpoint=random, draft=None, sampling={"name": "greedy"} | sampling)
    with pytest.raises(EngineError, match=words) as refused:
        engine.load()
    assert refused.value.kind is FaultKind.unsupported_setting


def test_events_become_steps() -> None:
    events: list[dict[str, Any]] = [
        {"drafts": [{}, {}], "accepted_depths": 1},
        {"drafts": [], "accepted_depths": 0},
        {"drafts": [], "accepted_depths": 7, "verify_width": 9, "context_copy": {"block": 8}},
        {"drafts": [{}], "accepted_depths": 0, "verify_width": 2, "context_copy": {"mode": "draft_source"}},
    ]
    assert steps_of(events, verify_calls=3) == [
        VerifyStep(drafted=2, accepted=1),
        VerifyStep(drafted=8, accepted=7, source="copy"),
        VerifyStep(drafted=1, accepted=0),
    ]
    with pytest.raises(EngineError, match="reports 3 verify steps and counted 4"):
        steps_of(events, verify_calls=4)
