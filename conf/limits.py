"""What a value must satisfy besides its type, by schema. Pure."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from conf import schema

# Says what is wrong with a value, or nothing.
Rule = Callable[[Any], str | None]


def at_least(bound: float) -> Rule:
    return lambda value: None if value >= bound else f"is {value}: give at least {bound:g}"


def within(low: float, high: float) -> Rule:
    """Both ends included."""
    return lambda value: None if low <= value <= high else f"is {value}: give a value from {low:,} to {high:,}"


def above(bound: float) -> Rule:
    return lambda value: None if value > bound else f"is {value}: give more than {bound:g}"


def between(low: float, high: float) -> Rule:
    """Both ends excluded."""
    return lambda value: None if low < value < high else f"is {value}: give a value between {low:g} and {high:g}"


def one_of(*words: Any) -> Rule:
    return lambda value: None if value in words else f"is {value}: choose one of {', '.join(map(str, words))}"


_KV_BITS = one_of(2, 3, 4, 5, 6, 8)
_DRAFT_BITS = one_of(2, 4, 8)
_VERIFY_MODE = one_of("dflash", "adaptive", "ddtree", "off")
_SERVER: dict[str, Rule] = {"ready_s": above(0), "first_token_s": above(0), "idle_s": above(0)}
_OMLX: dict[str, Rule] = {
    "prefix_cache_bytes": at_least(0),
    "burst_decode": one_of("off", "light", "balanced", "aggressive"),
    "max_context": at_least(1),
}
# What workers.machine.drift and workers.engines.simulated know; conf imports neither, so a test holds them equal.
_DRIFTS = ("none", "linear", "saturating", "step", "random_walk", "bursts", "duty_cycle")
_FAULTS = (
    "crash", "segfault", "exit0", "garbage", "flood", "oom", "load_error", "hang_load", "hang_first", "hang_between",
    "endless", "slow_stop", "error", "zero_tokens", "print", "print_flood",
)  # fmt: skip

RULES: dict[type[Any], dict[str, Rule]] = {
    schema.CheckpointConfig: {
        "bits": at_least(1),
        "group_size": at_least(1),
        "bytes_read_per_token": at_least(1),
        "dtype": one_of("float32", "bfloat16", "float16"),
    },
    schema.MlxLmConfig: {
        "prefill_step_size": at_least(1),
        "max_kv_size": at_least(8),
        "kv_bits": _KV_BITS,
        "kv_group_size": at_least(1),
        "quantized_kv_start": at_least(0),
    },
    schema.MlxLmDraftConfig: {
        # Of a block, one token is the target's own: below 2 nothing would be drafted.
        "block_size": at_least(2),
        "prefill_step_size": at_least(1),
    },
    schema.PromptLookupConfig: {
        "block_size": at_least(2),
        "long_block_size": at_least(2),
        "ngram_min": at_least(1),
        "ngram_max": at_least(1),
    },
    schema.VerifyCostConfig: {"block_size": at_least(1), "prefill_step_size": at_least(1)},
    schema.MlxLmServerConfig: {"prefill_step_size": at_least(1), "kv_bits": _KV_BITS, **_SERVER},
    schema.MlxLmServerDraftConfig: {
        "block_size": at_least(2),
        "prefill_step_size": at_least(1),
        "kv_bits": _KV_BITS,
        **_SERVER,
    },
    schema.DflashServerConfig: {
        "block_size": at_least(2),
        "verify_mode": _VERIFY_MODE,
        "draft_bits": _DRAFT_BITS,
        "draft_group_size": at_least(1),
        "prefix_cache_bytes": at_least(1),
        "max_context": at_least(1),
        "fastpath_max_tokens": at_least(0),
        **_SERVER,
    },
    schema.OmlxConfig: {**_OMLX, **_SERVER},
    schema.OmlxDflashConfig: {
        "block_size": at_least(2),
        "verify_mode": _VERIFY_MODE,
        "draft_bits": _DRAFT_BITS,
        "draft_group_size": at_least(1),
        "dflash_max_context": at_least(1),
        **_OMLX,
        **_SERVER,
    },
    schema.OmlxMtpConfig: {"depth": at_least(1), **_OMLX, **_SERVER},
    schema.OpenaiHttpConfig: {"block_size": at_least(1), "first_token_s": above(0), "idle_s": above(0)},
    schema.DflashConfig: {
        "backend": one_of("mlx-dspark", "dflash", "dflash-mlx"),
        "block_size": at_least(2),
        "verify_mode": one_of("fixed", "adaptive"),
        "draft_bits": one_of(4, 8),
        "draft_group_size": one_of(32, 64, 128),
        "prefix_cache_bytes": at_least(0),
    },
    schema.MtpConfig: {"depth": within(1, 16)},
    schema.SimulatedConfig: {
        "effect": above(0),
        "decode_tps": above(0),
        "prefill_tps": above(0),
        "noise": at_least(0),
        "drift": one_of(*_DRIFTS),
        "drift_size": above(-1),
        "block_size": at_least(1),
        "acceptance": within(0, 1),
        "stop_after": at_least(1),
        "fault": one_of(*_FAULTS),
        "fault_at": at_least(0),
    },
    schema.WorkloadConfig: {
        "kind": one_of("prompts", "two_turns"),
        "max_tokens": within(1, 1_000_000),
        "document_tokens": within(100, 1_000_000),
        "seed": at_least(0),
    },
    schema.SamplingConfig: {
        "temperature": at_least(0),
        "top_p": lambda value: None if 0 < value <= 1 else f"is {value}: give a value above 0, up to 1",
        "top_k": at_least(0),
        "min_p": within(0, 1),
    },
    schema.DeadlineConfig: dict.fromkeys(
        ("load_s", "first_token_s", "inter_token_s", "total_s", "teardown_s"), above(0)
    ),
    schema.DesignConfig: {
        "rounds": within(1, 100_000),
        "seed": at_least(0),
        "alpha": between(0, 1),
        "margin": at_least(0),
        "warmups": within(0, 100),
        "probe_prompts": at_least(0),
        "probe_budget_s": above(0),
        "cached_share_max": within(0, 1),
    },
    schema.GateConfig: {
        "thermal_level_max": within(0, 4),
        "exclude_thermal_level_above": within(0, 4),
        "vm_pressure_max": one_of(1, 2, 4),
        "memory_stalled_max": within(0, 1),
        "canary_tolerance": between(0, 1),
        **dict.fromkeys(("canary_interval_s", "sampler_interval_s"), at_least(0.1)),
        **dict.fromkeys(
            (
                "cooldown_s thermal_hold_s timeout_s cpu_cores_others_max cpu_window_s gpu_ms_per_s_others_max"
                " gpu_window_s swap_growth_bytes_max busy_timeout_s busy_budget_s canary_tokens"
                " exclude_clock_gap_above_s exclude_cpu_cores_others_above exclude_gpu_ms_per_s_others_above"
                " exclude_swap_growth_above_bytes replays orphan_bytes orphan_interval_s settle_s wake_tokens"
            ).split(),
            at_least(0),
        ),
    },
}


def problems(config: type[Any], values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(key, what is wrong with its value) for a group's resolved values; null is judged by nobody here."""
    rules = RULES.get(config, {})
    for key, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            yield key, f"is {value}: give a finite number"
        elif value is not None and value != "???" and key in rules and (problem := rules[key](value)):
            yield key, problem
    if values.get("max_kv_size") is not None and values.get("kv_bits") is not None:
        yield "kv_bits", "excludes max_kv_size: a cache that rotates is not quantised; set one of them to null"
