"""Probes on tiny random models: what they tell is what the engine did; rounding that is put in is found again."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.plan import Deadlines
from tests.workers import tiny, tiny_drafts
from tests.workers.perturbed import Perturbed
from workers.engines.base import Engine
from workers.engines.contract import converse
from workers.engines.dflash import Dflash
from workers.engines.mlx_common import MlxEngine
from workers.engines.mlx_lm import MlxLm
from workers.engines.mlx_lm_draft import MlxLmDraft
from workers.engines.mlx_probes import Budget, Probed, time_passes, timed
from workers.engines.omlx import Omlx
from workers.engines.prompt_lookup import PromptLookup
from workers.engines.simulated import Simulated
from workers.errors import FaultKind, ProbeUnsupported, WorkerFault
from workers.protocol import Generate, Load, PassesTimed, Regenerate, Scored, ScoreTokens, TimePasses, Unsupported
from workers.supervision.worker_process import WorkerProcess, WorkerSpec

QUESTION = "Name three fruits."
MESSAGES = [{"role": "user", "content": QUESTION}]


def loaded(
    kind: Callable[..., Engine], checkpoint: Mapping[str, Any], draft: Mapping[str, Any] | None = None, **settings: Any
) -> Any:
    engine = kind(settings=settings, checkpoint=checkpoint, draft=draft, sampling={})
    engine.load()
    return engine


def score_request(
    prompt_sha256: str,
    token_ids: Sequence[int],
    *,
    rivals: Sequence[int] = (),
    widths: Sequence[int] = (1, 4),
    **more: Any,
) -> ScoreTokens:
    values: dict[str, Any] = {"most_likely": 5, "budget_s": 60.0} | more
    return ScoreTokens(
        request_id="p",
        messages=MESSAGES,
        prompt_sha256=prompt_sha256,
        token_ids=list(token_ids),
        rivals=list(rivals),
        widths=list(widths),
        **values,
    )


def regenerate_request(prompt_sha256: str) -> Regenerate:
    return Regenerate(request_id="r", messages=MESSAGES, prompt_sha256=prompt_sha256, max_tokens=8, budget_s=60.0)


def pass_request(*widths: int, draft: bool = False, **more: Any) -> TimePasses:
    values: dict[str, Any] = {"context_tokens": 40, "repeats": 9, "seed": 1, "budget_s": 60.0} | more
    return TimePasses(
        request_id="p", messages=MESSAGES, token_ids=[5, 6, 7], widths=list(widths), draft=draft, **values
    )


def perturb(engine: MlxEngine, size: float) -> None:
    engine.target = replace(engine.target, model=Perturbed(engine.target.model, size=size))


# ---- how likely ----


@pytest.mark.parametrize(
    "settings", [{}, {"prefill_step_size": 7}, {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 0}], ids=str
)
def test_the_most_likely_token_is_the_one_that_was_answered(target: dict[str, Any], settings: dict[str, Any]) -> None:
    engine = loaded(MlxLm, target, **settings)
    (said,) = converse(engine, QUESTION, max_tokens=10)
    tokens = said.result.token_ids
    for place in (0, 4, 9):
        found = engine.score(score_request(said.result.prompt_sha256, tokens[:place], rivals=[tokens[place], 3]))
        assert found.top[0].token_id == tokens[place]
        assert found.rivals[0] == found.top[0]
        assert found.rivals[1].token_id == 3
        values = [each.logprob for each in found.top]
        assert values == sorted(values, reverse=True)
        assert len(values) == 5
        assert all(value < 0 for value in values)
        assert found.compared_places == place + 1


def test_a_cpu_rounds_alike_at_every_width(target: dict[str, Any]) -> None:
    engine = loaded(MlxLm, target)
    (said,) = converse(engine, QUESTION, max_tokens=10)
    found = engine.score(score_request(said.result.prompt_sha256, said.result.token_ids[:9], widths=[1, 2, 4, 16]))
    assert [each.width for each in found.changes] == [2, 4, 16]  # compared with one token per pass
    assert max(each.largest for each in found.changes) < 1e-4


@pytest.mark.parametrize("size", [0.001, 0.3])
def test_rounding_that_is_put_in_is_found_at_its_size(target: dict[str, Any], size: float) -> None:
    engine = loaded(MlxLm, target)
    (said,) = converse(engine, QUESTION, max_tokens=10)
    perturb(engine, size)
    found = engine.score(score_request(said.result.prompt_sha256, said.result.token_ids[:9], widths=[4, 8]))
    assert len(found.changes) == 2  # one per width
    for change in found.changes:
        assert 0.1 * size < change.at_place <= change.largest < 2.5 * size  # the softmax moves by up to `size` too


def test_another_prompt_than_the_one_that_was_answered_is_refused(target: dict[str, Any]) -> None:
    with pytest.raises(ProbeUnsupported, match="another prompt"):
        loaded(MlxLm, target).score(score_request("0" * 64, [1, 2]))


def test_a_probe_ends_with_its_time(target: dict[str, Any]) -> None:
    engine = loaded(MlxLm, target)
    (said,) = converse(engine, QUESTION)
    with pytest.raises(ProbeUnsupported, match="were over while"):
        engine.score(score_request(said.result.prompt_sha256, said.result.token_ids, budget_s=0.0))


def test_an_answer_after_a_probe_is_the_same(target: dict[str, Any], near: dict[str, Any]) -> None:
    engine = loaded(MlxLmDraft, target, near)
    (before,) = converse(engine, QUESTION)
    engine.start_conversation()
    engine.score(score_request(before.result.prompt_sha256, before.result.token_ids[:5]))
    engine.time_passes(pass_request(2, draft=True))
    engine.settle()
    (after,) = converse(engine, QUESTION)
    assert after.result.token_ids == before.result.token_ids
    assert after.result.steps == before.result.steps


# ---- how long ----


def test_passes_of_every_width_are_timed(target: dict[str, Any], near: dict[str, Any]) -> None:
    found = loaded(MlxLmDraft, target, near).time_passes(pass_request(1, 4, 8, draft=True))
    assert [(each.role, each.width) for each in found.timings] == [
        ("draft", 1), ("target", 1), ("target", 4), ("target", 8),
    ]  # fmt: skip
    for each in found.timings:
        assert 0 < each.low_s <= each.median_s <= each.high_s < 10
        assert each.repeats == 9
    assert found.context_tokens == 40
    assert not found.notes


def test_a_pass_leaves_the_cache_as_it_was(target: dict[str, Any]) -> None:
    """Else each pass would find a longer context."""
    from mlx_lm.models.cache import make_prompt_cache

    made: list[Any] = []
    model = loaded(MlxLm, target).target.model

    def make() -> list[Any]:
        made.append(make_prompt_cache(model))
        return list(made[-1])

    probed = Probed(model=model, make_cache=make, prefill_step_size=16)
    time_passes(probed, None, pass_request(1, 8), prompt_ids=[3, 4, 5])
    assert {layer.offset for layer in made[0]} == {40}


def test_a_cache_that_cannot_be_trimmed_is_put_back(tmp_path: Path) -> None:
    engine = loaded(MlxLm, tiny.build_recurrent(tmp_path / "recurrent"))
    found = engine.time_passes(pass_request(1, 4))
    assert [each.width for each in found.timings] == [1, 4]


@pytest.mark.parametrize("version", [1, 2])
def test_the_pass_of_a_block_draft_is_timed(tmp_path: Path, version: int) -> None:
    checkpoint = tiny_drafts.build_target(tmp_path / "target")
    draft = tiny_drafts.build_draft(tmp_path / "draft", version=version)
    engine = loaded(Dflash, checkpoint, draft, block_size=4)
    (before,) = converse(engine, QUESTION)
    engine.start_conversation()
    found = engine.time_passes(pass_request(1, 4, draft=True))
    (drafted, *_) = found.timings
    trained = json.loads((Path(draft["path"]) / "config.json").read_text())["block_size"]
    assert (drafted.role, drafted.width) == ("draft", trained)  # it drafts the whole block whatever is verified
    assert not found.notes
    (after,) = converse(engine, QUESTION)
    assert after.result.token_ids == before.result.token_ids


def test_a_package_that_runs_the_target_in_its_own_way_is_not_timed(tmp_path: Path) -> None:
    checkpoint = tiny_drafts.build_target(tmp_path / "target")
    engine = loaded(Dflash, checkpoint, tiny_drafts.build_draft(tmp_path / "draft"), backend="dflash-mlx")
    with pytest.raises(ProbeUnsupported, match="dflash-mlx runs the target in its own way"):
        engine.time_passes(pass_request(1))


def test_looking_up_has_no_drafting_pass_to_time(target: dict[str, Any]) -> None:
    found = loaded(PromptLookup, target).time_passes(pass_request(1, 7, draft=True))
    assert [each.width for each in found.timings] == [1, 7]
    assert found.notes == ["looking up takes no pass of a model"]


def test_every_round_holds_every_width_once_in_changing_order() -> None:
    called: list[int] = []

    def at(width: int) -> Callable[[int], float]:
        def seconds(repeat: int) -> float:
            called.append(width)
            return 0.5 if repeat == 0 else float(width)

        return seconds

    passes = {("target", width): at(width) for width in (1, 2, 4)}
    found, notes = timed(passes, pass_request(1, 2, 4), Budget(60.0, clock=Ticking()))
    rounds = [tuple(called[start : start + 3]) for start in range(0, len(called), 3)]
    assert len(rounds) == 10
    assert all(sorted(each) == [1, 2, 4] for each in rounds)
    assert len(set(rounds)) > 2
    assert [each.median_s for each in found] == [1.0, 2.0, 4.0]  # the first round is left out
    assert not notes


class Ticking:
    """A clock that a pass moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(("pass_s", "repeats"), [(0.1, 9), (1.0, 6)])
def test_fewer_repetitions_where_the_time_does_not_suffice(pass_s: float, repeats: int) -> None:
    clock = Ticking()

    def seconds(repeat: int) -> float:
        clock.now_s += pass_s
        return pass_s

    (found,), _ = timed({("target", 1): seconds}, pass_request(1), Budget(7.0, clock=clock))
    assert found.repeats == repeats


def test_the_longest_passes_are_left_out_where_the_time_does_not_suffice() -> None:
    clock = Ticking()

    def at(width: int) -> Callable[[int], float]:
        def seconds(repeat: int) -> float:
            clock.now_s += width
            return float(width)

        return seconds

    passes = {("target", width): at(width) for width in (1, 2, 8, 16)}
    found, notes = timed(passes, pass_request(1, 2, 8, 16), Budget(50.0, clock=clock))
    assert [each.width for each in found] == [1, 2]
    assert notes == ["no time for the target's passes of width 8", "no time for the target's passes of width 16"]


def test_too_few_repetitions_are_none() -> None:
    clock = Ticking()

    def seconds(repeat: int) -> float:
        clock.now_s += 3.0
        return 3.0

    with pytest.raises(ProbeUnsupported, match="after 2 repetitions"):
        timed({("target", 1): seconds}, pass_request(1), Budget(8.0, clock=clock))


# ---- over the channel ----


@pytest.fixture
def spec(tmp_path: Path) -> WorkerSpec:
    return WorkerSpec(run_id="r", arm="a", log_path=tmp_path / "log", journal_path=tmp_path / "journal")


def load_of(target: str, checkpoint: Mapping[str, Any]) -> Load:
    return Load(target=target, settings={}, checkpoint=dict(checkpoint), draft=None, sampling={})


def test_a_worker_answers_probes_after_its_generations(spec: WorkerSpec, target: dict[str, Any]) -> None:
    with WorkerProcess(spec) as worker:
        worker.load(load_of("workers.engines.mlx_lm.MlxLm", target), Deadlines())
        (said,) = worker.generate(Generate(request_id="g", turns=[MESSAGES], max_tokens=8, seed=1), Deadlines())
        scored = worker.probe(score_request(said.prompt_sha256, said.token_ids[:3]), limit_s=60)
        assert isinstance(scored, Scored)
        assert scored.top[0].token_id == said.token_ids[3]
        assert isinstance(worker.probe(pass_request(1, 2), limit_s=60), PassesTimed)
        refused = worker.probe(score_request("0" * 64, []), limit_s=60)
        assert isinstance(refused, Unsupported)
        with pytest.raises(WorkerFault) as caught:
            worker.probe(replace(pass_request(1), messages=[], token_ids=[]), limit_s=60)
        assert caught.value.alive
        assert caught.value.kind is FaultKind.probe_failed
        (again,) = worker.generate(Generate(request_id="h", turns=[MESSAGES], max_tokens=8, seed=1), Deadlines())
        assert again.token_ids == said.token_ids


def test_an_engine_that_cannot_be_probed_reports_it_and_goes_on(spec: WorkerSpec) -> None:
    with WorkerProcess(spec) as worker:
        worker.load(load_of("workers.engines.simulated.Simulated", {}), Deadlines())
        for request in (score_request("0" * 64, []), pass_request(1), regenerate_request("0" * 64)):
            answer = worker.probe(request, limit_s=20)
            assert isinstance(answer, Unsupported)
            assert "Simulated" in answer.reason
        assert worker.alive


def test_servers_that_may_end_speculation_are_not_probed_and_say_why() -> None:
    engine = Omlx(settings={}, checkpoint={}, draft=None, sampling={})
    with pytest.raises(ProbeUnsupported, match="text, not tokens"):
        engine.score(score_request("0" * 64, []))
    with pytest.raises(ProbeUnsupported, match="text, not tokens"):
        engine.regenerate(regenerate_request("0" * 64))
    with pytest.raises(ProbeUnsupported, match="not single passes"):
        engine.time_passes(pass_request(1))


def test_simulated_engines_are_not_probed() -> None:
    with pytest.raises(ProbeUnsupported):
        Simulated(settings={}, checkpoint={}, draft=None, sampling={}).regenerate(regenerate_request("0" * 64))
    with pytest.raises(ProbeUnsupported):
        Simulated(settings={}, checkpoint={}, draft=None, sampling={}).time_passes(pass_request(1))
