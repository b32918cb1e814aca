"""`vllm bench serve --save-result`: one object, or one a line after `--append-result`.

With `--save-detailed` each request is a trial: `ttfts` and `itls` are seconds there, whatever the summary's names say,
and `start_times` count from an unknown zero, so that only their differences are used. Without it, the summary becomes
one trial that stands for all requests. Until mid-2025 `request_goodput:` was written with its colon, and no `failed`.
`date` is the local time at the end, in no zone. Acceptance is in percent.
"""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
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
from orchestrator.importers.plausibility import told_of

NAME = "vllm-bench"
FILE = "vllm bench serve --save-result"
AGGREGATE = "aggregate"  # flag of a row that stands for several requests
_SETTINGS = "backend model_id request_rate burstiness max_concurrency num_prompts ramp_up_strategy".split()
_ROUNDING = 0.02  # some versions round rate and duration
_DETAILS = "input_lens output_lens start_times ttfts itls latencies queue_times generated_texts errors".split()
_SUMMARY = (
    "date endpoint_type label tokenizer_id duration completed failed total_input_tokens total_output_tokens"
    " request_throughput request_goodput output_throughput total_token_throughput max_output_tokens_per_s"
    " request_goodput: max_concurrent_requests rtfx ramp_up_start_rps ramp_up_end_rps spec_decode_acceptance_rate"
    " spec_decode_acceptance_length spec_decode_num_drafts spec_decode_draft_tokens spec_decode_accepted_tokens"
    " spec_decode_per_position_acceptance_rates"
).split()
_STATISTICS = ("mean_", "median_", "std_", "p")
_TIMES = ("_ttft_ms", "_tpot_ms", "_itl_ms", "_e2el_ms", "_queue_time_ms", "_client_queue_ms")


def recognises(body: Any) -> bool:
    """Return whether the body is an object with the summary's rates, or a list of such objects."""
    first = body[0] if isinstance(body, list) and body else body
    return isinstance(first, Mapping) and {"model_id", "request_throughput", "completed", "duration"} <= first.keys()


def read(body: Any) -> ForeignResults:
    """Read a decoded file; see the module."""
    results: Sequence[Mapping[str, Any]] = [body] if isinstance(body, Mapping) else body
    tally = Tally()
    names = distinct_names([{key: one.get(key) for key in _SETTINGS} for one in results], first=("backend", "model_id"))
    arms: dict[str, ForeignArm] = {}
    trials: list[ForeignTrial] = []
    starts = []
    for result, name in zip(results, names, strict=True):
        arms.setdefault(name, _arm(name, result, _rest(result, tally)))
        _tell_of_failures(name, result, tally)
        start = _start(result, tally)
        starts += [start] if start is not None else []
        trials += (
            _requests(name, result, start, tally) if result.get("ttfts") else [_summary(name, result, start, tally)]
        )
    detailed = all(result.get("start_times") for result in results)
    return ForeignResults(
        format=NAME,
        tool_version=None,
        started_at=min(starts, default=None),
        timing="none" if not starts else "own" if detailed else "placed",
        machine=Machine(),
        versions=Versions(),
        arms=tuple(arms.values()),
        trials=tuple(trials),
        notes=tally.notes(),
    )


def _tell_of_failures(name: str, result: Mapping[str, Any], tally: Tally) -> None:
    """Note the failed requests: the summary covers only completed ones, so their number decides its value.

    Older versions state no failures; then the number is that of the sent requests minus the completed ones.
    """
    completed, sent = _whole(result.get("completed")), _whole(result.get("num_prompts"))
    errors = sum(1 for error in result.get("errors") or [] if error)
    failed = max(_whole(result.get("failed")), errors)
    left_out = max(0, sent - completed - failed)
    counts = [("failed", failed), ("were sent, but have no result", left_out)]
    for note in told_of(name, counts, max(sent, completed + failed)):
        tally.say(note)


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _rest(result: Mapping[str, Any], tally: Tally) -> dict[str, Any]:
    known = {*_SETTINGS, *_DETAILS, *_SUMMARY}
    known |= {name for name in result if name.startswith(_STATISTICS) and name.endswith(_TIMES)}
    return tally.rest(result, known)


def _arm(name: str, result: Mapping[str, Any], kept: Mapping[str, Any]) -> ForeignArm:
    model = str(result["model_id"])
    return ForeignArm(
        name=name,
        engine=NAME,
        model=Model(name=model, bits=bits_of(model)),
        settings={key: result[key] for key in _SETTINGS if key in result},
        kept={key: value for key, value in result.items() if key not in _DETAILS} | dict(kept),
    )


def _start(result: Mapping[str, Any], tally: Tally) -> dt.datetime | None:
    """The start of the run. The file states the end; without a duration the start is unknown."""
    end, duration_s = parse_time(result.get("date")), tally.number(result, "duration")
    return None if end is None or duration_s is None else end - dt.timedelta(seconds=duration_s)


def _speculation(result: Mapping[str, Any], *, whole: bool) -> dict[str, Any]:
    """The speculation counters. The server counts all requests together: they prove nothing about a single one."""
    drafts = result.get("spec_decode_num_drafts")
    if not drafts:
        return {}
    text = f"for all requests together: {drafts} drafts, {result.get('spec_decode_accepted_tokens')} tokens accepted"
    if not whole:
        return {"requested": True, "engaged": None, "evidence": text}
    rate = result.get("spec_decode_acceptance_rate")
    return {
        "requested": True,
        "engaged": True,
        "useful": bool(result.get("spec_decode_accepted_tokens")),
        "evidence": text,
        "drafted": result.get("spec_decode_draft_tokens"),
        "accepted": result.get("spec_decode_accepted_tokens"),
        "verify_steps": drafts,
        "accept_length": result.get("spec_decode_acceptance_length"),
        "acceptance_rate": None if rate is None else rate / 100,
    }


def _requests(name: str, result: Mapping[str, Any], start: dt.datetime | None, tally: Tally) -> Iterator[ForeignTrial]:
    """Each request, in the order of starting where that is known."""
    starts = result.get("start_times") or []
    if not starts:
        tally.say("requests have no times of their own in this file")
    if result.get("max_concurrency") != 1:
        tally.say(
            f"up to {result.get('max_concurrency') or 'unlimited'} requests ran at once: rates are each request's"
        )
    order = sorted(range(len(result["ttfts"])), key=lambda at: starts[at] if starts else at)
    for at in order:
        offset_s = starts[at] - min(starts) if starts else 0.0
        generation = _request(result, at, tally)
        error = _item(result, "errors", at) or None
        if error is None and generation.completion_tokens is None:
            error = "no tokens were generated"
        yield ForeignTrial(
            arm=name,
            started_at=None if start is None else start + dt.timedelta(seconds=offset_s),
            wall_s=generation.total_s,
            generation=generation,
            error=error,
        )


def _request(result: Mapping[str, Any], at: int, tally: Tally) -> ForeignGeneration:
    ttft_s = tally.above_zero(result["ttfts"][at], "ttfts")
    gaps = [float(gap) for gap in _item(result, "itls", at) or []]
    tokens = tally.above_zero(_item(result, "output_lens", at), "output_lens")
    prompt_tokens = tally.above_zero(_item(result, "input_lens", at), "input_lens")
    total_s = tally.above_zero(_item(result, "latencies", at), "latencies")
    if total_s is None and ttft_s is not None:
        total_s = ttft_s + sum(gaps)
    decoding_s = None if total_s is None or ttft_s is None else total_s - ttft_s
    return ForeignGeneration(
        prompt=_prompt(result),
        prompt_class=str(result.get("label") or "requests"),
        prompt_tokens=None if prompt_tokens is None else round(prompt_tokens),
        completion_tokens=None if tokens is None else round(tokens),
        ttft_s=ttft_s,
        decode_tps=(tokens - 1) / decoding_s if tokens and tokens > 1 and decoding_s else None,
        end_to_end_tps=tokens / total_s if tokens and total_s else None,
        total_s=total_s,
        **_speculation(result, whole=False),
    )


def _summary(name: str, result: Mapping[str, Any], start: dt.datetime | None, tally: Tally) -> ForeignTrial:
    """Medians where there are some, else means; one request after the other gives an end-to-end rate."""
    tally.say("no single requests in the file (--save-detailed): its summary stands for them as one trial")
    completed, prompt_tokens = tally.count(result, "completed"), tally.count(result, "total_input_tokens")
    tokens = _tokens_each(result)
    if _contradicted(result, completed):
        tally.say(f"{name}: its rate of requests does not follow from those completed: no count per request was taken")
        prompt_tokens, tokens = None, None
    unit_s = _unit_s(result, tokens, tally)

    def typical_s(metric: str) -> float | None:
        found = tally.number(result, f"median_{metric}_ms") or tally.number(result, f"mean_{metric}_ms")
        return None if found is None else found * unit_s

    a_token_s = typical_s("tpot")
    return ForeignTrial(
        arm=name,
        started_at=start,
        wall_s=tally.number(result, "duration"),
        generation=ForeignGeneration(
            prompt=_prompt(result),
            prompt_class=str(result.get("label") or "requests"),
            prompt_tokens=round(prompt_tokens / completed) if prompt_tokens and completed else None,
            completion_tokens=None if tokens is None else round(tokens),
            ttft_s=typical_s("ttft"),
            decode_tps=None if a_token_s is None else 1 / a_token_s,
            end_to_end_tps=tally.number(result, "output_throughput") if result.get("max_concurrency") == 1 else None,
            total_s=typical_s("e2el"),
            flags=(AGGREGATE,),
            **_speculation(result, whole=True),
        ),
        error=None if completed else "no request was completed",
    )


def _contradicted(result: Mapping[str, Any], completed: int | None) -> bool:
    """Return whether rate and duration imply a number of completed requests other than the file's."""
    rate, duration_s = result.get("request_throughput"), result.get("duration")
    if not completed or not isinstance(rate, int | float) or not isinstance(duration_s, int | float):
        return False
    return abs(rate * duration_s - completed) > max(1.0, _ROUNDING * completed)


def _tokens_each(result: Mapping[str, Any]) -> float | None:
    completed, tokens = result.get("completed"), result.get("total_output_tokens")
    return tokens / completed if completed and tokens else None


def _unit_s(result: Mapping[str, Any], tokens: float | None, tally: Tally) -> float:
    """The unit of the summary's milliseconds. With one request at a time the duration shows if they are seconds."""
    a_token, duration_s, completed = result.get("mean_tpot_ms"), result.get("duration"), result.get("completed")
    if result.get("max_concurrency") != 1 or not (a_token and duration_s and completed and tokens):
        return 1e-3
    found = seconds(a_token, duration_s / completed / tokens, "the summary's times", tally)
    return 1.0 if found == a_token else 1e-3


def _prompt(result: Mapping[str, Any]) -> str:
    """The name of a set of requests: their number and their mean length, which distinguish it from others."""
    completed, tokens = result.get("completed"), result.get("total_input_tokens")
    sent = f"{round(tokens / completed)} tokens" if completed and tokens else "unknown length"
    return f"{result.get('num_prompts') or completed} requests of {sent}"


def _item(result: Mapping[str, Any], name: str, at: int) -> Any:
    values = result.get(name)
    return values[at] if isinstance(values, list) and at < len(values) else None
