"""llama-bench of llama.cpp, `-o json` or `-o jsonl`: one object per test, its repetitions in `samples_ns`.

A test is a shape (n_prompt tokens processed, n_gen generated, at a depth of n_depth) under one configuration. Each
repetition becomes a trial. Its time is that of the test, `test_time` (UTC), plus the repetitions before it: warm-ups
and pauses in between are not in the file. Rates are the test's own: a generation test counts all its tokens over the
whole time, and there is neither a time to the first token nor sampling in it.
"""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.importers.fields import Tally, bits_of, distinct_names, file_stem, parse_time
from orchestrator.importers.foreign_run import (
    ForeignArm,
    ForeignGeneration,
    ForeignResults,
    ForeignTrial,
    Machine,
    Model,
    Versions,
)

NAME = "llama-bench"
FILE = "llama-bench -o json"
_BUILD = ("build_commit", "build_number")
_MACHINE = ("cpu_info", "gpu_info")
_MODEL = ("model_filename", "model_type", "model_size", "model_n_params")
_TEST = ("n_prompt", "n_gen", "n_depth", "test_time")
_MEASURED = ("avg_ns", "stddev_ns", "avg_ts", "stddev_ts", "samples_ns", "samples_ts")
_SETTINGS = tuple(
    (
        "backends n_batch n_ubatch n_threads cpu_mask cpu_strict poll type_k type_v n_gpu_layers n_cpu_moe split_mode"
        " main_gpu no_kv_offload flash_attn devices tensor_split tensor_buft_overrides use_mmap use_direct_io"
        " embeddings no_op_offload no_host repack fit_target fit_min_ctx load_mode moe_cache n_gen_warmup"
        " cuda opencl vulkan kompute metal sycl rpc gpu_blas blas f16_kv mul_mat_q low_vram"  # until 2024
    ).split()
)
_KNOWN = frozenset((*_BUILD, *_MACHINE, *_MODEL, *_TEST, *_MEASURED, *_SETTINGS))


def recognises(body: Any) -> bool:
    """Return whether the body is a list of objects with a test's shape and time, or one such object."""
    first = body[0] if isinstance(body, list) and body else body
    return isinstance(first, Mapping) and {"n_prompt", "n_gen", "avg_ns"} <= first.keys()


def read(body: Any) -> ForeignResults:
    """Read a decoded file; see the module. `body` is the list of tests, or a single one."""
    tests: Sequence[Mapping[str, Any]] = [body] if isinstance(body, Mapping) else body
    tally = Tally()
    configurations = [_configuration(test) for test in tests]
    names = distinct_names(configurations, first=("model",))
    arms: dict[str, ForeignArm] = {}
    trials: list[ForeignTrial] = []
    for test, name in zip(tests, names, strict=True):
        kept = tally.rest(test, _KNOWN)
        arms.setdefault(name, _arm(name, test, kept))
        trials += _trials(name, test, tally)
    tally.say("each repetition is placed after those before it, from its test's own time")
    tally.say("decode rates count all tokens over the whole time, as llama-bench does")
    first = tests[0]
    times = [time for test in tests if (time := parse_time(test.get("test_time"))) is not None]
    return ForeignResults(
        format=NAME,
        tool_version=_version(first),
        started_at=min(times, default=None),
        timing="placed" if times else "none",
        machine=Machine(
            chip=str(first.get("gpu_info") or first.get("cpu_info") or "") or None,
            detail={name: first.get(name) for name in _MACHINE},
        ),
        versions=Versions(packages={"llama.cpp": _version(first)}),
        arms=tuple(arms.values()),
        trials=tuple(trials),
        notes=tally.notes(),
    )


def _version(test: Mapping[str, Any]) -> str | None:
    parts = [str(test[name]) for name in _BUILD if test.get(name)]
    return " ".join(parts) or None


def _configuration(test: Mapping[str, Any]) -> dict[str, Any]:
    return {"model": file_stem(str(test.get("model_filename", "unknown")))} | {
        name: test[name] for name in _SETTINGS if name in test
    }


def _arm(name: str, test: Mapping[str, Any], kept: Mapping[str, Any]) -> ForeignArm:
    size = test.get("model_size")
    described = str(test.get("model_type", ""))
    return ForeignArm(
        name=name,
        engine=NAME,
        engine_version=_version(test),
        model=Model(
            name=file_stem(str(test.get("model_filename", "unknown"))),
            bits=bits_of(described),
            weights_bytes=size if isinstance(size, int) and size > 0 else None,
        ),
        settings={key: test[key] for key in _SETTINGS if key in test},
        kept={key: test.get(key) for key in ("model_type", "model_n_params", *_MACHINE)} | dict(kept),
    )


def _trials(arm: str, test: Mapping[str, Any], tally: Tally) -> Iterator[ForeignTrial]:
    samples = test.get("samples_ns") or []
    if not samples:
        tally.say("samples_ns: missing, so a test's mean stands for its repetitions")
        samples = [test.get("avg_ns")]
    at = parse_time(test.get("test_time"))
    for sample in samples:
        took_s = tally.above_zero(sample, "samples_ns", scale=1e-9)
        yield ForeignTrial(
            arm=arm,
            started_at=at,
            wall_s=took_s,
            generation=_generation(test, took_s),
            error=None if took_s is not None else "no time was recorded",
        )
        if at is not None and took_s is not None:
            at += dt.timedelta(seconds=took_s)


def _generation(test: Mapping[str, Any], took_s: float | None) -> ForeignGeneration:
    n_prompt, n_gen, n_depth = (int(test.get(name) or 0) for name in ("n_prompt", "n_gen", "n_depth"))
    kind = "pp+tg" if n_prompt and n_gen else "pp" if n_prompt else "tg"
    shape = "+".join(f"{word}{size}" for word, size in (("pp", n_prompt), ("tg", n_gen)) if size)
    return ForeignGeneration(
        prompt=f"{shape} @ d{n_depth}" if n_depth else shape,
        prompt_class=kind,
        max_tokens=n_gen,
        prompt_tokens=n_prompt + n_depth,
        cached_tokens=n_depth or None,
        completion_tokens=n_gen,
        prefill_tps=_rate(n_prompt, took_s) if kind == "pp" else None,
        decode_tps=_rate(n_gen, took_s) if kind == "tg" else None,
        end_to_end_tps=_rate(n_gen, took_s) if kind == "pp+tg" else None,
        total_s=took_s,
    )


def _rate(tokens: int, took_s: float | None) -> float | None:
    """Return the rate in tokens per second, or None if there are no tokens or no time."""
    return tokens / took_s if took_s and tokens > 0 else None
