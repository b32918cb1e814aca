"""Known truths about heat, lost trials, missing values, scopes and waits, checked against the whole audit.

Prints one table per check.

    python benchmarks/truth_design.py [--runs 200] [--only gaps]

In none of these runs is one arm faster by itself, so "supported" is always wrong. Limits: supported in at most 5 % of
the runs, an equal arm kept among the best over six classes in at least 95 %.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))

from orchestrator.audit import AuditResult, audit
from orchestrator.statistics.drift import Floats, Setting
from orchestrator.statistics.findings import Comparison
from orchestrator.statistics.heat_design import COOLDOWNS, judge_heat
from orchestrator.statistics.losses import Flags
from tests.orchestrator.flat import FlatRun, changed
from tests.orchestrator.statistics.frames import conversation, throttling

SETTING = Setting(profile="linear", size=-0.1, noise=0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--only", choices=CHECKS, action="append", help="Repeatable. Default: all.")
    given = parser.parse_args()
    for name in given.only or CHECKS:
        CHECKS[name](given.runs)


def heat(runs: int) -> None:
    """An arm leaves heat: it seems faster, because it runs once in each round."""
    print(f"{'heat':>5} {'decay':>5} {'rounds':>6} {'bias':>7} {'wrong':>6} {'flagged':>7} {'supported':>9}")
    for size in (0.12, 0.25):
        for decay in (0.0, 0.5, 0.8, 0.9):
            for rounds in (8, 20):
                found = judge_heat(
                    SETTING,
                    heat={"plain": 0.0, "hot": size},
                    control="plain",
                    aa=True,
                    decay=decay,
                    order="random",
                    rounds=rounds,
                    alpha=0.05,
                    margin=0.02,
                    runs=runs,
                    seed=0,
                    cooldowns=COOLDOWNS[:1],
                )[0]
                shares = f"{found.wrong:>6.3f} {found.flagged:>7.3f} {found.supported:>9.3f}"
                print(f"{size:>5} {decay:>5} {rounds:>6} {found.bias:>+7.2%} {shares}", flush=True)


def replays(runs: int) -> None:
    """An arm throttles to 0.8x in a share of its trials; its rounds are replayed until they are clean."""
    print(f"\n{'rounds':>6} {'share':>5} {'truth':>6} {'kept':>6} {'first':>6} {'supported':>9} {'no difference':>13}")
    for rounds, share in ((8, 0.3), (20, 0.3), (20, 0.5), (40, 0.3)):
        found = [_first(_judged(throttling(rounds=rounds, share=share, seed=seed))) for seed in range(runs)]
        kept = np.median([one.ratio for one in found if one.ratio is not None])
        first = np.median([one.included.ratio for one in found if one.included and one.included.ratio is not None])
        verdicts = [one.verdict for one in found]
        shares = f"{_share(verdicts, 'supported'):>9.3f} {_share(verdicts, 'no_difference'):>13.3f}"
        print(f"{rounds:>6} {share:>5} {0.8**share:>6.3f} {kept:>6.3f} {first:>6.3f} {shares}", flush=True)


def gaps(runs: int) -> None:
    """Equal arms; one lacks values without a stored loss: where it comes last, which is slower, or where it stalls."""
    print(f"\n{'lacking':>26} {'as':>9} {'clear of 1':>10} {'supported':>9} {'no difference':>13}")
    for name, pick in LACKING.items():
        for without_row in (True, False):
            found = [_first(_judged(lacking(pick, seed, without_row=without_row))) for seed in range(runs)]
            clear = np.mean([one.ci_low is not None and one.ci_high is not None and not _holds_1(one) for one in found])
            verdicts = [one.verdict for one in found]
            shares = f"{_share(verdicts, 'supported'):>9.3f} {_share(verdicts, 'no_difference'):>13.3f}"
            print(f"{name:>26} {'no row' if without_row else 'no value':>9} {clear:>10.3f} {shares}", flush=True)


def _holds_1(one: Comparison) -> bool:
    return (one.ci_low or 0.0) <= 1 <= (one.ci_high or np.inf)


# Returns the factor of each row's value and the rows that lack it, for rows, which of them are the arm's, and luck.
Pick = Callable[[pd.DataFrame, Flags, np.random.Generator], tuple[Floats, Flags]]


def _late(size: float) -> Pick:
    def pick(frame: pd.DataFrame, mine: Flags, rng: np.random.Generator) -> tuple[Floats, Flags]:
        last = (frame["position"] == 2).fillna(value=False).to_numpy(dtype=bool)
        return np.where(last, 1.0 - size, 1.0), mine & last & (rng.random(len(frame)) < 0.9)

    return pick


def _stalling(frame: pd.DataFrame, mine: Flags, rng: np.random.Generator) -> tuple[Floats, Flags]:
    stalled = mine & (rng.random(len(frame)) < 0.2)
    return np.where(stalled, 0.5, 1.0), stalled


def _early(frame: pd.DataFrame, mine: Flags, rng: np.random.Generator) -> tuple[Floats, Flags]:
    early = (frame["round"] < 6).fillna(value=False).to_numpy(dtype=bool)
    return np.where(early, 0.9, 1.0), mine & early & (rng.random(len(frame)) < 0.9)


def _one_prompt(frame: pd.DataFrame, mine: Flags, rng: np.random.Generator) -> tuple[Floats, Flags]:
    slow = mine & (frame["prompt_id"] == "p4").to_numpy(dtype=bool) & (rng.random(len(frame)) < 0.5)
    return np.where(slow, 0.7, 1.0), slow


def _limit(frame: pd.DataFrame, mine: Flags, rng: np.random.Generator) -> tuple[Floats, Flags]:
    logs = 0.05 * rng.standard_normal(len(frame))
    return np.exp(logs), logs < -0.08


def _answers(frame: pd.DataFrame, mine: Flags, rng: np.random.Generator) -> tuple[Floats, Flags]:
    kept = "p" + pd.Series(rng.integers(5, size=100)).astype(str)
    other = frame["prompt_id"] != frame["round"].fillna(0).astype(int).map(kept)
    every_other = (frame["round"] % 2 == 0).fillna(value=False)
    return np.ones(len(frame)), mine & (other & every_other).to_numpy(dtype=bool)


LACKING: dict[str, Pick] = {
    "last places, 5 % slower": _late(0.05),
    "last places, 20 % slower": _late(0.2),
    "its stalled fifth": _stalling,
    "the slow first six rounds": _early,
    "one prompt of five where slow": _one_prompt,
    "below a limit, either arm": _limit,
    "four answers of five, every other round": _answers,
}
OF_FIVE = (_one_prompt, _answers)  # prompts; the others have one


def lacking(pick: Pick, seed: int, *, without_row: bool) -> pd.DataFrame:
    """Return the rows of 20 rounds of equal arms from which `pick` takes values, or the rows themselves."""
    prompts = {f"p{number}": "x" for number in range(5 if pick in OF_FIVE else 1)}
    run = FlatRun(effects={"plain": 1.0, "t0": 1.0}, rounds=20, noise=0.01, drift=0.0, seed=seed, prompts=prompts)
    frame = run.frame()
    measured = frame["round"].notna().to_numpy()
    mine = (frame["arm"] == "t0").to_numpy(dtype=bool) & measured
    factor, picked = pick(frame, mine, np.random.default_rng(seed))
    frame = frame.assign(end_to_end_tps=frame["end_to_end_tps"] * factor)
    gone = pd.Series(picked & measured)
    return frame[~gone] if without_row else changed(frame, gone, end_to_end_tps=None)


def scopes(runs: int) -> None:
    """Equal arms over six prompt classes: how often the best set over all of them keeps each."""
    print(f"\n{'arms':>5} {'rounds':>6} {'keeps an equal arm':>18} {'any supported over all':>22}")
    for arms, rounds in ((1, 8), (3, 8), (3, 20)):
        results = [_judged(_equal(arms, rounds, seed)) for seed in range(runs)]
        kept = np.mean(["t0" in result.best[0].arms for result in results])
        wrong = np.mean([any(one.over_all and one.verdict == "supported" for one in r.comparisons) for r in results])
        print(f"{arms:>5} {rounds:>6} {kept:>18.3f} {wrong:>22.3f}", flush=True)


def _equal(arms: int, rounds: int, seed: int) -> pd.DataFrame:
    prompts = {f"p{number}": f"class{number % 6}" for number in range(12)}
    effects = {"plain": 1.0} | {f"t{number}": 1.0 for number in range(arms)}
    frame = FlatRun(effects=effects, rounds=rounds, noise=0.008, seed=seed, prompts=prompts).frame()
    rng = np.random.default_rng(seed)
    return frame.assign(end_to_end_tps=frame["end_to_end_tps"] * np.exp(0.015 * rng.standard_t(4, len(frame))))


def waits(_: int = 1) -> None:
    """Equal engines with a prefix cache whose answers have other lengths: the second turn waits for its own answer."""
    print(f"\n{'answers':>9} {'cached known':>12} {'ratio':>6}  verdict")
    for answers in ((10, 100), (40, 100), (64, 80)):
        for known in (True, False):
            found = _second_turn(answers, known=known)
            print(
                f"{answers[0]:>4}/{answers[1]:<4} {known!s:>12} {found.ratio or 0:>6.2f}  {found.verdict}", flush=True
            )


def _second_turn(answers: tuple[int, int], *, known: bool) -> Comparison:
    result = audit(conversation(answers=answers, known=known), control="plain", metric="ttft_s")
    return next(one for one in result.comparisons if one.turn == 1)


def _judged(frame: pd.DataFrame) -> AuditResult:
    return audit(frame, control="plain", metric="end_to_end_tps")


def _first(result: AuditResult) -> Comparison:
    return result.comparisons[0]


def _share(verdicts: list[str], wanted: str) -> float:
    return verdicts.count(wanted) / len(verdicts)


CHECKS = {"heat": heat, "replays": replays, "gaps": gaps, "scopes": scopes, "waits": waits}

if __name__ == "__main__":
    main()
