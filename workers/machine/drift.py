"""Drift profiles: named shapes of a machine's speed over a run, as factors on the speed.

Standard library only: the simulated engine asks for one factor at a time, the simulations of the audit for whole runs.
Every factor is a pure function of its arguments, the same on every machine.
"""

import hashlib
import math
import struct
from functools import lru_cache

PROFILES = ("none", "linear", "saturating", "step", "random_walk", "bursts", "duty_cycle")

SATURATION = 0.2  # fraction of the run after which a saturating drift has done 63 % of its way
STEP_RANGE = (0.1, 0.9)  # where in the run a step may come
WALK_STEPS = 256  # of the random walk over the whole run
BURST_COUNT = 6
BURST_LENGTH = 0.02  # fraction of the run
DUTY_PERIODS = 3.5  # throttling on and off, over the run


def factor(profile: str, fraction: float, *, size: float, seed: int) -> float:
    """The speed at `fraction` of the run (0 at its start, 1 at its end) over the undisturbed speed; above 0.

    `size` is the relative change that the profile is about, such as -0.34: of the end against the start (linear,
    saturating, step), of the slow phases against the others (bursts, duty_cycle); for random_walk the standard
    deviation of the end's logarithm.

    Raises:
        ValueError: an unknown profile, or a size that would leave no speed.
    """
    if profile not in PROFILES:
        raise ValueError(f"drift profile {profile!r}: unknown; choose one of {', '.join(PROFILES)}")
    if not size > -1:
        raise ValueError(f"drift size {size}: it must be above -1, which would be no speed at all")
    return math.exp(_log_factor(profile, min(max(fraction, 0.0), 1.0), size, seed))


def _log_factor(profile: str, fraction: float, size: float, seed: int) -> float:
    match profile:
        case "none":
            return 0.0
        case "linear":
            return math.log1p(size * fraction)
        case "saturating":
            return math.log1p(size * math.expm1(-fraction / SATURATION) / math.expm1(-1 / SATURATION))
        case "random_walk":
            return abs(size) * _walk(seed)[round(fraction * WALK_STEPS)]
    slow = {"step": _after_step, "bursts": _in_burst, "duty_cycle": _throttled}[profile](fraction, seed)
    return math.log1p(size) if slow else 0.0


def _after_step(fraction: float, seed: int) -> bool:
    low, high = STEP_RANGE
    return fraction >= low + (high - low) * _uniform("step", seed, 0)


def _in_burst(fraction: float, seed: int) -> bool:
    return any(0 <= fraction - _uniform("burst", seed, i) < BURST_LENGTH for i in range(BURST_COUNT))


def _throttled(fraction: float, seed: int) -> bool:
    return (fraction * DUTY_PERIODS + _uniform("duty", seed, 0)) % 1.0 >= 0.5


@lru_cache(maxsize=64)
def _walk(seed: int) -> tuple[float, ...]:
    """A random walk from 0 whose end has standard deviation 1."""
    place, places = 0.0, [0.0]
    for step in range(WALK_STEPS):
        # The sum of twelve uniform draws less its mean: variance 1, near enough to normal, no rounding of a library.
        place += (sum(struct.unpack(">12H", _digest("walk", seed, step)[:24])) / 65536 - 6.0) / math.sqrt(WALK_STEPS)
        places.append(place)
    return tuple(places)


def _uniform(purpose: str, seed: int, index: int) -> float:
    """A number in [0, 1), from the SHA-256 of the arguments."""
    return int.from_bytes(_digest(purpose, seed, index)[:6], "big") * 2.0**-48


def _digest(purpose: str, seed: int, index: int) -> bytes:
    return hashlib.sha256(f"interlace|drift|{purpose}|{seed}|{index}".encode("ascii")).digest()
