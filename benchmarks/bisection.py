"""How often a bisection names the wrong release, on simulated nights.

    python benchmarks/bisection.py [--searches 200] [--releases 12]

Every run of a search has its own drift of -34 % and noise of 1 %. One release of the history is 5 % slower than those
before it, at a place drawn at random; in as many histories none is. The run of both ends is looked at after each
round and stops as soon as it is decided, by the inference that `interlace bisect` uses there (`design.stop=early`).
Candidates are classified by `orchestrator.statistics.bisection` with the exact tests of `orchestrator.effects`. No
worker runs, and the doubts of the audit that need more than speeds (excluded trials, order effects) are left out:
they only delay the stop.
"""

import argparse
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from orchestrator.commands.release_search import MORE
from orchestrator.effects import Effect, effect_of, make_series
from orchestrator.schedule import minimum_rounds
from orchestrator.statistics.bisection import Answer, Mark, answer, classify, next_candidate, rounds_needed, step_level
from orchestrator.statistics.drift import Setting
from orchestrator.statistics.sequential import sequential_effect
from orchestrator.statistics.simulate import SimulatedRun, simulated_runs
from orchestrator.statistics.verdicts import Case, decide

ALPHA, MARGIN = 0.05, 0.02
SETTING = Setting(profile="saturating", size=-0.34, noise=0.01)


def search(logs: Sequence[float], *, seed: int) -> Answer | None:
    """Bisect one history of log speeds; None: no difference between its ends."""
    names = [str(number) for number in range(len(logs))]
    level = step_level(len(names), alpha=ALPHA)
    rounds = rounds_needed(level)
    if ends_effect(_run([logs[0], logs[-1]], MORE * rounds, seed), level=level).p_value > level:
        return None
    marks: dict[str, Mark] = {}
    while (candidate := next_candidate(names, marks)) is not None:
        for attempt, factor in enumerate((1, MORE)):
            step_seed = seed + 1 + 2 * len(marks) + attempt
            run = _run([logs[0], logs[-1], logs[int(candidate)]], factor * rounds, step_seed)
            mark = classify(_effect(run, 2, 0, seed), _effect(run, 2, 1, seed), level=level)
            if mark != "undecided":
                break
        marks[candidate] = mark
    return answer(names, marks)


def ends_effect(run: SimulatedRun, *, level: float) -> Effect:
    """The bad end against the good one when the run is decided, or after its last round."""
    raw = make_series(run.y, rounds=run.rounds, arms=run.arms).raw
    for count in range(minimum_rounds(level), len(raw) + 1):
        effect = sequential_effect(raw[:count], alpha=level)
        verdict, _ = decide(
            Case(
                effect=effect,
                floor=None,
                idle=(),
                confounders=(),
                family_p=None,
                family_size=1,
                carry_over=None,
                alpha=level,
                margin=MARGIN,
            )
        )
        if verdict in ("supported", "no_difference"):
            break
    return effect


def _run(logs: Sequence[float], rounds: int, seed: int) -> SimulatedRun:
    effects = [math.exp(each - logs[0]) for each in logs[1:]]
    (run,) = simulated_runs(SETTING, arms=len(logs), rounds=rounds, effects=effects, runs=1, seed=seed)
    return run


def _effect(run: SimulatedRun, treatment: int, control: int, seed: int) -> Effect:
    arms = np.select([run.arms == treatment, run.arms == control], [1, 0], default=2 + run.arms)
    return effect_of(make_series(run.y, rounds=run.rounds, arms=arms), alpha=ALPHA, seed=seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=200, help="of each kind")
    parser.add_argument("--releases", type=int, default=12)
    asked = parser.parse_args()
    rng = np.random.default_rng(0)
    found: Counter[str] = Counter()
    for number in range(asked.searches):
        place = int(rng.integers(1, asked.releases))
        logs = [0.0 if each < place else math.log(0.95) for each in range(asked.releases)]
        found[_word(search(logs, seed=1000 * number), str(place))] += 1
    none = sum(
        search([0.0] * asked.releases, seed=1000 * (asked.searches + number)) is None
        for number in range(asked.searches)
    )
    print(f"{asked.searches} histories of {asked.releases} releases, one 5 % slower; drift -34 %, noise 1 %")
    for word in ("right release", "a range that holds it", "wrong", "no difference"):
        print(f"  {word:22} {found[word]:4}  {found[word] / asked.searches:6.1%}")
    print(
        f"{asked.searches} histories without a change\n  no difference          {none:4}  {none / asked.searches:6.1%}"
    )


def _word(answer: Answer | None, place: str) -> str:
    if answer is None:
        return "no difference"
    if place not in answer.first:
        return "wrong"
    return "right release" if answer.first == (place,) else "a range that holds it"


if __name__ == "__main__":
    main()
