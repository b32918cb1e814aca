"""Estimate how long a schedule takes, from measured or assumed rates. Pure.

    a turn  = new prompt tokens / prefill rate + answer / decode rate
    a trial = its turns + cool-down + overhead; with swapped models, the loading too

Answers count in full (max_tokens): a model that stops early takes less time.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.plan import CHARACTERS_PER_TOKEN, Arm, Plan, Prompt
from orchestrator.schedule import ScheduledTrial

# Between two trials: telemetry, a commit, and the messages to the worker; some 0.02 s on Linux.
TRIAL_OVERHEAD_S = 0.05
# A process that imports MLX and mlx-lm; loading the weights comes on top, at disk speed.
PROCESS_START_S = 4.0
DISK_BYTES_PER_S = 1e9
FLOAT_BITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """An arm's speed."""

    prefill_tps: float
    decode_tps: float
    load_s: float
    measured: bool  # on this machine, in an earlier run


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The assumptions behind a first estimate, until something is measured."""

    read_bytes_per_s: float  # quantised weights that decoding reads per second
    float_bytes_per_s: float  # the same for weights of 16 or 32 bits
    prefill_over_decode: float
    words: str
    share_of_a_mixture: float = 1.0  # of these rates, if a token reads few of many experts


SHARE_OF_BANDWIDTH = 0.8  # 9 tokens/s from 28 GB on an M5 Pro, whose memory gives 307 GB/s
# Qwen3.6 35B-A3B at 4 bits: some 50 tokens/s of 2 GB each on an M4 Max of 546 GB/s, without speculation.
SHARE_OF_A_MIXTURE = 0.25
COMMON_GB_PER_S = 250.0  # of Apple's laptops, which have 68 to 614


def apple(gb_per_s: float | None, chip: str | None) -> Machine:
    """Return the assumptions for a Mac, by its memory's published bandwidth if that is known."""
    read = SHARE_OF_BANDWIDTH * (gb_per_s or COMMON_GB_PER_S)
    name = "an Apple GPU" if gb_per_s is None else f"that {chip}"
    words = f"{name} {'that ' if gb_per_s is None else ''}reads {read:.0f} GB/s"
    return Machine(
        read_bytes_per_s=read * 1e9,
        float_bytes_per_s=read * 1e9,
        prefill_over_decode=10.0,
        words=words,
        share_of_a_mixture=SHARE_OF_A_MIXTURE,
    )


# SmolLM2 with float32 activations on two x86 cores: 84 MB at 5.5, 152 MB at 4.8 and unquantised 538 MB at 10 tokens/s:
# MLX's quantised products are slow on a CPU.
CPU = Machine(
    read_bytes_per_s=5e8,
    float_bytes_per_s=5e9,
    prefill_over_decode=1.6,
    words="a CPU that reads 0.5 GB of quantised weights per second, or 5 GB of others",
)

# A fake clock: only starting processes and storing rows take time.
NONE = Machine(
    read_bytes_per_s=1e15, float_bytes_per_s=1e15, prefill_over_decode=1.0, words="that simulated arms take no time"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A duration and the assumption behind it."""

    duration_s: float | None  # None: too little is known; the assumption names what is missing
    assumption: str
    by_class: Mapping[str, float] = field(default_factory=dict)  # of it, seconds with the prompts of each class

    def __str__(self) -> str:
        return f"{'unknown' if self.duration_s is None else about(self.duration_s)} ({self.assumption})"


def estimate(
    plan: Plan, schedule: Sequence[ScheduledTrial], rates: Mapping[str, Rates], *, machine: Machine
) -> Estimate:
    """Estimate the duration of the whole schedule.

    Args:
        rates: of every arm, by name; see `assume`.
        machine: the assumptions for rates that were not measured.
    """
    prompts = {prompt.id: prompt for prompt in plan.prompts}
    arms = {arm.name: arm for arm in plan.arms}
    # A schedule repeats a few different trials many times.
    kinds = Counter((trial.arm, trial.prompt_ids) for trial in schedule)
    seconds, by_class = 0.0, defaultdict[str, float](float)
    for (name, prompt_ids), count in kinds.items():
        asked = [prompts[prompt_id] for prompt_id in prompt_ids]
        for prompt in asked:
            by_class[prompt.prompt_class] += count * _asked_s(prompt, arms[name], rates[name])
        seconds += count * (plan.gate.cooldown_s + TRIAL_OVERHEAD_S)
    loads = schedule if plan.design.residency == "swap" else ()
    seconds += sum(rates[name].load_s for name in arms) + sum(rates[trial.arm].load_s for trial in _swaps(loads))
    assumption = _assumption(rates.values(), machine)
    return Estimate(duration_s=seconds + sum(by_class.values()), assumption=assumption, by_class=dict(by_class))


def assume(weights_bytes: int, machine: Machine, *, read_bytes: int | None = None, bits: int | None = None) -> Rates:
    """Assume the rates of an arm that was never measured here: decoding reads the weights once per token.

    Args:
        weights_bytes: size of the whole model, which is loaded.
                read_bytes: bytes of it that one token reads; None: all.
                bits: bits per weight; None: unknown, taken as quantised.
    """
    unquantised = bits is not None and bits >= FLOAT_BITS
    bytes_per_s = machine.float_bytes_per_s if unquantised else machine.read_bytes_per_s
    read = weights_bytes if read_bytes is None else read_bytes
    is_mixture = read < weights_bytes / 2
    decode_tps = bytes_per_s * (machine.share_of_a_mixture if is_mixture else 1.0) / max(read, 1)
    return Rates(
        prefill_tps=decode_tps * machine.prefill_over_decode,
        decode_tps=decode_tps,
        load_s=PROCESS_START_S + weights_bytes / DISK_BYTES_PER_S,
        measured=False,
    )


def about(duration_s: float) -> str:
    """Format a duration for people: about 40 s, about 12 min, about 2 h 10 min, about 3 days."""
    minutes = round(duration_s / 60)
    if duration_s < 90:
        return f"about {max(1, round(duration_s))} s"
    if minutes < 60:
        return f"about {minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        rest = 5 * round(rest / 5) if hours else rest
        hours, rest = (hours + 1, 0) if rest == 60 else (hours, rest)
        return f"about {hours} h {rest} min" if rest else f"about {hours} h"
    return f"about {round(hours / 24)} days"


def _asked_s(prompt: Prompt, arm: Arm, rates: Rates) -> float:
    keeps = bool(arm.engine.get("prefix_cache", arm.engine.get("prefix_cache_bytes")))
    return _conversation_s(prompt, rates, keeps_prefix=keeps)


def _conversation_s(prompt: Prompt, rates: Rates, *, keeps_prefix: bool) -> float:
    seconds, before = 0.0, 0.0
    for turn in prompt.turns:
        new = sum(len(message["content"]) for message in turn) / CHARACTERS_PER_TOKEN
        seconds += (new if keeps_prefix else before + new) / rates.prefill_tps + prompt.max_tokens / rates.decode_tps
        before += new + prompt.max_tokens
    return seconds


def _swaps(schedule: Sequence[ScheduledTrial]) -> Iterable[ScheduledTrial]:
    """Return the trials before which another arm's model has to be loaded."""
    return (trial for before, trial in itertools.pairwise(schedule) if trial.arm != before.arm)


def _assumption(rates: Iterable[Rates], machine: Machine) -> str:
    measured = [rate.measured for rate in rates]
    if all(measured):
        return "by rates measured on this machine"
    guessed = f"assuming {machine.words}"
    return guessed if not any(measured) else f"by rates measured on this machine; for arms without any, {guessed}"
