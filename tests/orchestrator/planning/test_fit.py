"""Remedies for a run that does not fit: each named remedy is enough by itself; the numbers are those of the plan."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.plan import Arm
from orchestrator.planning import residency
from orchestrator.planning.fit import Conversation, misfit
from orchestrator.planning.memory import ArmMemory, Cache, ModelSize, arm_memory, peak_note, plan_memory
from orchestrator.planning.residency import cache_of, conversations, plan_of
from tests.orchestrator import plans
from tests.orchestrator.composing import plan_of as composed

GB = 10**9
MODEL = ModelSize(weights_bytes=8 * GB, kv_bytes_per_token=130_000)


def fit(arm: ArmMemory, budget: int, *, conversation: Conversation | None = None) -> str | None:
    talk = conversation or Conversation(prompt_tokens=arm.context_tokens - 100, turns=1, max_tokens=100)
    return misfit(plan_memory([arm], budget_bytes=budget), residency="swap", conversations=[talk])


def test_what_fits_or_is_unknown_is_not_refused() -> None:
    arm = arm_memory("a", model=MODEL, draft=None, context_tokens=1000)
    assert fit(arm, 20 * GB) is None
    assert misfit(plan_memory([arm], budget_bytes=None), residency="resident", conversations=[]) is None
    unknown = arm_memory("a", model=ModelSize(weights_bytes=None, kv_bytes_per_token=1), draft=None, context_tokens=1)
    assert fit(unknown, GB) is None


def test_every_part_is_named_with_its_number() -> None:
    cache = Cache(prefix_bytes=2 * GB)
    draft = ModelSize(weights_bytes=GB, kv_bytes_per_token=20_000)
    arm = arm_memory("wide", model=MODEL, draft=draft, context_tokens=30_000, cache=cache)
    why = fit(arm, 14 * GB)
    assert why is not None
    assert why.startswith(
        "arm wide needs 16.1 GB (weights 8.0 GB, draft 1.0 GB, KV cache 4.5 GB for 30,000 tokens, prefix cache 2.0 GB,"
        " process 0.6 GB), of 14.0 GB: it fits with "
    )
    assert "\n" not in why


def named(why: str | None, pattern: str) -> int | None:
    match = re.search(pattern, why or "")
    return None if match is None else int(match[1].replace(",", ""))


Remedied = Callable[[int], ArmMemory]


@given(
    weights_gb=st.integers(1, 40),
    kv_bytes=st.integers(1_000, 2_000_000),
    prompt=st.integers(1, 200_000),
    turns=st.integers(1, 3),
    answer=st.integers(1, 50_000),
    prefix_gb=st.integers(0, 20),
    budget_gb=st.integers(1, 80),
)
def test_each_remedy_alone_is_enough(
    weights_gb: int, kv_bytes: int, prompt: int, turns: int, answer: int, prefix_gb: int, budget_gb: int
) -> None:
    model = ModelSize(weights_bytes=weights_gb * GB, kv_bytes_per_token=kv_bytes)
    talk = Conversation(prompt_tokens=prompt, turns=turns, max_tokens=answer)
    budget = budget_gb * GB

    def arm(*, tokens: int = talk.tokens, prefix_bytes: int = prefix_gb * GB, bits: int | None = None) -> ArmMemory:
        cache = Cache(can_quantise=True, bits=bits, prefix_bytes=prefix_bytes)
        return arm_memory("a", model=model, draft=None, context_tokens=tokens, cache=cache)

    why = fit(arm(), budget, conversation=talk)
    assert (why is None) == ((arm().total_bytes or 0) <= budget)
    tries: list[tuple[str, Remedied]] = [
        (r"engine\.prefix_cache_bytes=(\d+)", lambda found: arm(prefix_bytes=found)),
        (r"engine\.kv_bits=(8)", lambda found: arm(bits=found)),
        (r"workload\.max_tokens=(\d+)", lambda found: arm(tokens=prompt + turns * found)),
        (r"prompts of at most ([\d,]+) tokens", lambda found: arm(tokens=found)),
    ]
    for pattern, remedied in tries:
        if (found := named(why, pattern)) is not None:
            assert (remedied(found).total_bytes or 0) <= budget, (why, pattern)
            if pattern.startswith(r"workload"):  # and it asks for no more than is needed
                assert (arm(tokens=prompt + turns * (found + 1)).total_bytes or 0) > budget


def test_arms_that_fit_alone_and_not_together() -> None:
    arms = [arm_memory(name, model=MODEL, draft=None, context_tokens=10_000) for name in ("a", "b", "c")]
    memory = plan_memory(arms, budget_bytes=25 * GB)
    talk = [Conversation(prompt_tokens=9_000, turns=1, max_tokens=1_000)]
    why = misfit(memory, residency="resident", conversations=talk)
    assert why is not None
    assert why.startswith("all arms together need 29.7 GB of 25.0 GB (a 9.9 GB, b 9.9 GB, c 9.9 GB): it fits with ")
    assert "design.residency=swap (the largest alone needs 9.9 GB)" in why
    assert "at most 2 of these 3 arms" in why
    assert misfit(memory, residency="swap", conversations=talk) is None


def test_caches_that_share_the_memory_get_smaller_together() -> None:
    cache = Cache(prefix_bytes=8 * GB)
    arms = [arm_memory(name, model=MODEL, draft=None, context_tokens=100, cache=cache) for name in ("a", "b")]
    why = misfit(plan_memory(arms, budget_bytes=25 * GB), residency="resident", conversations=[])
    share = named(why, r"engine\.prefix_cache_bytes=(\d+)")
    assert share is not None
    smaller = [
        arm_memory(name, model=MODEL, draft=None, context_tokens=100, cache=Cache(prefix_bytes=share))
        for name in ("a", "b")
    ]
    assert plan_memory(smaller, budget_bytes=25 * GB).resident_fits


# ---- what engines' settings make of their caches ----


def test_a_quantised_cache_is_smaller_from_its_start_on() -> None:
    """8 bits in groups of 64 with a scale and an offset of 2 bytes each: 8.5 bits instead of 16."""
    cache = Cache(bits=8, group_size=64, quantised_from=5000)
    assert cache.kv_bytes(MODEL, 4999) == 4999 * 130_000
    assert cache.kv_bytes(MODEL, 10_000) == round(10_000 * 130_000 * 8.5 / 16)
    assert Cache(rotates_at=1000).kv_bytes(MODEL, 10_000) == 1000 * 130_000


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ({"name": "omlx", "prefix_cache": True, "prefix_cache_bytes": 5}, Cache(prefix_bytes=5)),
        ({"name": "omlx", "prefix_cache": False, "prefix_cache_bytes": 5}, Cache()),
        (
            {"name": "dflash_server", "prefix_cache": True, "prefix_cache_bytes": None},
            Cache(prefix_bytes=8 * 2**30),
        ),
        ({"name": "dflash", "prefix_cache_bytes": 7}, Cache(prefix_bytes=7)),
        ({"name": "dflash", "prefix_cache_bytes": None}, Cache()),
        ({"name": "mlx_lm_server", "prefix_cache": True, "kv_bits": None}, Cache(can_quantise=True, keeps_last=True)),
        (
            {"name": "mlx_lm", "kv_bits": 4, "kv_group_size": 32, "quantized_kv_start": 9, "max_kv_size": None},
            Cache(can_quantise=True, bits=4, group_size=32, quantised_from=9),
        ),
    ],
)
def test_caches_by_engine(engine: dict[str, object], expected: Cache) -> None:
    assert cache_of(engine) == expected


def served(name: str, **engine: object) -> Arm:
    base = plans.arm(name)
    made = {"_target_": "workers.engines.omlx.Omlx", "name": "omlx", "prefix_cache_bytes": 3 * GB} | engine
    shape = {"name": name, "source": "dummy", "shape": "tiny", "bits": None, "draft": None}
    return Arm(name=name, checkpoint=shape, engine=made, sampling=base.sampling, draft=None)


def test_a_server_s_cache_is_part_of_the_plan_and_an_attached_server_s_model_is_not() -> None:
    launched, attached = plan_of([served("a"), served("b", attach="http://127.0.0.1:8000")], [plans.prompt()]).arms
    assert launched.prefix_cache_bytes == 3 * GB
    assert (launched.total_bytes or 0) > 3 * GB
    assert (attached.total_bytes, attached.weights_bytes) == (0, launched.weights_bytes)


def test_metal_s_recommendation_goes_before_a_share_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residency, "working_set_bytes", lambda: 37 * GB)
    assert plan_of([served("a")], [plans.prompt()]).budget_bytes == 37 * GB
    monkeypatch.setattr(residency, "working_set_bytes", lambda: None)
    monkeypatch.setattr(residency, "_memory_bytes", lambda: 48 * GB)
    assert plan_of([served("a")], [plans.prompt()]).budget_bytes == 32 * GB


def test_a_workload_s_conversations_have_their_own_lengths() -> None:
    plan = composed("checkpoint=dummy-tiny", "workload=two_turns_small", "workload.max_tokens=30")
    (talk,) = conversations(plan.prompts)
    assert (talk.turns, talk.max_tokens) == (2, 30)
    assert talk.prompt_tokens > 500


# ---- what was held in the end ----


@pytest.mark.parametrize(
    ("peak_gb", "note"),
    [
        (10.0, None),
        (10.9, None),
        (3.0, None),  # less than an allowance is no news
        (12.5, "up to 12.50 GB were held while it ran, +25% against the 10.00 GB that were planned"),
        (None, None),
    ],
)
def test_a_peak_of_a_tenth_above_the_plan_is_reported(peak_gb: float | None, note: str | None) -> None:
    peak = None if peak_gb is None else int(peak_gb * GB)
    assert peak_note(planned_bytes=10 * GB, peak_bytes=peak) == note
    assert peak_note(planned_bytes=None, peak_bytes=peak) is None
