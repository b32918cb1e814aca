"""Simulated series of trials: known true effects under a drift profile, to judge a design or a method."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workers.machine.drift import PROFILES, factor

__all__ = ["ASSUMED", "PROFILES", "STANDARD_SIZES", "Setting", "drift_rows", "noise_rows", "standard"]

Floats = npt.NDArray[np.float64]

# The sizes at which the method is judged; the random walk's is for each trial.
STANDARD_SIZES = {
    "none": 0.0,
    "linear": -0.34,
    "saturating": -0.34,
    "step": -0.20,
    "random_walk": 0.04,
    "bursts": -0.20,
    "duty_cycle": -0.20,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The drift and noise of a simulated machine."""

    profile: str
    size: float  # see workers.machine.drift.factor
    noise: float = 0.01  # scale of the trials' own noise, on the log of the speed
    tail: float = 4.0  # degrees of freedom of its t distribution: small is heavy


# Every use of it for lack of a history is reported: a laptop that loses a sixth of its speed over the run.
ASSUMED = Setting(profile="linear", size=-0.17, noise=0.01)


def standard(profile: str, trials: int) -> Setting:
    """The profile at the size the method is judged at, over a run of so many trials."""
    size = STANDARD_SIZES[profile]
    return Setting(profile=profile, size=size * trials**0.5 if profile == "random_walk" else size)


def drift_rows(setting: Setting, trials: int, seeds: Sequence[int]) -> Floats:
    """Log speed factors, one row per seed, one column per trial (shape seeds x trials)."""
    rows = [
        [factor(setting.profile, trial / trials, size=setting.size, seed=seed) for trial in range(trials)]
        for seed in seeds
    ]
    return np.log(np.array(rows, dtype=np.float64).reshape(len(seeds), trials))


def noise_rows(setting: Setting, trials: int, runs: int, rng: np.random.Generator) -> Floats:
    """Log noise of single trials, shape runs x trials."""
    return setting.noise * rng.standard_t(setting.tail, size=(runs, trials))
