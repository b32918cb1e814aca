"""The memory plan: sums that keep what is unknown unknown, and the choice that follows from them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.plan import Arm
from orchestrator.planning import residency
from orchestrator.planning.memory import (
    ArmMemory,
    Cache,
    ModelSize,
    arm_memory,
    held_note,
    kv_bytes_per_token,
    load_note,
    peak_note,
    plan_memory,
    share_of_memory_bytes,
)
from orchestrator.planning.residency import choose_order, explain, model_size, plan_of
from tests.orchestrator import plans

MODEL = ModelSize(weights_bytes=28_000_000_000, kv_bytes_per_token=100_000)
DRAFT = ModelSize(weights_bytes=3_760_000_000, kv_bytes_per_token=20_000)
UNKNOWN = ModelSize(weights_bytes=None, kv_bytes_per_token=None)


def dummy(name: str = "tiny", **checkpoint: object) -> Arm:
    base = plans.arm(name)
    engine = {"_target_": "workers.engines.mlx_lm.MlxLm", "name": "mlx_lm"}
    shape = {"name": name, "source": "dummy", "shape": "tiny", "bits": None, "draft": None} | checkpoint
    return Arm(name=name, checkpoint=shape, engine=engine, sampling=base.sampling, draft=None)


# ---- sums ----


def test_the_cache_is_keys_and_values_of_every_layer() -> None:
    assert kv_bytes_per_token(layers=30, kv_heads=3, head_dim=64, bytes_per_value=4) == 46_080
    assert kv_bytes_per_token(layers=30, kv_heads=3, head_dim=64, bytes_per_value=0.5) == 5_760


def test_an_arm_holds_weights_draft_both_caches_and_its_process() -> None:
    arm = arm_memory("a", model=MODEL, draft=DRAFT, context_tokens=1000, overhead_bytes=7)
    assert (arm.weights_bytes, arm.draft_bytes, arm.kv_cache_bytes) == (28_000_000_000, 3_760_000_000, 120_000_000)
    assert arm.total_bytes == 31_880_000_007
    assert arm_memory("a", model=MODEL, draft=None, context_tokens=0, overhead_bytes=0).total_bytes == 28_000_000_000


@pytest.mark.parametrize(
    ("model", "draft"),
    [(UNKNOWN, None), (MODEL, UNKNOWN), (ModelSize(weights_bytes=1, kv_bytes_per_token=None), None)],
)
def test_an_unknown_part_leaves_the_sum_unknown(model: ModelSize, draft: ModelSize | None) -> None:
    arm = arm_memory("a", model=model, draft=draft, context_tokens=10)
    assert arm.total_bytes is None
    memory = plan_memory([arm], budget_bytes=10**15)
    assert (memory.total_bytes, memory.resident_fits, memory.too_large) == (None, None, ())


def test_an_article_s_model_fits_its_machine_once_and_not_twice() -> None:
    """28 GB at 8 bits with a draft of 3.76 GB, in the 37.4 GB that a 48 GB machine recommends."""
    speculating = arm_memory("draft", model=MODEL, draft=DRAFT, context_tokens=4000)
    plain = arm_memory("plain", model=MODEL, draft=None, context_tokens=4000)
    alone = plan_memory([speculating], budget_bytes=37_400_000_000)
    both = plan_memory([plain, speculating], budget_bytes=37_400_000_000)
    assert (alone.resident_fits, both.resident_fits) == (True, False)
    assert both.too_large == ()
    assert plan_memory([speculating], budget_bytes=30_000_000_000).too_large == (speculating,)


def test_without_a_budget_nothing_is_refused() -> None:
    arm = arm_memory("a", model=MODEL, draft=None, context_tokens=0)
    assert plan_memory([arm], budget_bytes=None).resident_fits is None
    assert share_of_memory_bytes(None) is None
    assert share_of_memory_bytes(48_000_000_000) == 32_000_000_000


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=6), st.integers(0, 10**12))
def test_arms_fit_together_when_their_sum_does(sizes: list[int], budget: int) -> None:
    arms = [
        ArmMemory(name=str(i), weights_bytes=size, draft_bytes=0, kv_cache_bytes=0, overhead_bytes=0)
        for i, size in enumerate(sizes)
    ]
    memory = plan_memory(arms, budget_bytes=budget)
    assert memory.resident_fits == (sum(sizes) <= budget)
    assert len(memory.too_large) == sum(size > budget for size in sizes)


# ---- the choice ----


def test_arms_that_fit_stay_loaded_and_a_round_is_one_prompt() -> None:
    order = choose_order("auto", "auto", [dummy("a"), dummy("b")], [plans.prompt()])
    assert (order.interleave_by, order.residency) == ("prompt", "resident")
    assert order.note is not None
    assert "fit the" in order.note


def test_arms_that_do_not_fit_together_are_swapped_and_a_round_is_the_prompt_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(residency, "_memory_bytes", lambda: 1_000_000_000)
    order = choose_order("auto", "auto", [dummy("a"), dummy("b")], [plans.prompt()])
    assert (order.interleave_by, order.residency) == ("workload", "swap")
    assert (
        order.note
        == "rounds by workload, arms are loaded in turn: all arms together (1.2 GB) do not fit the 0.7 GB budget"
    )


def test_unknown_sizes_keep_the_finest_pairing_and_the_note_names_the_models() -> None:
    arms = [dummy("here"), dummy("away", source="local", path="/no/such/folder")]
    order = choose_order("auto", "auto", arms, [plans.prompt()])
    assert (order.interleave_by, order.residency) == ("prompt", "resident")
    assert order.note == "rounds by prompt, arms stay loaded: memory unknown before loading (away)"


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        (("workload", "auto"), ("workload", "resident")),
        (("auto", "swap"), ("workload", "swap")),
        (("prompt", "swap"), ("prompt", "swap")),
        (("auto", "resident"), ("prompt", "resident")),
    ],
)
def test_what_is_asked_for_is_kept(asked: tuple[str, str], chosen: tuple[str, str]) -> None:
    order = choose_order(*asked, [dummy()], [plans.prompt()])
    assert (order.interleave_by, order.residency) == chosen
    assert (order.note is None) == ("auto" not in asked)


def test_simulated_arms_hold_no_model() -> None:
    memory = plan_of([plans.arm("a")], [plans.prompt()])
    assert (memory.arms, memory.budget_bytes) == ((), None)
    assert explain(memory, [plans.arm("a")]) == "simulated arms hold no model"


def test_a_checkpoint_that_is_not_here_has_no_size() -> None:
    assert model_size({"name": "x", "source": "local", "path": "/no/such/folder"}) == UNKNOWN
    assert (model_size(dummy().checkpoint).weights_bytes or 0) > 100_000


def test_a_quantised_cache_is_the_models_and_never_its_drafts() -> None:
    plain = arm_memory("a", model=MODEL, draft=DRAFT, context_tokens=1000)
    model_only = arm_memory("a", model=MODEL, draft=None, context_tokens=1000, cache=Cache(bits=4, group_size=64))
    both = arm_memory("a", model=MODEL, draft=DRAFT, context_tokens=1000, cache=Cache(bits=4, group_size=64))
    assert model_only.kv_cache_bytes is not None
    assert plain.kv_cache_bytes == 120_000_000
    assert model_only.kv_cache_bytes < 50_000_000
    assert both.kv_cache_bytes == model_only.kv_cache_bytes + 20_000_000


@pytest.mark.parametrize(
    ("cache", "tokens", "expected"),
    [
        (Cache(), 1000, 100_000_000),
        (Cache(bits=4, group_size=64), 1000, 28_125_000),  # 4 bits, and of 64 values a scale and an offset of 16
        (Cache(bits=8, group_size=32), 1000, 56_250_000),
        (Cache(bits=4, quantised_from=1001), 1000, 100_000_000),
        (Cache(bits=4, quantised_from=1000), 1000, 28_125_000),
        (Cache(rotates_at=600), 1000, 60_000_000),
        (Cache(rotates_at=1001), 1000, 100_000_000),
        (Cache(can_quantise=True), 0, 0),
    ],
)
def test_what_a_cache_takes(cache: Cache, tokens: int, expected: int) -> None:
    assert cache.kv_bytes(MODEL, tokens) == expected
    assert cache.kv_bytes(UNKNOWN, tokens) is None


def test_a_prefix_cache_is_its_budget_or_one_more_cache_and_a_remedy_knows_which() -> None:
    def held(**cache: Any) -> ArmMemory:
        return arm_memory("a", model=MODEL, draft=DRAFT, context_tokens=1000, overhead_bytes=0, cache=Cache(**cache))

    budget, last, unknown = held(prefix_bytes=7), held(keeps_last=True, prefix_bytes=7), held(prefix_bytes=None)
    assert (budget.prefix_cache_bytes, budget.prefix_is_budget) == (7, True)
    assert (last.prefix_cache_bytes, last.prefix_is_budget) == (120_000_000, False)
    assert (unknown.total_bytes, unknown.prefix_is_budget, held().prefix_is_budget) == (None, False, False)
    assert (held().cache_bytes_per_token, last.cache_bytes_per_token) == (120_000, 240_000)
    assert held(rotates_at=600).cache_bytes_per_token is None
    assert held(can_quantise=True).quantised_kv_bytes == 53_125_000 + 20_000_000
    assert held(can_quantise=True, bits=4).quantised_kv_bytes is None
    assert held(can_quantise=True, rotates_at=600).quantised_kv_bytes is None
    assert held().quantised_kv_bytes is None


@pytest.mark.parametrize(
    ("planned", "measured", "share"),
    [(None, 5, None), (0, 5, None), (10**9, None, None), (10**9, 11 * 10**8, None), (10**9, 9 * 10**8, None),
     (10**9, 112 * 10**7, "+12%"), (10**9, 88 * 10**7, "-12%")],
)  # fmt: skip
def test_memory_that_differs_by_more_than_a_tenth_is_noted(
    planned: int | None, measured: int | None, share: str | None
) -> None:
    note = load_note(planned_bytes=planned, measured_bytes=measured)
    assert (note is None) == (share is None)
    assert share is None or share in str(note)


GB = 10**9


@pytest.mark.parametrize(
    ("planned", "held", "is_noted"),
    [(None, GB, False), (0, GB, False), (GB, None, False), (GB, 9 * 10**8, False), (GB, 9 * 10**8 - 1, True),
     (GB, 242 * 10**7, False), (GB, 242 * 10**7 + 1, True)],
)  # fmt: skip
def test_processes_may_hold_the_weights_and_an_allowance_for_two(
    planned: int | None, held: int | None, *, is_noted: bool
) -> None:
    """1 GB of weights and twice 0.6 GB, each with a tenth more."""
    note = held_note(planned_bytes=planned, held_bytes=held)
    assert (note is not None) == is_noted
    assert note is None or "against planned weights of 1.00 GB and up to 1.2 GB beside them" in note


@pytest.mark.parametrize(
    ("planned", "peak", "share"),
    [(None, GB, None), (0, GB, None), (GB, None, None), (GB, 11 * 10**8, None), (GB, 10**8, None),
     (GB, 112 * 10**7, "+12%")],
)  # fmt: skip
def test_only_a_peak_above_what_was_planned_is_noted(planned: int | None, peak: int | None, share: str | None) -> None:
    note = peak_note(planned_bytes=planned, peak_bytes=peak)
    assert (note is None) == (share is None)
    assert note is None or (share in note and "up to 1.12 GB were held" in note)


def test_a_server_that_runs_already_needs_nothing_more() -> None:
    attached = arm_memory("a", model=MODEL, draft=None, context_tokens=10, attached=True)
    alone = arm_memory("b", model=MODEL, draft=None, context_tokens=0, overhead_bytes=0)
    assert attached.total_bytes == 0
    for budget, fits in ((28 * GB, True), (28 * GB - 1, False)):
        memory = plan_memory([attached, alone], budget_bytes=budget)
        assert (memory.total_bytes, memory.resident_fits, bool(memory.too_large)) == (28 * GB, fits, not fits)
    assert plan_memory([alone], budget_bytes=None).resident_fits is None
    assert (share_of_memory_bytes(48 * GB), share_of_memory_bytes(None)) == (32 * GB, None)
