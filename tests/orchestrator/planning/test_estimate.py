"""Durations: the sum of what a schedule holds, the words for it, and what it stands on."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from orchestrator.plan import Gate, Plan, Prompt
from orchestrator.planning.estimate import CPU, TRIAL_OVERHEAD_S, Rates, about, apple, assume, estimate
from orchestrator.planning.forecast import forecast, mac
from orchestrator.schedule import build_schedule
from tests.orchestrator import plans
from workers.machine.host import read_host

# 33 characters are 10 tokens: 1 s of prefill; 20 tokens of answer: 4 s.
ASKED = ({"role": "user", "content": "x" * 33},)
ONE = Prompt(id="q/0", workload="q", prompt_class="code", turns=(ASKED,), max_tokens=20)
TWO = Prompt(id="q/1", workload="q", prompt_class="code", turns=(ASKED, ASKED), max_tokens=20)
RATES = Rates(prefill_tps=10, decode_tps=5, load_s=3, measured=True)


def seconds(plan: Plan) -> float:
    rates = {arm.name: RATES for arm in plan.arms}
    found = estimate(plan, build_schedule(plan), rates, machine=CPU).duration_s
    assert found is not None
    return found


def test_a_schedule_lasts_as_long_as_its_trials_and_loads() -> None:
    plan = plans.plan(plans.arm("a"), plans.arm("b"), prompts=(ONE,), rounds=6, warmups=1)
    trials = 2 + 2 + 6 * 3  # warm-ups, control runs at both ends, rounds with the control twice
    assert seconds(plan) == pytest.approx(2 * 3 + trials * (5 + TRIAL_OVERHEAD_S))


def test_a_kept_prefix_is_not_processed_again() -> None:
    kept, lost = plans.arm("a", prefix_cache=True), plans.arm("a", prefix_cache=False)
    once = {"rounds": 6, "aa": False, "bracket": False, "warmups": 0}
    plan = plans.plan(kept, prompts=(TWO,), **once)
    assert seconds(plan) == pytest.approx(3 + 6 * (5 + 5 + TRIAL_OVERHEAD_S))
    plan = plans.plan(lost, prompts=(TWO,), **once)
    assert seconds(plan) == pytest.approx(3 + 6 * (5 + 3 + 5 + TRIAL_OVERHEAD_S))  # 30 tokens before, again
    for budget, again_s in ((2**30, 0), (0, 3), (None, 3)):  # of an engine that has a budget and no switch
        engine = {key: value for key, value in lost.engine.items() if key != "prefix_cache"}
        budgeted = replace(lost, engine=engine | {"prefix_cache_bytes": budget})
        plan = plans.plan(budgeted, prompts=(TWO,), **once)
        assert seconds(plan) == pytest.approx(3 + 6 * (5 + again_s + 5 + TRIAL_OVERHEAD_S))


def test_each_class_has_its_share_of_the_duration() -> None:
    deep = replace(ONE, id="q/2", prompt_class="deep", turns=(({"role": "user", "content": "x" * 3300},),))
    plan = plans.plan(plans.arm("a"), prompts=(ONE, deep), rounds=6, aa=False, bracket=False, warmups=0)
    found = estimate(plan, build_schedule(plan), {"a": RATES}, machine=CPU)
    trials = sum(len(trial.prompt_ids) for trial in build_schedule(plan)) / 2
    assert found.by_class == pytest.approx({"code": trials * (1 + 4), "deep": trials * (100 + 4)})


def test_cooling_down_and_swapping_models_cost_time() -> None:
    plan = plans.plan(plans.arm("a"), plans.arm("b"), prompts=(ONE,), rounds=6, aa=False, bracket=False, warmups=0)
    cooled = replace(plan, gate=Gate(cooldown_s=10))
    assert seconds(cooled) - seconds(plan) == pytest.approx(12 * 10)
    swapped = replace(plan, design=replace(plan.design, residency="swap"))
    order = [trial.arm for trial in build_schedule(plan)]
    changes = sum(before != after for before, after in pairwise(order))
    assert seconds(swapped) - seconds(plan) == pytest.approx(3 * changes)


@pytest.mark.parametrize(
    ("duration_s", "words"),
    [
        (0.2, "about 1 s"),
        (42.4, "about 42 s"),
        (89.9, "about 90 s"),
        (95, "about 2 min"),
        (12 * 60, "about 12 min"),
        (59.6 * 60, "about 1 h"),
        (130 * 60, "about 2 h 10 min"),
        (2 * 3600 + 58 * 60, "about 3 h"),
        (26 * 3600, "about 26 h"),
        (100 * 3600, "about 4 days"),
    ],
)
def test_durations_are_written_as_people_say_them(duration_s: float, words: str) -> None:
    assert about(duration_s) == words


@given(st.floats(0, 1e7))
def test_words_never_promise_sixty_minutes(duration_s: float) -> None:
    assert "60 min" not in about(duration_s)


def test_what_was_never_measured_is_assumed_from_the_weights() -> None:
    """9 tokens a second from 28 GB on an M5 Pro; on two x86 cores 4.8 from 152 MB and 10 from 538 MB unquantised."""
    pro = apple(307, "Apple M5 Pro")
    assert assume(28_000_000_000, pro).decode_tps == pytest.approx(9, rel=0.1)
    assert assume(28_000_000_000, apple(None, None)).decode_tps == pytest.approx(9, rel=0.5)
    assert assume(152_000_000, CPU, bits=8).decode_tps == pytest.approx(4.8, rel=0.5)
    assert assume(538_000_000, CPU, bits=32).decode_tps == pytest.approx(10, rel=0.5)
    assert assume(152_000_000, CPU) == assume(152_000_000, CPU, bits=8)
    assert not assume(1, CPU).measured


def test_a_mac_is_known_by_its_memory() -> None:
    host = replace(read_host(), chip="Apple M4 Max", gpu_cores=40)
    assert mac(host).words == "that Apple M4 Max reads 437 GB/s"
    assert mac(replace(host, gpu_cores=None)).words == "an Apple GPU that reads 200 GB/s"


def test_a_forecast_takes_the_bits_of_each_checkpoint(tmp_path: Path) -> None:
    save_file({"w": np.zeros(10**6, dtype=np.float32)}, tmp_path / "model.safetensors")
    shape = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    (tmp_path / "config.json").write_text(json.dumps(shape | {"vocab_size": 1000}))
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "tokenizer_config.json").write_text("{}")
    plan = plans.plan(plans.arm("a"), prompts=(ONE,))
    engine = {"_target_": "workers.engines.mlx_lm.MlxLm", "name": "mlx_lm"}

    def lasts(bits: int | None) -> float:
        checkpoint = {"name": "here", "source": "local", "path": str(tmp_path), "draft": None, "bits": bits}
        real = replace(plan, arms=(replace(plan.arms[0], engine=engine, checkpoint=checkpoint),))
        found = forecast(real, build_schedule(real)).duration_s
        assert found is not None
        return found

    assert lasts(32) < lasts(8) == lasts(None)


def test_the_estimate_says_what_it_stands_on() -> None:
    plan = plans.plan(plans.arm("a"), plans.arm("b"), prompts=(ONE,))
    guessed = assume(10**9, CPU)
    schedule = build_schedule(plan)
    measured = estimate(plan, schedule, {"a": RATES, "b": RATES}, machine=CPU)
    mixed = estimate(plan, schedule, {"a": RATES, "b": guessed}, machine=CPU)
    assumed = estimate(plan, schedule, {"a": guessed, "b": guessed}, machine=CPU)
    assert measured.assumption == "by rates measured on this machine"
    assert "measured on this machine; for" in mixed.assumption
    assert assumed.assumption.startswith("assuming a CPU")
    assert str(measured).startswith("about 2 min (by rates")


def test_a_forecast_of_what_is_not_here_is_unknown_and_reports_it() -> None:
    plan = plans.plan(plans.arm("a"), prompts=(ONE,))
    engine = {"_target_": "workers.engines.mlx_lm.MlxLm", "name": "mlx_lm"}
    checkpoint = {"name": "away", "source": "local", "path": "/no/such/folder", "draft": None}
    real = replace(plan, arms=(replace(plan.arms[0], engine=engine, checkpoint=checkpoint),))
    found = forecast(real, build_schedule(real))
    assert (found.duration_s, str(found)) == (None, "unknown (not on this machine yet: away)")
    assert forecast(real, build_schedule(real), measured={"a": RATES}).duration_s is not None


def test_a_forecast_of_simulated_arms_is_short() -> None:
    plan = plans.plan(plans.arm("a"), plans.arm("b"), prompts=(ONE,))
    found = forecast(plan, build_schedule(plan)).duration_s
    assert found is not None
    assert found < 60


def test_a_mixture_of_experts_is_assumed_to_read_few_weights_at_a_lower_rate() -> None:
    machine = apple(546, "Apple M4 Max")
    dense = assume(20 * 10**9, machine, bits=4)
    mixture = assume(20 * 10**9, machine, read_bytes=2 * 10**9, bits=4)
    assert mixture.decode_tps == pytest.approx(54.6)  # as measured elsewhere: about 50
    assert mixture.decode_tps > dense.decode_tps
    assert mixture.load_s == dense.load_s
