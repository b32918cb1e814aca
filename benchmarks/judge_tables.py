"""Tables of docs/design/judge.md that one command measures: kept as JSON, and written into the page.

    python -m benchmarks.judge_tables --measure [--runs 200] [CHECK ...]   measure all, or these checks anew
    python -m benchmarks.judge_tables                                      write the page from what was measured

    walk       the guard against heat on a random walk of 4 % per trial: what it stops rightly, and wrongly
    histories  false alarms of `interlace history` where evenings resemble the evenings before
    evenings   two runs of one effect that varies by evening: how often `interlace compare` sees a difference
    ties       arms that diverge earlier than rounding explains
    widths     the accept length and the best width predicted along texts of easy and hard stretches
    early      runs that stop early, with prompts of unlike effects
    missing    values that one arm lacks where it runs late or slowly, without a stored loss
    costs      CPU time of the largest audit, and of `estimate_effect`

About eight minutes of one core, by `make judge-tables`. A test holds the page equal to the JSON, and the JSON's method
to the present one.
"""

import argparse
import datetime as dt
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.heat_guard import stopped, walks
from benchmarks.method_tables import finite, markdown, replaced
from benchmarks.truth import Figure
from benchmarks.truth_design import LACKING, lacking
from orchestrator.audit import METHOD_VERSION, audit
from orchestrator.effects import Effect, estimate_effect
from orchestrator.estimation.inversion import Floats
from orchestrator.findings.replay import Text
from orchestrator.findings.rounds import Mask, Rounds
from orchestrator.findings.widths import best_width
from orchestrator.statistics.evenings import between_evenings
from orchestrator.statistics.history import Point, change_points
from orchestrator.statistics.sequential import sequential_effect
from tests.orchestrator.findings.making import ARMS, TOKENS, flagged, judged
from tests.orchestrator.flat import FlatRun

HERE = Path(__file__).resolve()
RESULTS = HERE.with_suffix(".json")
PAGE = HERE.parent.parent / "docs" / "design" / "judge.md"
WALK, HEATS, DECAYING = 0.04, (0.12, 0.25), 0.8
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
PROMPTS, ROUNDING = 40, 0.004  # of near ties: gaps are evenly spread up to 1
REPEATS = 5
SCALES = {
    "evenings": 20.0,
    "missing": 0.5,
    "widths": 0.0,
    "costs": 0.0,
}  # runs per case, in those asked for; 1 for other checks

Figures = Iterator[Figure]


# ---- the checks ----


def walk(runs: int) -> Figures:
    """The guard on a walk of 4 % per trial: effects without heat, and heat without an effect."""
    for rounds in (8, 20):
        for heat, effect in ((0.0, 0.0), (0.0, 0.05), (0.0, 0.1), *((each, 0.0) for each in HEATS)):
            clear, _, stop, stands = stopped(walks(WALK, heat, effect, rounds, runs))
            case = f"{rounds} rounds, effect {effect:.0%}, heat {heat:.0%}"
            figure = partial(Figure, check="walk", case=case)
            yield figure(measured="interval clear of 1", value=clear)
            yield figure(measured="stopped", value=stop)
            yield figure(measured="stands", value=stands, most=math.inf if effect else 0.05)


def histories(runs: int) -> Figures:
    """Histories without a change, of correlated evenings; then one step of twice the noise."""
    for length in (90, 420):
        for correlation in (0.0, 0.2, 0.4, 0.6):
            alarms = [bool(_changes(wandering(length, correlation, seed), seed)) for seed in range(runs)]
            case = f"{length} points, correlation {correlation:g}"
            yield Figure(check="histories", case=case, measured="a change is found", value=_share(alarms), most=0.03)
    for length in (24, 90):
        step = 0.02 * (np.arange(length) >= length // 2)
        found = [bool(_changes(wandering(length, 0.0, seed) * np.exp(step), seed)) for seed in range(runs)]
        case = f"{length} points, a step of twice the noise"
        yield Figure(check="histories", case=case, measured="a change is found", value=_share(found))


def wandering(length: int, correlation: float, seed: int) -> Floats:
    """Return a first-order autoregression around one level, with news of 1 %."""
    draw = np.random.default_rng(seed)
    level, logs = draw.normal(0, 0.01 / np.sqrt(1 - correlation**2)), []
    for news in draw.normal(0, 0.01, length):
        level = correlation * level + news
        logs.append(level)
    return 10 * np.exp(np.array(logs))


def _changes(values: Floats, seed: int) -> Sequence[object]:
    points = [
        Point(run_id=f"run-{index}", at=START + dt.timedelta(days=index), value=float(value), versions={})
        for index, value in enumerate(values)
    ]
    return change_points(points, seed=seed)


def evenings(runs: int) -> Figures:
    """One effect that varies by evening, seen on two further evenings."""
    for spread in (0.01, 0.02):
        for known in (3, 8):
            wrong = list(_differences(spread, known, runs))
            case = f"spread {spread:.0%}, {known} other evenings"
            yield Figure(check="evenings", case=case, measured="seems to differ", value=_share(wrong), most=0.06)


def _differences(spread: float, known: int, runs: int) -> Iterator[bool]:
    draw = np.random.default_rng(7)
    for _ in range(runs):
        found = between_evenings({"pair": np.exp(draw.normal(0, spread, known))})
        assert found is not None
        yield abs(draw.normal(0, spread) - draw.normal(0, spread)) > found.half_width(0.05)


def ties(runs: int) -> Figures:
    """An arm beside a peer whose passes round as the arm's would."""
    for size, least, most in ((1, 0.0, 0.05), (2, 0.0, 1.0), (4, 0.8, 1.0)):
        found = ["one" in hit for hit in early_divergences(size, runs)]
        case = f"{PROMPTS} prompts of {TOKENS} tokens, {size} x the rounding"
        yield Figure(check="ties", case=case, measured="flagged", value=_share(found), least=least, most=most)


def early_divergences(size: float, runs: int, seed: int = 5) -> Iterator[Sequence[str]]:
    """Yield each run's flagged arms. The gaps are one model's, the noise each arm's own; gaps near 0 are not rare."""
    luck = np.random.default_rng(seed)
    for _ in range(runs):
        gaps = luck.random((PROMPTS, TOKENS))
        places: dict[str, list[int | None]] = {
            "plain": [None] * PROMPTS,
            "one": _flips(luck, gaps, size * ROUNDING),
            "other": _flips(luck, gaps, ROUNDING),
        }
        yield flagged(judged(places, ARMS))


def _flips(luck: np.random.Generator, gaps: Floats, size: float) -> list[int | None]:
    """Return for each prompt the place at which noise of this size first exceeds the gap."""
    hit = np.abs(luck.normal(0, size, gaps.shape)) > gaps
    return [int(row.argmax()) if row.any() else None for row in hit]


def widths(_: int) -> Figures:
    """Texts of 300,000 tokens: easy and hard stretches, in which a draft is right with these chances."""
    for easy, hard, length in ((0.8, 0.8, 30), (0.95, 0.4, 30), (0.97, 0.3, 60), (0.97, 0.3, 15), (0.99, 0.2, 100)):
        marks = _stretches(easy, hard, length, np.random.default_rng(3))
        true = {width: decoding(marks, width).accept_length or 1.0 for width in range(2, 17)}
        text = Text.of([decoding(marks, 16)], width=16)
        assert text is not None
        predicted = {width: text.walked(width, to_the_end=False).accept_length for width in true}
        figure = partial(Figure, check="widths", case=f"right in {easy:.0%} and {hard:.0%}, stretches of {length}")
        error = max(abs(predicted[width] / true[width] - 1) for width in true)
        yield figure(measured="error of the accept length, at most", value=error, most=0.05)
        lost = [_lost_by_width(predicted, true, cost) for cost in (0.03, 0.05, 0.08)]
        yield figure(measured="speed lost by the width chosen, at most", value=max(lost), most=0.01)


def _stretches(easy: float, hard: float, length: int, rng: np.random.Generator, tokens: int = 300_000) -> Mask:
    """Return for each token whether a draft is right there."""
    sizes = rng.geometric(1 / length, size=3 * tokens // length)
    chances = np.repeat(np.resize([easy, hard], len(sizes)), sizes)[:tokens]
    found: Mask = rng.random(len(chances)) < chances
    return found


def decoding(marks: Mask, width: int) -> Rounds:
    """Return the whole rounds of this width along a text."""
    wrong = np.append(np.flatnonzero(~marks), len(marks) + width).tolist()
    accepted, at, next_wrong = [], 0, 0
    while at + width < len(marks):
        while wrong[next_wrong] < at:
            next_wrong += 1
        accepted.append(min(wrong[next_wrong] - at, width - 1))
        at += accepted[-1] + 1
    taken = np.array(accepted)
    drafted = np.full(len(taken), width - 1)
    return Rounds(drafted=drafted, accepted=taken, committed=taken + 1, seconds=np.ones(len(taken)))


def _lost_by_width(predicted: Mapping[int, float], true: Mapping[int, float], cost: float) -> float:
    """Return the speed lost by the predicted best width, if each token more in a pass costs this share of a pass."""
    gains, actual = (
        {1: 1.0} | {width: length / (1 + cost * (width - 1)) for width, length in lengths.items()}
        for lengths in (predicted, true)
    )
    return 1 - actual[best_width(gains)] / actual[best_width(actual)]


MIXED = {
    "9 of 12 prompts +8 %, 3 at 0.5x": [0.08] * 9 + [math.log(0.5)] * 3,
    "15 of 20 prompts +5 %, 5 at 0.5x": [0.05] * 15 + [math.log(0.5)] * 5,
    "8 of 10 prompts +4 %, 2 at 0.6x": [0.04] * 8 + [math.log(0.6)] * 2,
    "16 of 20 prompts equal, 4 at 0.6x": [0.0] * 16 + [math.log(0.6)] * 4,
}


def early(runs: int) -> Figures:
    """Eight passes over the prompts, looked at after each round until the effect is clear of 1."""
    for case, effects in MIXED.items():
        found = [_stopped_early(np.array(effects), seed) for seed in range(runs)]
        mean, decided = float(np.mean(effects)), [one.p_value <= 0.05 for one in found]
        wrong = [clear and one.ratio > 1 for one, clear in zip(found, decided, strict=True)]
        figure = partial(Figure, check="early", case=case)
        yield figure(measured="decided", value=_share(decided))
        yield figure(measured="in the wrong direction", value=_share(wrong), most=0.05)
        covers = [one.ci_low <= math.exp(mean) <= one.ci_high for one in found]
        yield figure(measured="interval holds the mean", value=_share(covers), least=0.9)


def _stopped_early(effects: Floats, seed: int) -> Effect:
    rng = np.random.default_rng(seed)
    prompts = np.concatenate([rng.permutation(len(effects)) for _ in range(8)])
    rounds = effects[prompts] + math.sqrt(2) * 0.01 * rng.standard_t(4, len(prompts))
    for seen in range(len(effects), len(rounds) + 1, len(effects)):  # between these, no whole pass is new
        found = sequential_effect(rounds[:seen], alpha=0.05, prompts=prompts[:seen])
        if found.p_value <= 0.05:
            break
    return found


def missing(runs: int) -> Figures:
    """Equal arms, one of which lacks values; the audit knows no reason."""
    for name, pick in LACKING.items():
        for without_row in (True, False):
            frames = (lacking(pick, seed, without_row=without_row) for seed in range(runs))
            found = [audit(frame, control="plain", metric="end_to_end_tps").comparisons[0] for frame in frames]
            figure = partial(Figure, check="missing", case=f"{name}, no {'row' if without_row else 'value'}")
            clear = [one.ci_low is not None and (one.ci_low > 1 or (one.ci_high or math.inf) < 1) for one in found]
            yield figure(measured="interval clear of 1", value=_share(clear))
            for verdict, most in (("supported", 0.1), ("no_difference", 0.1)):
                said = [one.verdict == verdict for one in found]
                yield figure(measured=verdict.replace("_", " "), value=_share(said), most=most)


def costs(_: int) -> Figures:
    """The least of five measurements, in CPU seconds of this process, with one thread of linear algebra.

    More threads wait for each other by spinning: on two busy cores the same audit then takes 2.3 to 7.9 s.
    """
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        sys.exit("costs: threads that spin count as work; set OPENBLAS_NUM_THREADS=1")
    prompts = {f"p{index}": f"class{index}" for index in range(5)}
    effects = {f"arm{index}": 1 + 0.02 * index for index in range(20)}
    large = FlatRun(effects=effects, rounds=40, by_prompt=True, prompts=prompts).frame()
    spent = _cpu_s(lambda: audit(large, control="arm0", metric="end_to_end_tps"))
    yield Figure(check="costs", case="audit of 20 arms, 40 rounds, 5 classes", measured="CPU s", value=spent, most=2.0)
    for arms, rounds in ((2, 8), (20, 40), (2, 300)):
        frame = _plain_frame(arms, rounds)
        spent = _cpu_s(partial(estimate_effect, frame, treatment="arm1", control="arm0"))
        case = f"estimate_effect, {arms} arms, {rounds} rounds"
        yield Figure(check="costs", case=case, measured="CPU s", value=spent, most=0.025 if rounds <= 40 else math.inf)


def _plain_frame(arms: int, rounds: int) -> Any:
    """Return the rows that `estimate_effect` takes."""
    prompts = {"p": "x"}
    effects = {f"arm{index}": 1.0 for index in range(arms)}
    frame = FlatRun(effects=effects, rounds=rounds, aa=False, bracket=False, prompts=prompts).frame()
    measured = frame[frame["kind"] == "measured"]
    return measured[["round", "position", "arm"]].assign(value=measured["end_to_end_tps"])


def _cpu_s(work: Callable[[], object]) -> float:
    found = []
    for _ in range(REPEATS + 1):  # the first one warms the caches
        started = time.process_time()
        work()
        found.append(time.process_time() - started)
    return min(found[1:])


def _share(found: Sequence[bool]) -> float:
    return float(np.mean(found))


CHECKS: dict[str, Callable[[int], Figures]] = {
    "walk": walk,
    "histories": histories,
    "evenings": evenings,
    "ties": ties,
    "widths": widths,
    "early": early,
    "missing": missing,
    "costs": costs,
}


# ---- the page ----


def measured(runs: int, names: Sequence[str], before: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of the named checks measured anew, the others as they were."""
    found: dict[str, Any] = {name: before[name] for name in CHECKS if name in before}
    for name in names:
        cases = round(SCALES.get(name, 1.0) * runs)
        found[name] = {
            "method_version": METHOD_VERSION,
            "measured_on": dt.datetime.now(dt.UTC).date().isoformat(),
            "runs": cases,
            "figures": [finite(asdict(figure)) for figure in CHECKS[name](cases)],
        }
    return {name: found[name] for name in CHECKS if name in found}


def tables(results: Mapping[str, Any]) -> dict[str, str]:
    """Each table of the page by its check, as Markdown: a row per case, a column per figure."""
    return {name: _table(result) for name, result in results.items()}


def _table(result: Mapping[str, Any]) -> str:
    cases: dict[str, dict[str, float]] = {}
    for figure in result["figures"]:
        cases.setdefault(figure["case"], {})[figure["measured"]] = figure["value"]
    columns = list(dict.fromkeys(figure["measured"] for figure in result["figures"]))
    rows = [[case, *(f"{values[name]:.3f}" for name in columns if name in values)] for case, values in cases.items()]
    head = f"Method {result['method_version']}, measured on {result['measured_on']}"
    runs = f", {result['runs']:,} runs per case" if result["runs"] else ""
    return f"{head}{runs}.\n\n" + markdown(["case", *columns], rows)


def main() -> None:
    """Measure if asked to, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("checks", nargs="*", metavar="CHECK")
    given = parser.parse_args()
    if unknown := [name for name in given.checks if name not in CHECKS]:
        parser.error(f"{unknown[0]}: no such check; choose of {', '.join(CHECKS)}")
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    if given.measure:
        results = measured(given.runs, given.checks or list(CHECKS), results)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), tables(results), PAGE), encoding="utf-8")


if __name__ == "__main__":
    main()
