"""Check that the counts, times and rates that a reader found in a file are possible. Pure."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields
from types import UnionType
from typing import Any, get_args, get_type_hints

from orchestrator.errors import InputError
from orchestrator.importers.foreign_run import ForeignGeneration, ForeignResults, ForeignTrial

MOST = 10**12  # seconds: a larger number is something else
MOST_TOKENS = 10**9  # of one result
MOST_TPS = {"decode_tps": 10**6, "end_to_end_tps": 10**6, "prefill_tps": 10**8}  # of all requests together
MOST_BYTES = 2**60
MOST_TRIALS = 200_000
LEFT_OUT = "left out: "  # begins each note on requests that the figures are not of; an audit repeats it
_SHOWN = 60
_SLACK = 64  # tokens: some tools count a template's, or an end of the text
_DAMAGED = "the file is damaged or of another tool"
_PLAIN = {str, int, float, bool, type(None)}
_PARTS = (("accepted", "drafted"), ("cached_tokens", "prompt_tokens"))  # each is a part of the other


def require_possible(results: ForeignResults, *, name: str) -> None:
    """Refuse results with a count or a time that cannot be.

    Args:
        name: the file's, for messages.

    Raises:
        InputError: naming the trial, counted from 1, and the value.
    """
    if len(results.trials) > MOST_TRIALS:
        raise InputError(f"{name}: {len(results.trials)} trials are more than the {MOST_TRIALS} that one run can hold")
    for what, value in (("machine", results.machine), ("versions", results.versions), *_models(results)):
        for problem in _wrong_types(value):
            raise InputError(f"{name}: {what}: {problem}; {_DAMAGED}")
    for number, trial in enumerate(results.trials, start=1):
        for problem in (*_wrong_types(trial), *_of_generation(trial.generation), *_of_trial(trial)):
            raise InputError(f"{name}: result {number} ({str(trial.arm)[:_SHOWN]}): {problem}; {_DAMAGED}")


def _models(results: ForeignResults) -> Iterator[tuple[str, Any]]:
    for arm in results.arms:
        yield f"arm {str(arm.name)[:_SHOWN]}", arm
        yield f"model of {str(arm.name)[:_SHOWN]}", arm.model
        if arm.draft is not None:
            yield f"draft of {str(arm.name)[:_SHOWN]}", arm.draft


def _wrong_types(value: Any) -> Iterator[str]:
    """Yield the fields whose value is not of the declared plain type: a JSON file may hold any type anywhere."""
    hints = get_type_hints(type(value))
    for each in fields(value):
        hint = hints[each.name]
        plain: tuple[type, ...] = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        if not set(plain) <= _PLAIN:
            continue
        held = getattr(value, each.name)
        wanted = (*plain, int) if float in plain else plain
        if not isinstance(held, wanted) or (isinstance(held, bool) and bool not in plain):
            yield f"{each.name} is {str(held)[:_SHOWN]!r}, a {type(held).__name__}"
        elif isinstance(held, int) and not -MOST_BYTES <= held <= MOST_BYTES:
            yield f"{each.name} is {held}, larger than any count"


def _of_trial(trial: ForeignTrial) -> Iterator[str]:
    if trial.wall_s is not None and not 0 <= trial.wall_s <= MOST:
        yield f"it took {trial.wall_s:g} s"


def _of_generation(one: ForeignGeneration) -> Iterator[str]:
    yield from _wrong_types(one)
    for each in fields(one):
        value = getattr(one, each.name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        most = _most(each.name)
        if not math.isfinite(value) or not 0 <= value <= most:
            yield f"{each.name} is {value:g}, which no count, time or rate is"
    if one.acceptance_rate is not None and one.acceptance_rate > 1:
        yield f"acceptance_rate is {one.acceptance_rate:g}, more than 1"
    if one.max_tokens and one.completion_tokens is not None and one.completion_tokens > 2 * one.max_tokens + _SLACK:
        yield f"completion_tokens is {one.completion_tokens} where {one.max_tokens} were requested"
    for part, whole in _PARTS:
        some, every = getattr(one, part), getattr(one, whole)
        if some is not None and every is not None and some > every:
            yield f"{part} is {some}, more than {whole}, {every}"


def _most(name: str) -> int:
    """The largest number that a field may hold."""
    if name.endswith("_bytes"):
        return MOST_BYTES
    tokens = name.endswith("_tokens") or name in ("drafted", "accepted", "verify_steps")
    return MOST_TOKENS if tokens else MOST_TPS.get(name, MOST)


def share_of(part: int, whole: int, things: str) -> str:
    """Return a share in words: "188 of 200 requests (94 %)"."""
    return f"{part} of {whole} {things} ({100 * part / whole:.3g} %)" if whole else f"{part} {things}"


def told_of(which: str, counts: Sequence[tuple[str, int]], whole: int) -> Iterator[str]:
    """One note for each kind of request that is missing from the figures.

    Args:
        which: the arm.
        counts: each outcome of requests, and their number.
        whole: all requests.
    """
    for what, count in counts:
        if count:
            yield f"{LEFT_OUT}{which}: {share_of(count, whole, 'requests')} {what}; the figures are of the others"
