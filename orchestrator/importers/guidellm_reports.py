"""guidellm's file of version 0.1: reports of benchmarks, each a mode and a rate, with results and errors.

Its first_token_time is seconds since the request's start. It counts the chunks of a stream as tokens, and words where
there was no chunk: neither is a count of tokens, so no rate follows. The prompt's count is a tokenizer's.
"""

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.importers.fields import Tally, bits_of, distinct_names, parse_time
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

NAME = "guidellm"
VERSION = "0.1"
_CHUNKS = "guidellm 0.1 counts the chunks of a stream, or words, as tokens: no counts and no rates are taken"
_DATED = dt.datetime.min.replace(tzinfo=dt.UTC)


def recognises(body: Any) -> bool:
    """Return whether the body holds reports whose benchmarks hold results and errors."""
    reports = body.get("benchmarks") if isinstance(body, Mapping) else None
    first = reports[0] if isinstance(reports, list) and reports else None
    inner = first.get("benchmarks") if isinstance(first, Mapping) else None
    return isinstance(inner, list) and bool(inner) and {"mode", "results", "errors"} <= inner[0].keys()


def read(body: Any) -> ForeignResults:
    """Read a decoded file; see the module."""
    tally = Tally()
    tally.say(_CHUNKS)
    pairs = [
        (report.get("args") or {}, benchmark) for report in body["benchmarks"] for benchmark in report["benchmarks"]
    ]
    settings = [_load(args, benchmark) for args, benchmark in pairs]
    names = distinct_names(settings, first=("type",))
    arms: dict[str, ForeignArm] = {}
    trials: list[ForeignTrial] = []
    for (args, benchmark), load, name in zip(pairs, settings, names, strict=True):
        arms.setdefault(name, _arm(name, args, load))
        trials += _trials(name, args, benchmark, tally)
    trials.sort(key=lambda trial: trial.started_at or _DATED)
    times = [trial.started_at for trial in trials if trial.started_at is not None]
    return ForeignResults(
        format=NAME,
        tool_version=VERSION,
        started_at=min(times, default=None),
        timing="own" if times else "none",
        machine=Machine(),
        versions=Versions(packages={"guidellm": VERSION}),
        arms=tuple(arms.values()),
        trials=tuple(trials),
        notes=tally.notes(),
    )


def _load(args: Mapping[str, Any], benchmark: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": str(benchmark["mode"]), "rate": benchmark.get("rate"), "model": _model(args)}


def _model(args: Mapping[str, Any]) -> str:
    found = args.get("model")
    return found if isinstance(found, str) and found else "unknown"


def _arm(name: str, args: Mapping[str, Any], load: Mapping[str, Any]) -> ForeignArm:
    model = _model(args)
    return ForeignArm(
        name=name, engine=NAME, model=Model(name=model, bits=bits_of(model)), settings=load, kept={"args": dict(args)}
    )


def _trials(name: str, args: Mapping[str, Any], benchmark: Mapping[str, Any], tally: Tally) -> Iterator[ForeignTrial]:
    """The results as trials. Errors have no time: their share becomes a note."""
    failed, results = len(benchmark["errors"]), benchmark["results"]
    for note in told_of(name, [("failed", failed)], failed + len(results)):
        tally.say(note)
    prompt = f"requests of {args.get('data') or 'unknown data'}"
    for result in results:
        start, end = tally.number(result, "start_time"), tally.number(result, "end_time")
        total_s = end - start if start and end and end > start else None
        generation = ForeignGeneration(
            prompt=prompt,
            prompt_class="requests",
            prompt_tokens=tally.count(result.get("request") or {}, "prompt_token_count"),
            ttft_s=tally.number(result, "first_token_time"),
            total_s=total_s,
        )
        yield ForeignTrial(arm=name, started_at=parse_time(start), wall_s=total_s, generation=generation)
