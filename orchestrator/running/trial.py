"""One trial as it happened, and the fixed rules that decide whether it counts. Pure.

No rule looks at a trial's speed, tokens or text. A trial is

    invalid     it failed; or its evidence does not show what was asked for (policy `require`); or a conversation began
                with tokens from an unwanted cache
    excluded    a rule of the plan's gate applies to the machine's state during the trial
    done        it counts

Evidence answers three separate questions: requested, engaged (on this request), useful (a proposed token was accepted).
An engine that gives no sign leaves `engaged` unknown (None), which is not False; under the policy `require` neither is
enough.

Every conversation of a run has to begin afresh. A server that keeps prompts from one request to the next answers a
repeated prompt at once: its time to first token then measures the cache, not the engine. The rule uses the engine's own
count of cached tokens.
"""

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.plan import Gate, Prompt
from orchestrator.running.gate import HEAT, POWER, Passage
from orchestrator.schedule import ScheduledTrial
from workers.machine.telemetry import Reading
from workers.protocol import Evidence, Generation

# Mechanisms that run at every step and propose only if they find something: on prose they may find nothing.
_MAY_FIND_NOTHING = frozenset({"prompt_lookup"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The three answers for one generation, and the reason why it must not be compared (None: it may be)."""

    requested: bool
    engaged: bool | None
    useful: bool | None
    fault: str | None  # code: reason


def judge(evidence: Sequence[Evidence]) -> Judgement:
    """Combine the signs of one generation. A contradiction between them counts as no evidence."""
    asked = [sign for sign in evidence if sign.requested]
    broken = next((problem for sign in evidence if (problem := _contradiction(sign))), None)
    if broken:
        return Judgement(requested=bool(asked), engaged=None, useful=None, fault=f"evidence_broken: {broken}")
    if not asked:
        return _judge_unrequested(evidence)
    engaged = _all(sign.engaged for sign in asked)
    useful = _all(sign.useful for sign in asked)
    return Judgement(requested=True, engaged=engaged, useful=useful, fault=_not_engaged(asked))


def _judge_unrequested(evidence: Sequence[Evidence]) -> Judgement:
    """Judge a generation for which no mechanism was asked: none may have run."""
    ran = next((sign for sign in evidence if sign.engaged), None)
    fault = f"unrequested_mechanism: {ran.text}" if ran else None
    return Judgement(requested=False, engaged=ran is not None, useful=bool(ran and ran.useful), fault=fault)


def _not_engaged(asked: Iterable[Evidence]) -> str | None:
    for sign in asked:
        if sign.engaged is False:
            return f"not_engaged: {sign.text}"
        if sign.engaged is None:
            return f"engagement_unknown: {sign.text}"
    return None


def _contradiction(sign: Evidence) -> str | None:
    drafted, accepted = sign.drafted, sign.accepted
    if drafted is not None and accepted is not None and not 0 <= accepted <= drafted:
        return f"{accepted} accepted of {drafted} drafted ({sign.source})"
    if sign.engaged and drafted == 0 and sign.mechanism not in _MAY_FIND_NOTHING:
        return f"engaged without drafting anything ({sign.source})"
    return None


def _all(answers: Iterable[bool | None]) -> bool | None:
    """Combine by three-valued logical and: False wins, then unknown."""
    seen = list(answers)
    if False in seen:
        return False
    return None if None in seen else True


KIND = "cached_prompt"
_REMEDY = (
    "set engine.prefix_cache=false, or start an attached server without its prompt cache; "
    "set design.cached_share_max=null to accept it"
)


def from_cache(generations: Iterable[tuple[Prompt, Generation]], *, share_max: float | None) -> str | None:
    """Report, as `code: words`, the first generation with more cached prompt tokens than its conversation explains.

    A first turn explains none; a later turn explains the prompt and the answer of the turn before.

    Args:
        share_max: the share of the prompt's tokens that may come from a cache without explanation, because chat
            templates begin alike. None: no limit.
    """
    if share_max is None:
        return None
    explained: dict[str, int] = {}
    for prompt, generation in generations:
        own = 0 if generation.turn == 0 else explained.get(prompt.id, 0)
        surplus = (generation.cached_tokens or 0) - own
        if surplus > share_max * generation.prompt_tokens:
            return f"{KIND}: {_words(prompt, generation)}; {_REMEDY}"
        explained[prompt.id] = generation.prompt_tokens + generation.tokens
    return None


def _words(prompt: Prompt, generation: Generation) -> str:
    counts = f"{generation.cached_tokens} of {generation.prompt_tokens} prompt tokens"
    if generation.turn == 0:
        return f"prompt {prompt.id}: the conversation began with {counts} from a cache"
    return f"prompt {prompt.id}: turn {generation.turn + 1} had {counts} from a cache, more than its conversation holds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """The state of the machine around a trial."""

    passage: Passage
    wall_s: float
    monotonic_s: float
    before: Sequence[Reading]
    during: Sequence[Reading]
    after: Sequence[Reading]


def excluded_reason(gate: Gate, found: Circumstances) -> str | None:
    """Return the first rule that excludes the trial, as `code: words`, or None if it counts."""
    return next(_reasons(gate, found), None)


def _reasons(gate: Gate, found: Circumstances) -> Iterator[str]:
    if found.passage.skipped:
        yield f"skipped: {found.passage.hot_start}"
    if found.passage.hot_start is not None and _counts_as_hot(gate, found.passage):
        yield f"hot_start: {found.passage.hot_start}"
    gap_s = found.wall_s - found.monotonic_s
    if _above(abs(gap_s), gate.exclude_clock_gap_above_s):
        yield f"clock: wall ran {gap_s:+.1f} s against monotonic"
    level = hottest(found)
    if _above(level, gate.exclude_thermal_level_above):
        yield f"thermal: level {level:g} while it ran, above {gate.exclude_thermal_level_above}"
    if gate.exclude_off_mains and gate.power_source == "mains":
        sources = [_reading(readings, "power_source") for readings in (found.before, found.after)]
        off = next((each.value_text for each in sources if each and each.value_text not in (None, "mains")), None)
        if off is not None:
            yield f"power: ran on {off}"
    cores = _cores_of_others(found)
    if _above(cores, gate.exclude_cpu_cores_others_above):
        yield f"cpu_others: others used {cores:.2f} cores, above {gate.exclude_cpu_cores_others_above:g}"
    spent = _during_or_after(found, "gpu_ms_per_s_others")
    if _above(spent, gate.exclude_gpu_ms_per_s_others_above):
        yield f"gpu_others: others used {spent:.0f} ms/s of the GPU, above {gate.exclude_gpu_ms_per_s_others_above:g}"
    growth = swap_growth(found)
    if _above(growth, gate.exclude_swap_growth_above_bytes):
        yield f"swap: grew by {growth:.0f} bytes while it ran"


def hottest(found: Circumstances) -> float | None:
    """Return the highest thermal level before, during and after the trial, or None if the machine reports none."""
    levels = [
        _value(found.before, "thermal_level"),
        _value(found.during, "thermal_level_max"),
        _value(found.after, "thermal_level"),
    ]
    return max((level for level in levels if level is not None), default=None)


def swap_growth(found: Circumstances) -> float | None:
    """Return the swap in use after the trial minus that before, in bytes."""
    before, after = (_value(readings, "swap_used_bytes") for readings in (found.before, found.after))
    return None if before is None or after is None else after - before


def _counts_as_hot(gate: Gate, passage: Passage) -> bool:
    match gate.exclude_hot_start:
        case "all":
            return True
        case "heat":
            return any(kind in (HEAT, POWER) for kind in passage.hot_kinds)
    return False


def _during_or_after(found: Circumstances, field: str) -> float | None:
    """Return the sampler's mean, or else the rate of the reading after the trial, which covers the trial's time."""
    mean = _value(found.during, f"{field}_mean")
    return _value(found.after, field) if mean is None else mean


def _cores_of_others(found: Circumstances) -> float | None:
    """CPU cores that others used, less those of macOS's compilers of GPU kernels and of its kernel_task.

    What these do is usually for us: an arm with new kernels, or one that maps its weights, would be excluded for its
    own work.
    """
    cores = _during_or_after(found, "cpu_cores_others")
    if cores is None:
        return None
    compilers, kernel_s = (_value(found.after, field) or 0.0 for field in ("cpu_cores_compilers", "kernel_cpu_s"))
    return max(cores - compilers - (kernel_s / found.monotonic_s if found.monotonic_s > 0 else 0.0), 0.0)


def _above(value: float | None, limit: float | None) -> bool:
    """Return whether a value exceeds its limit; an unknown value or limit excludes nothing."""
    return value is not None and limit is not None and value > limit


def _reading(readings: Sequence[Reading], field: str) -> Reading | None:
    return next((reading for reading in readings if reading.field == field), None)


def _value(readings: Sequence[Reading], field: str) -> float | None:
    reading = _reading(readings, field)
    return None if reading is None else reading.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why a trial is invalid."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One trial as it happened, before it is judged."""

    trial: ScheduledTrial
    started_at: dt.datetime
    wall_s: float
    monotonic_s: float
    passage: Passage  # through the gate
    generations: Sequence[tuple[Prompt, Generation]]
    fault: Fault | None
    before: Sequence[Reading]
    during: Sequence[Reading]
    after: Sequence[Reading]
    log_path: str | None

    @property
    def circumstances(self) -> Circumstances:
        return Circumstances(
            passage=self.passage,
            wall_s=self.wall_s,
            monotonic_s=self.monotonic_s,
            before=self.before,
            during=self.during,
            after=self.after,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadMemory:
    """An arm's memory after loading, beside the plan's."""

    planned_bytes: int | None  # weights, draft included
    footprint_bytes: int | None  # of the worker's process
    note: str | None  # None: as planned, or unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of the rules for one trial: its status and, unless it is done, the reason."""

    status: str
    fault: Fault | None = None
    excluded_reason: str | None = None


def settle(outcome: Outcome, *, evidence_policy: str, gate: Gate, cached_share_max: float | None = None) -> Verdict:
    """Judge a trial by fixed rules on faults, evidence, caches and the machine, never by its speed. Pure."""
    if outcome.fault is not None:
        return Verdict(status="invalid", fault=outcome.fault)
    if evidence_policy == "require":
        for _, generation in outcome.generations:
            if reason := judge(generation.evidence).fault:
                return _invalid(reason)
    if reason := from_cache(outcome.generations, share_max=cached_share_max):
        return _invalid(reason)
    if (why := excluded_reason(gate, outcome.circumstances)) is not None:
        return Verdict(status="excluded", excluded_reason=why)
    return Verdict(status="done")


def _invalid(reason: str) -> Verdict:
    """Return an invalid verdict; `reason` is `code: words`."""
    kind, _, message = reason.partition(": ")
    return Verdict(status="invalid", fault=Fault(kind=kind, message=message))
