"""The share of a design's runs with the verdict "supported", by simulation. Pure.

Runs are simulated without any effect. Adding an effect to a treatment only shifts its contrasts with the control, since
the drift is estimated beside the arms' levels; so each simulated run serves every effect, of either sign, on each of
its treatments in turn. The other treatments have no effect, which is the hardest case for the family.

The conditions are those of `orchestrator.statistics.verdicts.decide`: the pair's own test, the A/A floor, the family,
the margin, and what trials may leave behind for later ones. Each checks whether an interval holds some value, which
needs only the test's p-value of that value: no interval is searched. `tests/orchestrator/statistics/test_planned.py`
holds this against `decide` itself.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from orchestrator.effects import Exchanged, Series, exchanges
from orchestrator.estimation.inversion import Floats
from orchestrator.schedule import AA_LABEL, minimum_rounds
from orchestrator.statistics import carry_over
from orchestrator.statistics.drift import Setting
from orchestrator.statistics.lags import LagModel, Placed, Ran
from orchestrator.statistics.observations import ScopeTrials
from orchestrator.statistics.simulate import SimulatedRun, simulated_runs

MOST_EXCHANGES = 1_000  # enough to plan with; a sample of the exchanges is as exact as all of them, the own one in it
MOST_TREATMENTS = 6  # whose contrasts are computed; these stand in for the others of a family, with other exchanges
MOST_TRIALS = 240  # of a simulated run; longer ones are these with less noise
FEWEST_ROUNDS = 16  # simulated even so: with fewer, exchanges are too few to go by
GRID_STEP = 1.3  # of the rounds simulated
PAIRS = 210  # series computed in all, of runs of so many trials
FEWEST_RUNS = 12
CONTROL = "control"
# Of runs in which no trial changes another, these are found to have carry-over all the same: the check's level.
NO_CARRY_OVER = 1.0 - carry_over.LEVEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The planned design without its number of rounds."""

    setting: Setting
    arms: int  # entries of a round
    aa: bool  # the control's second entry is one of them
    alpha: float

    @property
    def has_floor(self) -> bool:
        """Return whether there is an A/A floor: one arm beside itself is compared like any two arms."""
        return self.aa and self.arms > 2

    @property
    def treatments(self) -> int:
        return self.arms - 1 - self.has_floor

    @property
    def shown(self) -> int:
        """The treatments whose contrasts are computed."""
        return min(self.treatments, MOST_TREATMENTS)

    @property
    def lost(self) -> int:
        """Return the rounds lost to so few exchanges: power grows nearly with the square root of the rest."""
        return minimum_rounds(self.alpha) - 2

    def simulated_rounds(self, rounds: int) -> int:
        """Round to a coarse grid, so that similar numbers of rounds share their simulated runs."""
        most = max(MOST_TRIALS // self.arms, FEWEST_ROUNDS)
        step = round(math.log(max(min(rounds, most) - self.lost, 2)) / math.log(GRID_STEP))
        return self.lost + max(round(GRID_STEP**step), 2)

    def scale(self, rounds: float, *, simulated: int) -> float:
        """Return how many times smaller an effect is found with `rounds` than with the simulated rounds."""
        return math.sqrt((rounds - self.lost) / (simulated - self.lost))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A treatment of a run without an effect. Effects and margins are on the log scale."""

    own: Exchanged
    mean: float
    floor: Exchanged | None
    floor_mean: float
    studentised: Exchanged | None  # None: no family
    rivals: Floats  # (M,) the largest of the other treatments' statistics in each exchange
    heat: tuple[float, float] | None  # the ends nearest to what contradicts an effect: lowest low, highest high

    def is_supported(self, effect: float, *, alpha: float, margin: float) -> bool:
        """Return whether the verdict is "supported" in the right direction if the treatment has the effect.

        Without an effect (0), no direction is right: "supported" in either one counts.
        """
        estimate = self.mean + effect
        if estimate * effect < 0 or not self.is_found(effect, alpha=alpha):
            return False
        return (
            self._is_clear_of_floor(effect, alpha)
            and self._is_no_heat(effect, rises=estimate > 0)
            and not self._is_inside(margin, effect, alpha)
        )

    def is_found(self, effect: float, *, alpha: float) -> bool:
        """Return whether the interval leaves 1 out and the difference stands out in its family."""
        return not self._holds(-effect, alpha) and self._stands_in_family(effect, alpha)

    def _holds(self, value: float, alpha: float) -> bool:
        return bool(self.own.p(np.array([value]))[0] > alpha)

    def _is_clear_of_floor(self, effect: float, alpha: float) -> bool:
        if self.floor is None:
            return True
        in_floor = bool(self.floor.p(np.array([self.mean + effect]))[0] > alpha)
        return not in_floor and not self._holds(self.floor_mean - effect, alpha)

    def _stands_in_family(self, effect: float, alpha: float) -> bool:
        if self.studentised is None:
            return True
        sizes = self.studentised.sizes(-effect)
        return bool(np.mean(np.maximum(sizes, self.rivals) >= sizes[0] * (1 - 1e-9)) <= alpha)

    def _is_no_heat(self, effect: float, *, rises: bool) -> bool:
        if self.heat is None:
            return True
        return self.heat[0] + effect > 0 if rises else self.heat[1] + effect < 0

    def _is_inside(self, margin: float, effect: float, alpha: float) -> bool:
        if abs(self.mean + effect) >= margin:
            return False
        return not self._holds(margin - effect, alpha) and not self._holds(-margin - effect, alpha)


def supported_share(layout: Layout, *, rounds: int, effect: float, margin: float) -> float:
    """The share of runs whose verdict on a treatment with this relative effect is "supported", less a standard error.

    Args:
        margin: of equivalence, as a share; 0: nothing is called no difference.
    """
    simulated = layout.simulated_rounds(rounds)
    more = layout.scale(rounds, simulated=simulated)
    shift, inside = more * math.log1p(effect), -more * math.log1p(-margin)
    tried = _tried(layout, simulated)
    found = np.array(
        [[one.is_supported(sign * shift, alpha=layout.alpha, margin=inside) for sign in (1.0, -1.0)] for one in tried]
    )
    # Treatments of a run share the control's noise, so that runs are counted, not treatments.
    by_run = found.reshape(-1, 2 * layout.shown).mean(axis=1)
    error = float(by_run.std()) / math.sqrt(len(by_run))
    return NO_CARRY_OVER * (float(by_run.mean()) - error)


@lru_cache(maxsize=8)
def _tried(layout: Layout, rounds: int) -> tuple[Tried, ...]:
    few = min(MOST_TRIALS / (layout.arms * rounds), 1.0)
    runs = max(int(few * PAIRS) // (layout.shown + layout.has_floor), FEWEST_RUNS)
    signs = some(exchanges(rounds, 0))
    return tuple(
        one
        for run in simulated_runs(layout.setting, arms=layout.arms, rounds=rounds, effects=(), runs=runs, seed=0)
        for one in tried_of(layout, run, signs, layout.shown)
    )


def some(signs: Floats) -> Floats:
    """At most `MOST_EXCHANGES` of the exchanges, the observed order first."""
    if len(signs) <= MOST_EXCHANGES:
        return signs
    rng = np.random.Generator(np.random.PCG64(0))
    found: Floats = signs[np.append(0, rng.choice(np.arange(1, len(signs)), MOST_EXCHANGES - 1, replace=False))]
    return found


def tried_of(layout: Layout, run: SimulatedRun, signs: Floats, shown: int, *, heat: bool = True) -> Iterator[Tried]:
    """The first `shown` treatments of a run without an effect; its last entry is the control's second one, if any.

    Args:
        signs: exchanges of the run's rounds, shape (M, R), the observed order first.
        heat: whether to look for what trials may leave behind, which takes most of the time.
    """
    names = [CONTROL, *(f"t{arm}" for arm in range(1, layout.arms))]
    if layout.has_floor:
        names[-1] = AA_LABEL
    used = ScopeTrials(y=run.y, rounds=run.rounds, labels=np.array(names, dtype=object)[run.arms], prompts=None)
    family = names[1 : 1 + layout.treatments]
    return tried_in(used, family[:shown], CONTROL, signs, layout.alpha, family=layout.treatments, heat=heat)


def tried_in(
    used: ScopeTrials,
    treatments: Sequence[str],
    control: str,
    signs: Floats,
    alpha: float,
    *,
    family: int,
    heat: bool = True,
) -> Iterator[Tried]:
    """These treatments of a run without an effect, of which each round holds all arms.

    Args:
        signs: exchanges of the run's rounds, shape (M, R), the observed order first.
        family: number of the treatments; those given stand in for more of them.
        heat: whether to look for what trials may leave behind, which takes most of the time.
    """
    series = [_pair(used, name, control) for name in treatments]
    floor = _pair(used, AA_LABEL, control) if AA_LABEL in used.labels else None
    floor_test = None if floor is None else Exchanged.of(floor, signs)
    studentised = [Exchanged.of(one, signs, studentised=True) if family > 1 else None for one in series]
    model = LagModel.fit_by_noise(Placed.find(used, Ran.of(used), control=control)) if heat else None
    for place, name in enumerate(treatments):
        others = [one for one in studentised[:place] + studentised[place + 1 :] if one is not None]
        yield Tried(
            own=Exchanged.of(series[place], signs),
            mean=series[place].mean,
            floor=floor_test,
            floor_mean=0.0 if floor is None else floor.mean,
            studentised=studentised[place],
            rivals=_largest(others, family - 1, len(signs)),
            heat=_heat(model, name, control, alpha),
        )


def _pair(used: ScopeTrials, name: str, control: str) -> Series:
    found = used.pair(name, control)
    assert found is not None  # every simulated round holds all arms
    return found


def _largest(others: Sequence[Exchanged], count: int, exchanged: int) -> Floats:
    """The largest statistic in each exchange; arms beyond the computed ones are these with their exchanges moved on."""
    if not others:
        return np.zeros(exchanged)
    sizes = [one.sizes(0.0) for one in others]
    moved = [np.roll(sizes[arm % len(sizes)], 17 * (arm // len(sizes))) for arm in range(count)]
    found: Floats = np.max(moved, axis=0)
    return found


def _heat(model: LagModel | None, name: str, control: str, alpha: float) -> tuple[float, float] | None:
    if model is None:
        return None
    adjusted = model.adjusted(name, control, alpha=alpha)
    return min(one.low for one in adjusted), max(one.high for one in adjusted)
