"""guidellm's `benchmarks.json`, of versions 0.2 to today: a benchmark a load (strategy), requests with their own times.

Files of 0.1 nest their benchmarks in reports: `guidellm_reports` reads them.

Every stamp of a request is seconds since the epoch, so rates are computed from them and the file's milliseconds are not
needed; where a file has only those, they are checked against the request's latency, which is in seconds. Distributions
hold 0 for values that a request did not report: they are used only if no request was kept.
"""

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.importers import guidellm_reports
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
from orchestrator.importers.plausibility import LEFT_OUT, share_of, told_of
from orchestrator.plan import canonical_json

NAME = "guidellm"
FILE = "guidellm's benchmarks.json"
AGGREGATE = "aggregate"
_DATA_SHOWN = 200
_BENCHMARK = frozenset(
    (
        "type_ id_ run_id args config run_stats worker request_loader extras metrics request_totals request_samples"
        " requests start_time end_time duration warmup_duration cooldown_duration scheduler_state scheduler_metrics"
        " benchmarker scheduler environment duration_"
    ).split()
)
_LOAD_LEFT_OUT = frozenset(("type_", "kind", "start_time"))  # the time a load began at is no part of the load
_STATUSES = {"successful": None, "incomplete": "the request was not completed", "errored": "the request failed"}


def recognises(body: Any) -> bool:
    """Return whether the body is an object whose benchmarks hold requests and metrics, or is of version 0.1."""
    if guidellm_reports.recognises(body):
        return True
    if not isinstance(body, Mapping) or not isinstance(body.get("benchmarks"), list) or not body["benchmarks"]:
        return False
    first = body["benchmarks"][0]
    return isinstance(first, Mapping) and {"metrics", "requests"} <= first.keys()


def read(body: Any) -> ForeignResults:
    """Read a decoded file; see the module."""
    if guidellm_reports.recognises(body):
        return guidellm_reports.read(body)
    tally = Tally()
    benchmarks = body["benchmarks"]
    settings = [_strategy(benchmark) for benchmark in benchmarks]
    names = distinct_names(settings, first=("type",))
    arms: dict[str, ForeignArm] = {}
    trials: list[ForeignTrial] = []
    for benchmark, strategy, name in zip(benchmarks, settings, names, strict=True):
        kept = tally.rest(benchmark, _BENCHMARK)
        prompt = _prompt(body, benchmark)
        arms.setdefault(name, _arm(name, body, benchmark, strategy, kept))
        found = list(_requests(name, prompt, benchmark, tally))
        _tell_of_the_rest(name, benchmark, tally)
        trials += found or [_summary(name, prompt, benchmark, tally)]
    trials.sort(key=lambda trial: _stamp(trial.started_at))
    metadata = body.get("metadata") or {}
    times = [trial.started_at for trial in trials if trial.started_at is not None]
    return ForeignResults(
        format=NAME,
        tool_version=metadata.get("guidellm_version"),
        started_at=min(times, default=None),
        timing="own" if times else "none",
        machine=Machine(os=metadata.get("platform"), detail=dict(metadata)),
        versions=Versions(
            python=metadata.get("python_version"), packages={"guidellm": metadata.get("guidellm_version")}
        ),
        arms=tuple(arms.values()),
        trials=tuple(trials),
        notes=tally.notes(),
    )


def _tell_of_the_rest(name: str, benchmark: Mapping[str, Any], tally: Tally) -> None:
    """Note requests that failed or were cancelled, and those that the file leaves out: it may keep only a sample.

    Each version counts them in places of its own, and one file's counts need not agree: the largest is taken.
    """
    metrics, scheduler = _mapping(benchmark.get("metrics")), _mapping(benchmark.get("scheduler_state"))
    places = [
        _mapping(benchmark.get("request_totals")),
        _mapping(metrics.get("request_totals")),
        _mapping(_mapping(benchmark.get("run_stats")).get("requests_made")),
        _mapping(_mapping(benchmark.get("scheduler_metrics")).get("requests_made")),
        {status: scheduler.get(f"{status}_requests") for status in ("successful", "errored", "cancelled")},
        {status: len(kept) for status, kept in _mapping(benchmark.get("requests")).items() if isinstance(kept, list)},
    ]

    def most(*statuses: str) -> int:
        counts = (place.get(status) for place in places for status in statuses)
        return max((each for each in counts if isinstance(each, int) and not isinstance(each, bool)), default=0)

    completed, failed, cancelled = most("successful"), most("errored"), most("incomplete", "cancelled")
    whole = completed + failed + cancelled
    kept = len(_mapping(benchmark.get("requests")).get("successful") or [])
    for note in told_of(name, [("failed", failed), ("were cancelled or not completed", cancelled)], whole):
        tally.say(note)
    if 0 < kept < completed:
        tally.say(f"{LEFT_OUT}{name}: the file keeps {share_of(kept, completed, 'completed requests')}")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _stamp(at: dt.datetime | None) -> float:
    return 0.0 if at is None else at.timestamp()


def _strategy(benchmark: Mapping[str, Any]) -> dict[str, Any]:
    """The load: its kind, and its rate or its streams."""
    config = benchmark.get("config") or benchmark.get("args") or {}
    found = config.get("strategy") or {}
    if not isinstance(found, Mapping):
        found = {"type_": str(found)}
    named = {"type": found.get("type_") or found.get("kind") or "unknown"}
    return named | {key: value for key, value in found.items() if key not in _LOAD_LEFT_OUT and _plain(value)}


def _prompt(body: Mapping[str, Any], benchmark: Mapping[str, Any]) -> str:
    """Name the prompt by the file's description of its data set, from which all its requests are drawn."""
    for place in (body.get("args"), body.get("config"), benchmark.get("request_loader")):
        data = place.get("data") if isinstance(place, Mapping) else None
        if data:
            return f"requests of {canonical_json(data)[:_DATA_SHOWN]}"
    return "requests"


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _model(body: Mapping[str, Any], benchmark: Mapping[str, Any]) -> str:
    """The model's name, wherever this version of the format puts it."""
    places: tuple[tuple[Mapping[str, Any] | None, tuple[str, ...]], ...] = (
        (benchmark, ("worker", "backend_model")),
        (body, ("args", "model")),
        (body, ("config", "model")),
        (body, ("config", "backend", "model")),
        (benchmark, ("config", "backend", "model")),
        (body, ("args", "backend_kwargs", "model")),
    )
    for place, path in places:
        found: Any = place
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        if isinstance(found, str) and found:
            return found
    return "unknown"


def _arm(
    name: str,
    body: Mapping[str, Any],
    benchmark: Mapping[str, Any],
    strategy: Mapping[str, Any],
    kept: Mapping[str, Any],
) -> ForeignArm:
    model = _model(body, benchmark)
    return ForeignArm(
        name=name,
        engine=NAME,
        model=Model(name=model, bits=bits_of(model)),
        settings=dict(strategy),
        kept={"args": benchmark.get("args"), "config": benchmark.get("config")} | dict(kept),
    )


def _requests(name: str, prompt: str, benchmark: Mapping[str, Any], tally: Tally) -> Iterator[ForeignTrial]:
    requests = benchmark.get("requests") or {}
    for status, failure in _STATUSES.items():
        for request in requests.get(status) or []:
            message = request.get("error") or (request.get("info") or {}).get("error")
            error = None if failure is None else f"{failure}: {message}" if message else failure
            yield _trial(name, prompt, request, error, tally)


def _trial(name: str, prompt: str, request: Mapping[str, Any], error: str | None, tally: Tally) -> ForeignTrial:
    timings = (request.get("info") or {}).get("timings") or {}
    start, end = (
        _first(timings, request, "request_start", "start_time"),
        _first(timings, request, "request_end", "end_time"),
    )
    generation = _generation(prompt, request, timings, start, end, tally)
    if error is None and generation.completion_tokens is None and not (generation.ttft_s or request.get("output")):
        error = "no tokens were generated"
    return ForeignTrial(
        arm=name, started_at=parse_time(start), wall_s=generation.total_s, generation=generation, error=error
    )


def _first(timings: Mapping[str, Any], request: Mapping[str, Any], new: str, old: str) -> float | None:
    found = timings.get(new) or request.get(old)
    return float(found) if found else None


def _generation(
    prompt: str,
    request: Mapping[str, Any],
    timings: Mapping[str, Any],
    start: float | None,
    end: float | None,
    tally: Tally,
) -> ForeignGeneration:
    first = _first(timings, request, "first_token_iteration", "first_token_time")
    last = _first(timings, request, "last_token_iteration", "last_token_time")
    latency_s = tally.number(request, "request_latency")
    total_s = end - start if start and end and end > start else latency_s
    if first and start and first > start:
        ttft_s: float | None = first - start
    else:
        ttft_s = seconds(
            tally.number(request, "time_to_first_token_ms"), _half(total_s), "time_to_first_token_ms", tally
        )
    tokens, prompt_tokens = _counted(request, timings, tally), tally.count(request, "prompt_tokens")
    cached = request.get("cached_tokens")
    decoding_s = last - first if first and last and last > first else None
    return ForeignGeneration(
        prompt=prompt,
        prompt_class="requests",
        turn=int((request.get("info") or {}).get("turn_index") or 0),
        prompt_tokens=prompt_tokens,
        cached_tokens=cached if isinstance(cached, int) and not isinstance(cached, bool) else None,
        completion_tokens=tokens,
        ttft_s=ttft_s,
        decode_tps=(tokens - 1) / decoding_s if tokens and tokens > 1 and decoding_s else None,
        end_to_end_tps=tokens / total_s if tokens and total_s else None,
        total_s=total_s,
    )


def _counted(request: Mapping[str, Any], timings: Mapping[str, Any], tally: Tally) -> int | None:
    """The tokens of the answer. Where the server stated no usage, 0.6 puts the number of chunks there: no count."""
    stated = request.get("output_metrics")
    if isinstance(stated, Mapping) and stated.get("total_tokens", stated.get("text_tokens")) is None:
        if request.get("output_tokens") or timings.get("token_iterations"):
            tally.say(
                "the server stated no usage, and chunks of its streams are no tokens: such requests have no rates"
            )
        return None
    return tally.count(request, "output_tokens")


def _half(total_s: float | None) -> float | None:
    """Half of the request's time, a likely size of its TTFT: the first token comes within the request."""
    return None if total_s is None else total_s / 2


def _summary(name: str, prompt: str, benchmark: Mapping[str, Any], tally: Tally) -> ForeignTrial:
    """One trial for all requests of a benchmark that kept none."""
    tally.say("no single requests in the file: the medians of the distributions stand for them as one trial")
    metrics = benchmark["metrics"]

    def median(metric: str) -> float | None:
        successful = (metrics.get(metric) or {}).get("successful") or {}
        return tally.above_zero(successful.get("median"), f"{metric}.median")

    gap_ms, tokens, prompt_tokens = (
        median("inter_token_latency_ms"),
        median("output_token_count"),
        median("prompt_token_count"),
    )
    total_s = median("request_latency")
    gap_s = seconds(gap_ms, total_s / tokens if total_s and tokens else None, "inter_token_latency_ms", tally)
    ttft_s = seconds(median("time_to_first_token_ms"), _half(total_s), "time_to_first_token_ms", tally)
    return ForeignTrial(
        arm=name,
        started_at=parse_time(benchmark.get("start_time")),
        wall_s=tally.number(benchmark, "duration"),
        generation=ForeignGeneration(
            prompt=prompt,
            prompt_class="requests",
            prompt_tokens=None if prompt_tokens is None else round(prompt_tokens),
            completion_tokens=None if tokens is None else round(tokens),
            ttft_s=ttft_s,
            decode_tps=None if gap_s is None else 1 / gap_s,
            end_to_end_tps=tokens / total_s if tokens and total_s else None,
            total_s=total_s,
            flags=(AGGREGATE,),
        ),
    )
