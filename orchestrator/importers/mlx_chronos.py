"""mlx-chronos' result JSON: one engine and model per file, in three phases with one value per trial.

    ttft_cold    time to the first token of prompts not seen before
    ttft_cached  the same with the prompt in the cache
    throughput   tokens over the whole request, and over the decoding if the engine reports its time

Times are in seconds. The phases ran one after the other from the file's time stamp on; a trial's own time is not in the
file. If tokens were counted as words, no rate is stored.
"""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.importers.fields import Tally, bits_of, parse_time
from orchestrator.importers.foreign_run import (
    ForeignArm,
    ForeignGeneration,
    ForeignResults,
    ForeignTrial,
    Machine,
    Model,
    Versions,
)

NAME = "mlx-chronos"
FILE = "an mlx-chronos result"
_TOP = frozenset("hardware engine model metrics trials meta integrity".split())
_HARDWARE = frozenset(
    (
        "chip machine_model memory_gb macos_version python_version architecture thermal_state power_source"
        " low_power_mode"
    ).split()
)
_TRIALS = frozenset(
    (
        "count ttft_cold_raw ttft_cached_raw tokens_per_second_raw throughput_elapsed_seconds_raw"
        " decode_tokens_per_second_raw decode_elapsed_seconds_raw completion_tokens_raw finish_reasons_raw"
        " throughput_progress_samples_raw"
    ).split()
)
_POWER = {"ac_power": "mains", "battery": "battery", "battery_power": "battery"}
_BY_TOKENS = "usage.completion_tokens"


def recognises(body: Any) -> bool:
    """Return whether the body is an object with the parts of a result. Version 0.1.0 had no single trials."""
    return (
        isinstance(body, Mapping)
        and {"hardware", "engine", "model", "meta"} <= body.keys()
        and ("trials" in body or "metrics" in body)
        and isinstance(body["meta"], Mapping)
        and "chronos_version" in body["meta"]
    )


def read(body: Any) -> ForeignResults:
    """Read a decoded file; see the module."""
    tally = Tally()
    if "trials" not in body:
        body = _with_summary(body, tally)
    hardware, meta = body["hardware"], body["meta"]
    kept = tally.rest(body, _TOP) | tally.rest(hardware, _HARDWARE, "hardware.")
    kept |= tally.rest(body["trials"], _TRIALS, "trials.")
    at = parse_time(meta.get("timestamp"))
    arm = _arm(body, kept)
    if _durations(body):
        tally.say("a trial's time is placed by the phases' durations: the file has none of its own")
    elif at is not None:
        tally.say("no trial has a time of its own: the file does not state how long its phases took")
    return ForeignResults(
        format=NAME,
        tool_version=meta.get("chronos_version"),
        started_at=at,
        timing="placed" if at is not None else "none",
        machine=_machine(hardware, tally),
        versions=Versions(
            python=hardware.get("python_version"), packages={body["engine"]["name"]: body["engine"].get("version")}
        ),
        arms=(arm,),
        trials=tuple(_trials(arm.name, body, at, tally)),
        notes=tally.notes(),
    )


def _with_summary(body: Mapping[str, Any], tally: Tally) -> dict[str, Any]:
    """Version 0.1.0 has one value per phase, which becomes that phase's only trial."""
    tally.say("no single trials in the file (mlx-chronos 0.1.0): each phase's value stands for them as one trial")
    metrics = body["metrics"]

    def one(name: str) -> list[Any]:
        value = metrics.get(name)
        value = value.get("mean") if isinstance(value, Mapping) else value
        return [] if value is None else [value]

    trials = {f"{phase}_raw": one(phase) for phase in ("ttft_cold", "ttft_cached", "tokens_per_second")}
    return {**body, "trials": trials}


def _durations(body: Mapping[str, Any]) -> Mapping[str, Any]:
    found = body["meta"].get("phase_timings_seconds")
    return found if isinstance(found, Mapping) else {}


def _machine(hardware: Mapping[str, Any], tally: Tally) -> Machine:
    memory = tally.number(hardware, "memory_gb", scale=2**30)
    version = hardware.get("macos_version")
    return Machine(
        chip=hardware.get("chip"),
        memory_bytes=None if memory is None else round(memory),
        os=f"macOS {version}" if version else None,
        detail=dict(hardware),
    )


def _arm(body: Mapping[str, Any], kept: Mapping[str, Any]) -> ForeignArm:
    engine, model, meta = body["engine"], body["model"], body["meta"]
    protocol = meta.get("benchmark_protocol") or {}
    parameters = (protocol.get("throughput") or {}).get("generation_parameters") or {}
    return ForeignArm(
        name=f"{engine['name']} {model['name']}",
        engine=str(engine["name"]),
        engine_version=engine.get("version"),
        model=Model(name=str(model["name"]), bits=bits_of(str(model.get("quantization", "")))),
        temperature=parameters.get("temperature"),
        settings={
            "quantization": model.get("quantization"),
            "profile": meta.get("benchmark_profile"),
            "protocol": protocol.get("name"),
            "protocol_version": protocol.get("version"),
        },
        kept={"model": dict(model), "metrics": body.get("metrics"), "meta": _without_prompts(meta)} | dict(kept),
    )


def _without_prompts(meta: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in meta.items() if name != "benchmark_protocol"}


def _trials(arm: str, body: Mapping[str, Any], at: dt.datetime | None, tally: Tally) -> Iterator[ForeignTrial]:
    hardware, durations = body["hardware"], _durations(body)
    around = {
        "power_source": _POWER.get(str(hardware.get("power_source"))),
        "thermal": hardware.get("thermal_state"),
    }
    place = _Places(at, durations)
    for phase, generations in _phases(body, tally).items():
        times = place.of(phase, len(generations))
        for started_at, generation in zip(times, generations, strict=True):
            yield ForeignTrial(
                arm=arm, started_at=started_at, wall_s=generation.total_s, generation=generation, **around
            )


class _Places:
    """The times of a phase's trials: spread over it evenly, up to the first phase of unknown duration."""

    _ORDER = ("warmup", "ttft_cold", "cache_priming", "ttft_cached", "throughput")

    def __init__(self, at: dt.datetime | None, durations: Mapping[str, Any]) -> None:
        self._at = at
        self._durations = {name: durations.get(name) for name in self._ORDER}

    def of(self, phase: str, trials: int) -> list[dt.datetime | None]:
        needed = self._ORDER[: self._ORDER.index(phase) + 1]
        known = [float(each) for name in needed if (each := self._durations[name]) is not None]
        if self._at is None or len(known) < len(needed):
            return [None] * trials
        *earlier, own = known
        before, step = sum(earlier), own / max(trials, 1)
        return [self._at + dt.timedelta(seconds=before + step * number) for number in range(trials)]


def _phases(body: Mapping[str, Any], tally: Tally) -> dict[str, list[ForeignGeneration]]:
    trials, protocol = body["trials"], body["meta"].get("benchmark_protocol") or {}
    suffix = f" ({protocol['name']} {protocol.get('version')})" if protocol.get("name") else ""
    limits = {
        phase: int((protocol.get(phase) or {}).get("requested_max_tokens") or 0)
        for phase in ("ttft_cold", "ttft_cached", "throughput")
    }
    found = {
        phase: [
            ForeignGeneration(
                prompt=f"{phase}{suffix}",
                prompt_class=phase,
                max_tokens=limits[phase],
                ttft_s=tally.above_zero(value, f"{phase}_raw"),
            )
            for value in trials.get(f"{phase}_raw") or []
        ]
        for phase in ("ttft_cold", "ttft_cached")
    }
    found["throughput"] = list(_throughput(body, f"throughput{suffix}", limits["throughput"], tally))
    return found


def _throughput(body: Mapping[str, Any], prompt: str, max_tokens: int, tally: Tally) -> Iterator[ForeignGeneration]:
    trials = body["trials"]
    source = body["metrics"].get("token_count_source")
    words = source != _BY_TOKENS
    if source is None:
        tally.say(
            "token_count_source: not stated, and tokens may be words, so no rate was taken; it stays with the arm"
        )
    elif words:
        tally.say("token_count_source: words were counted, not tokens, so no rate was taken")
    rates = trials.get("tokens_per_second_raw") or []
    for index, rate in enumerate(rates):
        tokens = tally.above_zero(_at(trials.get("completion_tokens_raw"), index), "completion_tokens_raw")
        decode = tally.above_zero(
            _at(trials.get("decode_tokens_per_second_raw"), index), "decode_tokens_per_second_raw"
        )
        end_to_end = tally.above_zero(rate, "tokens_per_second_raw")
        yield ForeignGeneration(
            prompt=prompt,
            prompt_class="throughput",
            max_tokens=max_tokens,
            completion_tokens=None if tokens is None or words else round(tokens),
            finish_reason=_at(trials.get("finish_reasons_raw"), index),
            decode_tps=None if words else decode,
            end_to_end_tps=None if words else end_to_end,
            total_s=tally.above_zero(
                _at(trials.get("throughput_elapsed_seconds_raw"), index), "throughput_elapsed_seconds_raw"
            ),
            flags=() if not words else ("token_source_unknown",) if source is None else ("words_not_tokens",),
        )


def _at(values: Sequence[Any] | None, index: int) -> Any:
    return values[index] if values is not None and index < len(values) else None
