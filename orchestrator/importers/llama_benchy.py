"""llama-benchy's JSON report: one benchmark per shape and concurrency, each metric with its raw `values`.

Times are milliseconds there and are checked against the prompt's rate, which gives a similar time. A value's place in
one list is its place in another only where the lists are equally long: others are left out, with a note. A value's
own time is not in the file, and sizes are those asked for.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.importers.fields import Tally, bits_of, distinct_names, parse_time, seconds
from orchestrator.importers.foreign_run import (
    ForeignArm,
    ForeignGeneration,
    ForeignResults,
    ForeignTrial,
    Machine,
    Model,
    Versions,
)

NAME = "llama-benchy"
FILE = "llama-benchy's JSON report"
_TOP = frozenset(
    "version timestamp latency_mode latency_ms model prefix_caching_enabled max_concurrency benchmarks".split()
)
_SHAPE = ("context_size", "prompt_size", "response_size", "is_context_prefill_phase")
_METRICS = (
    "pp_throughput pp_req_throughput tg_throughput tg_req_throughput peak_throughput peak_req_throughput ttfr est_ppt"
    " e2e_ttft"
).split()
_BENCHMARK = frozenset(("concurrency", *_SHAPE, *_METRICS, "throughput_over_time", "requests_throughput_over_time"))
# Our name of each imported metric, and llama-benchy's.
_TAKEN = {"prefill_tps": "pp_req_throughput", "decode_tps": "tg_req_throughput", "ttft_ms": "e2e_ttft"}


def recognises(body: Any) -> bool:
    """Return whether the body is an object with llama-benchy's way of measuring latency."""
    return (
        isinstance(body, Mapping)
        and {"latency_mode", "benchmarks"} <= body.keys()
        and isinstance(body["benchmarks"], list)
    )


def read(body: Any) -> ForeignResults:
    """Read a decoded file; see the module."""
    tally = Tally()
    kept = tally.rest(body, _TOP)
    benchmarks = body["benchmarks"]
    configurations = [{"concurrency": one.get("concurrency")} for one in benchmarks]
    names = [f"{body.get('model', 'unknown')} {name}".strip() for name in distinct_names(configurations, first=())]
    arms: dict[str, ForeignArm] = {}
    trials: list[ForeignTrial] = []
    for benchmark, name in zip(benchmarks, names, strict=True):
        rest = tally.rest(benchmark, _BENCHMARK)
        arms.setdefault(name, _arm(name, body, benchmark, kept | rest))
        trials += _trials(name, benchmark, tally)
    tally.say("values have no times of their own in this file")
    tally.say("sizes are those asked for: token counts are not in the file")
    return ForeignResults(
        format=NAME,
        tool_version=body.get("version"),
        started_at=parse_time(body.get("timestamp")),
        timing="none",
        machine=Machine(),
        versions=Versions(packages={NAME: body.get("version")}),
        arms=tuple(arms.values()),
        trials=tuple(trials),
        notes=tally.notes(),
    )


def _arm(name: str, body: Mapping[str, Any], benchmark: Mapping[str, Any], kept: Mapping[str, Any]) -> ForeignArm:
    model = str(body.get("model", "unknown"))
    return ForeignArm(
        name=name,
        engine=NAME,
        model=Model(name=model, bits=bits_of(model)),
        settings={
            "concurrency": benchmark.get("concurrency"),
            "prefix_caching": body.get("prefix_caching_enabled"),
            "latency_mode": body.get("latency_mode"),
        },
        kept={"latency_ms": body.get("latency_ms"), "max_concurrency": body.get("max_concurrency")} | dict(kept),
    )


def _trials(name: str, benchmark: Mapping[str, Any], tally: Tally) -> Iterator[ForeignTrial]:
    lists = {ours: _values(benchmark, theirs) for ours, theirs in _TAKEN.items()}
    longest = max(map(len, lists.values()), default=0)
    for ours, values in lists.items():
        if values and len(values) < longest:
            tally.say(
                f"{_TAKEN[ours]}: fewer values than others of its benchmark, so they cannot be assigned; left out"
            )
            lists[ours] = []
    for at in range(longest):
        taken = {ours: values[at] if values else None for ours, values in lists.items()}
        yield ForeignTrial(arm=name, generation=_generation(benchmark, taken, tally))


def _values(benchmark: Mapping[str, Any], metric: str) -> list[Any]:
    found = benchmark.get(metric)
    return list(found.get("values") or []) if isinstance(found, Mapping) else []


def _generation(benchmark: Mapping[str, Any], taken: Mapping[str, Any], tally: Tally) -> ForeignGeneration:
    context, prompt, response = (int(benchmark.get(key) or 0) for key in _SHAPE[:3])
    shape = f"pp{prompt} tg{response}" + (f" @ d{context}" if context else "")
    prefilling = bool(benchmark.get("is_context_prefill_phase"))
    rate = tally.above_zero(taken["prefill_tps"], "pp_req_throughput")
    return ForeignGeneration(
        prompt=f"{shape}, context" if prefilling else shape,
        prompt_class="context" if prefilling else "prompt",
        max_tokens=response,
        ttft_s=seconds(
            tally.above_zero(taken["ttft_ms"], "e2e_ttft"),
            prompt / rate if rate and prompt else None,
            "e2e_ttft",
            tally,
        ),
        prefill_tps=rate,
        decode_tps=tally.above_zero(taken["decode_tps"], "tg_req_throughput"),
    )
