"""Attacks on the judge: settings chosen to make a verdict wrong. The table of docs/design/judge.md.

    python benchmarks/attacks.py [RUNS [ATTACK ...]]

Each line: how often the test of the true mean effect errs (5 % wanted), how often the verdict is "supported" and "no
difference". About five minutes for 100 runs.
"""

import math
import sys
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from benchmarks.truth import ALPHA, CONTROL, NOISE, TREATMENT, Judged, judged
from orchestrator.schedule import AA_LABEL, draw_rounds
from orchestrator.statistics.comparability import Asked, Scope
from orchestrator.statistics.drift import Floats
from orchestrator.statistics.family import step_down
from orchestrator.statistics.observations import ScopeTrials, Usable

Random = np.random.Generator
Order = npt.NDArray[np.object_]  # the arm of each trial, shape (rounds, entries)
# Returns a run's log values, shape (rounds, entries, prompts per round), for a given order, and the true mean effect.
Attack = Callable[[Random, Order], tuple[Floats, float]]
THREE = (CONTROL, AA_LABEL, TREATMENT)


def plain(rng: Random, order: Order, prompts: int = 1) -> Floats:
    """Noise and a linear drift of -20 %."""
    level = np.log1p(-0.2 * np.arange(order.size) / order.size).reshape(order.shape)
    return level[:, :, None] + NOISE * rng.standard_t(4, size=(*order.shape, prompts))


def of(order: Order, label: str) -> Floats:
    found: Floats = (order == label).astype(np.float64)[:, :, None]
    return found


def stalling_third(rng: Random, order: Order) -> tuple[Floats, float]:
    """A third arm stalls in a fifth of its trials and would bend the trend."""
    stalled = of(order, "other") * (rng.random((*order.shape, 1)) < 0.2)
    return plain(rng, order) + stalled * math.log(0.5), 0.0


def skewed(rng: Random, order: Order) -> tuple[Floats, float]:
    """The treatment's noise is exponential, towards slow; the control's is normal."""
    slow = -0.03 * rng.exponential(size=(*order.shape, 1))
    return plain(rng, order) + of(order, TREATMENT) * slow, -0.03


def stalls_at_random(rng: Random, order: Order) -> tuple[Floats, float]:
    """Each of the treatment's trials runs at half speed with a chance of a tenth."""
    stalled = of(order, TREATMENT) * (rng.random((*order.shape, 1)) < 0.1)
    return plain(rng, order) + stalled * math.log(0.5), 0.1 * math.log(0.5)


def stalls_of_both(rng: Random, order: Order) -> tuple[Floats, float]:
    """A tenth of all trials stalls, whatever the arm."""
    return plain(rng, order) + math.log(0.5) * (rng.random((*order.shape, 1)) < 0.1), 0.0


def every_round_alike(rng: Random, order: Order) -> tuple[Floats, float]:
    """A sawtooth with the period of a round: each later place is 5 % slower."""
    return plain(rng, order) - 0.05 * np.arange(order.shape[1])[None, :, None], 0.0


def resonance(rng: Random, order: Order) -> tuple[Floats, float]:
    """A wave of 5 % whose period is 1.5 rounds."""
    wave = 0.05 * np.sin(2 * math.pi * np.arange(order.size) / (1.5 * order.shape[1]))
    return plain(rng, order) + wave.reshape(*order.shape, 1), 0.0


def autocorrelated(rng: Random, order: Order) -> tuple[Floats, float]:
    """Noise with an autocorrelation of 0.8 from trial to trial."""
    values = rng.standard_normal(order.size) * 0.02
    for place in range(1, order.size):
        values[place] += 0.8 * values[place - 1]
    return values.reshape(*order.shape, 1), 0.0


def quantised(rng: Random, order: Order) -> tuple[Floats, float]:
    """Values rounded to steps of 5 %, a true effect of 3 %."""
    y = plain(rng, order) + 0.03 * of(order, TREATMENT)
    return np.round(y / 0.05) * 0.05, 0.03


def one_absurd_value(rng: Random, order: Order) -> tuple[Floats, float]:
    """One of the treatment's values is a thousand times too large."""
    y = plain(rng, order)
    round_ = int(rng.integers(order.shape[0]))
    y[round_, order[round_] == TREATMENT, 0] += math.log(1000.0)
    return y, 0.0


def random_effects(rng: Random, order: Order) -> tuple[Floats, float]:
    """The effect differs from round to round: 0 on average, with a standard deviation of 5 %."""
    return plain(rng, order) + of(order, TREATMENT) * 0.05 * rng.standard_normal((order.shape[0], 1, 1)), 0.0


def turning(rng: Random, order: Order) -> tuple[Floats, float]:
    """10 % faster in the first half of the rounds, 10 % slower in the second."""
    side = np.where(np.arange(order.shape[0]) < order.shape[0] / 2, 0.1, -0.1)[:, None, None]
    return plain(rng, order) + of(order, TREATMENT) * side, 0.0


def heavy(rng: Random, order: Order) -> tuple[Floats, float]:
    """Noise with 1.5 degrees of freedom, which has no variance."""
    return 0.01 * rng.standard_t(1.5, size=(*order.shape, 1)), 0.0


def unequal_prompts(rng: Random, order: Order) -> tuple[Floats, float]:
    """Five prompts of which one is ten times as noisy as the others."""
    noise = 0.1 * rng.standard_t(4, size=order.shape)
    y = plain(rng, order, 5)
    y[:, :, 0] += noise
    return y, 0.0


def timeouts(rng: Random, order: Order) -> tuple[Floats, float]:
    """The treatment lacks half of its values of the prompt at which it is twice as fast."""
    y = plain(rng, order, 5) + 0.4 * np.arange(5)[None, None, :]
    y[:, :, 4] += of(order, TREATMENT)[:, :, 0] * math.log(2.0)
    lost = (order == TREATMENT) & (rng.random(order.shape) < 0.5)
    y[:, :, 4][lost] = np.nan
    return y, math.log(2.0) / 5


def lost_last_places(rng: Random, order: Order) -> tuple[Floats, float]:
    """The treatment has no value whenever it comes last in its round, where all are 5 % slower."""
    y = plain(rng, order)
    y[:, -1] -= 0.05
    y[:, -1][order[:, -1] == TREATMENT] = np.nan
    return y, 0.0


def identical(rng: Random, order: Order) -> tuple[Floats, float]:
    """Every value is the same."""
    return np.zeros((*order.shape, 1)), 0.0


def two_valued(rng: Random, order: Order) -> tuple[Floats, float]:
    """A clock of two ticks: each time is 1 or 1.1, by chance, whatever the arm."""
    return np.where(rng.random((*order.shape, 1)) < 0.5, 0.0, math.log(1.1)), 0.0


def one_endless_prompt(rng: Random, order: Order) -> tuple[Floats, float]:
    """One of the treatment's five prompts never ends: no value of it at all."""
    y = plain(rng, order, 5)
    y[:, :, 4][order == TREATMENT] = np.nan
    return y, 0.0


def stalls_of_thirty(rng: Random, order: Order) -> tuple[Floats, float]:
    """Log-normal noise of 3 %, and three tenths of all trials at half speed."""
    stalled = rng.random((*order.shape, 1)) < 0.3
    return 0.03 * rng.standard_normal((*order.shape, 1)) + stalled * math.log(0.5), 0.0


def shared_noise(rng: Random, order: Order) -> tuple[Floats, float]:
    """A round's arms share noise of 5 %."""
    return plain(rng, order) + 0.05 * rng.standard_normal((order.shape[0], 1, 1)), 0.0


def drift_of_a_round(rng: Random, order: Order) -> tuple[Floats, float]:
    """A slow-down of 10 % that takes exactly one round, and is over with it, in every other round."""
    slope = -0.1 * np.arange(order.shape[1]) / order.shape[1]
    return plain(rng, order) + (slope[None, :] * (np.arange(order.shape[0]) % 2)[:, None])[:, :, None], 0.0


def first_place_only(rng: Random, order: Order) -> tuple[Floats, float]:
    """The treatment is 9 % faster where it comes first in its round, and nowhere else."""
    first = np.zeros((*order.shape, 1))
    first[:, 0] = 0.09
    return plain(rng, order) + of(order, TREATMENT) * first, 0.09 / order.shape[1]


def deadline(rng: Random, order: Order) -> tuple[Floats, float]:
    """The treatment stalls at half speed in a fifth of its trials, and a deadline takes just these away."""
    y = plain(rng, order)
    y[(order == TREATMENT) & (rng.random(order.shape) < 0.2)] = np.nan
    return y, 0.2 * math.log(0.5)


def one_round(rng: Random, order: Order) -> tuple[Floats, float]:
    """All arms are equal but in one round, in which the treatment is ten times as slow."""
    y = plain(rng, order)
    y[0][order[0] == TREATMENT] -= math.log(10.0)
    return y, -math.log(10.0) / order.shape[0]


def alternating(rng: Random, order: Order) -> tuple[Floats, float]:
    """Every other trial of the run is 5 % slower, as by a fan that comes and goes."""
    return plain(rng, order) - (0.05 * (np.arange(order.size) % 2)).reshape(*order.shape, 1), 0.0


def growing_noise(rng: Random, order: Order) -> tuple[Floats, float]:
    """Noise that grows tenfold in the course of the run."""
    scale = np.linspace(0.2, 2.0, order.shape[0])[:, None, None]
    return plain(rng, order) * scale, 0.0


def clock_ticks(rng: Random, order: Order) -> tuple[Floats, float]:
    """A clock that ticks every 16 ms times waits of about 100 ms; a true effect of 3 %. Most of the rounds are ties."""
    waits = 0.1 * np.exp(plain(rng, order) + 0.03 * of(order, TREATMENT))
    return np.log(np.ceil(waits / 0.016) * 0.016), 0.03


def clock_phase(rng: Random, order: Order) -> tuple[Floats, float]:
    """The same clock, started at any phase: a wait is a tick longer or shorter by chance."""
    waits = 0.1 * np.exp(plain(rng, order) + 0.03 * of(order, TREATMENT))
    begins = 0.016 * rng.random(waits.shape)
    return np.log((np.floor((begins + waits) / 0.016)) * 0.016), 0.03


def clock_edge(rng: Random, order: Order) -> tuple[Floats, float]:
    """Waits of 111 and 113 ms, to 0.1 %, on either side of a tick of 16 ms: an effect of 1.8 % shows as 14 %."""
    waits = np.exp(0.001 * rng.standard_normal((*order.shape, 1))) * np.where(of(order, TREATMENT) > 0, 0.113, 0.111)
    return np.log(np.ceil(waits / 0.016) * 0.016), math.log(113 / 111)


def lasting_stalls(rng: Random, order: Order) -> tuple[Floats, float]:
    """The machine stalls to 0.7x, for ten trials on the average, a fifth of the time."""
    state, slow = rng.random() < 0.2, np.zeros(order.size)
    for trial in range(order.size):
        state = rng.random() < (0.9 if state else 0.025)
        slow[trial] = state * math.log(0.7)
    return plain(rng, order) + slow.reshape(*order.shape, 1), 0.0


def stalls_of_one_that_last(rng: Random, order: Order) -> tuple[Floats, float]:
    """The treatment alone stalls to 0.7x, for four rounds on the average, a fifth of the time.

    The truth is the mean of the rounds that ran.
    """
    state, slow = rng.random() < 0.2, np.zeros(order.shape[0])
    for round_ in range(order.shape[0]):
        state = rng.random() < (0.75 if state else 0.0625)
        slow[round_] = state * math.log(0.7)
    return plain(rng, order) + of(order, TREATMENT) * slow[:, None, None], float(slow.mean())


def failed_when_slow(rng: Random, order: Order) -> tuple[Floats, float]:
    """One prompt of five fails in the treatment alone, in the half of the rounds in which it would be 30 % slower."""
    y = plain(rng, order, 5) + 0.4 * np.arange(5)[None, None, :]
    bad = rng.random(order.shape) < 0.5
    lost = (order == TREATMENT) & bad
    y[:, :, 4] += (order == TREATMENT) * bad * math.log(0.7)
    y[:, :, 4][lost] = np.nan
    return y, math.log(0.7) / 10


def few_generations(rng: Random, order: Order) -> tuple[Floats, float]:
    """The treatment gives one answer of five in every other round, and not of one prompt: all arms are equal."""
    y = plain(rng, order, 5) + 0.4 * np.arange(5)[None, None, :]
    keeps = rng.integers(5, size=order.shape)[:, :, None] == np.arange(5)[None, None, :]
    few = (order == TREATMENT) & (np.arange(order.shape[0]) % 2 == 0)[:, None]
    y[few[:, :, None] & ~keeps] = np.nan
    return y, 0.0


def censored(rng: Random, order: Order) -> tuple[Floats, float]:
    """Noise of 5 %, the treatment 5 % slower, and a limit that takes every value below -8 % away, whatever the arm."""
    y = 0.05 * rng.standard_normal((*order.shape, 1)) - 0.05 * of(order, TREATMENT)
    y[y < -0.08] = np.nan
    return y, -0.05


def evicted(rng: Random, order: Order) -> tuple[Floats, float]:
    """A treatment's trial puts the control's weights out of memory: the next trial of the control is 3 % slower."""
    y, labels = plain(rng, order), order.ravel()
    after = np.concatenate([[False], (labels[:-1] == TREATMENT) & (labels[1:] != TREATMENT)])
    return y - 0.03 * after.reshape(*order.shape, 1), 0.0


ATTACKS: dict[str, tuple[Attack, tuple[str, ...], Sequence[int]]] = {
    "a third arm stalls in 20 %": (stalling_third, (*THREE, "other"), (8, 20)),
    "exponential slow-downs of one arm, mean -3 %": (skewed, THREE, (8, 40)),
    "10 % stalls of one arm, at random": (stalls_at_random, THREE, (8, 40)),
    "10 % stalls of every arm": (stalls_of_both, THREE, (8, 40)),
    "sawtooth with the period of a round": (every_round_alike, THREE, (8, 20)),
    "wave of 1.5 rounds": (resonance, THREE, (8, 20)),
    "autocorrelation 0.8 from trial to trial": (autocorrelated, THREE, (8, 20)),
    "values in steps of 5 %, effect 3 %": (quantised, THREE, (20,)),
    "one value a thousand times too large": (one_absurd_value, THREE, (20,)),
    "effect varies by round, SD 5 %": (random_effects, THREE, (8, 40)),
    "+10 %, then -10 %": (turning, THREE, (20,)),
    "noise without variance": (heavy, THREE, (8, 20)),
    "one prompt ten times as noisy": (unequal_prompts, THREE, (20,)),
    "half of the best prompt's values missing": (timeouts, THREE, (20,)),
    "no value in last places, which are slower": (lost_last_places, THREE, (8, 20)),
    "identical values": (identical, THREE, (8,)),
    "values of two sizes, 10 % apart": (two_valued, THREE, (8, 40)),
    "one of five prompts has no value of one arm": (one_endless_prompt, THREE, (20,)),
    "30 % stalls of every arm": (stalls_of_thirty, THREE, (8, 40)),
    "noise of 5 % that a round's arms share": (shared_noise, THREE, (8, 20)),
    "a slow-down exactly one round long": (drift_of_a_round, THREE, (8, 20)),
    "9 % faster in first places only, mean 3 %": (first_place_only, THREE, (8, 40)),
    "a deadline takes the stalled fifth away": (deadline, THREE, (20,)),
    "ten times slower in one round only": (one_round, THREE, (8, 40)),
    "every other trial 5 % slower": (alternating, THREE, (8, 20)),
    "noise that grows tenfold": (growing_noise, THREE, (8, 20)),
    "a clock of 16 ms for waits of 100 ms, effect 3 %": (clock_ticks, THREE, (8, 40)),
    "the same clock, an effect of 1.8 % across a tick": (clock_edge, THREE, (8,)),
    "the same clock at any phase, effect 3 %": (clock_phase, THREE, (8, 40)),
    "stalls of the machine that last ten trials": (lasting_stalls, THREE, (8, 40)),
    "stalls of one arm that last four rounds": (stalls_of_one_that_last, THREE, (8, 40)),
    "one prompt fails where one arm would be slow": (failed_when_slow, THREE, (20,)),
    "one answer of five in every other round of one arm": (few_generations, THREE, (8, 20)),
    "a limit takes slow values away, 5 % slower": (censored, THREE, (8, 40)),
    "one arm slows the control's next trial": (evicted, THREE, (8, 20)),
}


def run(attack: Attack, labels: Sequence[str], rounds: int, seed: int) -> tuple[ScopeTrials, float]:
    """One run as the audit reads it, and the true mean effect."""
    rng = np.random.default_rng(seed)
    order = np.array(draw_rounds(list(labels), rounds, seed), dtype=object)
    y, truth = attack(rng, order)
    known = ~np.isnan(y)
    place, _, prompt = np.indices(y.shape)
    names = np.array([f"prompt {number + 1}" for number in range(y.shape[2])], dtype=object)[prompt][known]
    none = np.full(len(names), None, dtype=object)
    usable = Usable(
        y=y[known],
        rounds=place[known],
        labels=np.broadcast_to(order[:, :, None], y.shape)[known],
        prompt_id=names,
        asked=Asked(workload=none, prompt_class=none, turn=np.zeros(len(names), dtype=object)),
    )
    return usable.trials(Scope()), truth


def share(found: Sequence[Judged], wanted: Callable[[Judged], bool]) -> str:
    return f"{np.mean([wanted(one) for one in found]):.2f}"


def line(name: str, rounds: int, found: Sequence[tuple[Judged, float]]) -> str:
    """Return the attack's figures as one line."""
    missed = np.mean([not one.covers(truth) for one, truth in found])
    judgements = [one for one, _ in found]
    verdicts = [share(judgements, partial(_has, verdict)) for verdict in ("supported", "no_difference")]
    return f"| {name} | {rounds} | {missed:.2f} | {' | '.join(verdicts)} |"


def _has(verdict: str, one: Judged) -> bool:
    return one.verdict == verdict


def crowd(runs: int) -> str:
    """Sixty equal arms at six rounds: any supported?"""
    labels = [CONTROL, *(f"arm {number}" for number in range(60))]
    found = []
    for seed in range(runs):
        used, _ = run(lambda rng, order: (plain(rng, order), 0.0), labels, 6, seed)
        pairs = {name: pair for name in labels[1:] if (pair := used.pair(name, CONTROL)) is not None}
        found.append(min(step_down(pairs, alpha=ALPHA, seed=0).values()) <= ALPHA)
    return f"| sixty equal arms, any found in the family | 6 | {np.mean(found):.2f} | | |"


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print("| attack | rounds | interval misses the mean | supported | no difference |\n|---|---|---|---|---|")
    wanted = sys.argv[2:]
    for title, (attack, entries, sizes) in ATTACKS.items():
        if wanted and attack.__name__ not in wanted:
            continue
        for size in sizes:
            settled = []
            for number in range(count):
                trials, true_effect = run(attack, entries, size, number)
                settled.append((judged(trials), true_effect))
            print(line(title, size, settled), flush=True)
    if not wanted:
        print(crowd(max(count // 4, 1)))
