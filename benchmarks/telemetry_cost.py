"""Measure the sampler's cost: the work that is lost around one sample, many times, as a paired random A/B.

    python benchmarks/telemetry_cost.py --minutes 30                 a loop on one core stands for decoding
    python benchmarks/telemetry_cost.py --minutes 30 --model FOLDER  a real model, decoded by a worker

A sample a second takes a few milliseconds, so whole runs with and without the sampler drown its effect in the machine's
drift. Here one piece of work goes on without a pause, in a process of its own that stamps each step. Once a period the
sampler, stopped by SIGSTOP, is let go for one short window, in which it takes the one sample that is overdue; a window
of the same length beside it has none. Which comes first is drawn each time. The two windows are a fraction of a second
apart, so slow drift cancels; the sample is as cold as in a run, because a period lies between two; and its effect is
not diluted by the rest of the second. What a window loses, divided by the sampler's interval, is its cost in a run.

    cost = window / interval * (1 - exp(m)),  m: Hodges-Lehmann estimate of log(rate with / rate without) over the pairs

with the interval that inverts Wilcoxon's signed-rank test. The wanted bound is 0.5 %. Beside it stands the sampler's
own processor time, which bounds what it can take from a machine that has a core to spare.
"""

import argparse
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy.stats import norm

from orchestrator.plan import Deadlines
from workers.machine.samples import Sampler
from workers.protocol import Generate, Load
from workers.supervision.worker_process import WorkerProcess, WorkerSpec

BOUND = 0.005
INTERVAL_S = 1.0  # of the sampler in a run
PERIOD_S = 1.0  # between two samples here: as cold as in a run
OVERDUE_S = 0.5  # the sampler's interval here: a sample is due whenever it is let go
READY = "ready\n"
LEAD_S = 1.0  # of a stretch of work before its first pair: it is under way by then


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two windows of monotonic seconds; how many samples fell into each."""

    on_s: float
    off_s: float
    samples_on: int
    samples_off: int

    @property
    def clean(self) -> bool:
        return (self.samples_on, self.samples_off) == (1, 0)


# ---- the work: stamps in monotonic seconds, one a step or token ----


def loop(seconds: float) -> list[float]:
    """Stamps of a loop that does nothing else; runs in a process of its own."""
    stamps = [time.monotonic()]
    count, end = 0, stamps[0] + seconds
    while stamps[-1] < end:
        for _ in range(20_000):
            count += 1
        stamps.append(time.monotonic())
    return stamps


class Loop:
    """The loop as a process: what the sampler's reader does in this one does not slow it."""

    def __init__(self, seconds: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--loop", str(seconds)], stdout=subprocess.PIPE, text=True
        )

        if self._process.stdout is None or self._process.stdout.readline() != READY:
            raise RuntimeError("the loop did not start")

    def stamps(self) -> np.ndarray:
        text, _ = self._process.communicate()
        return np.array(json.loads(text))


def decoded(worker: WorkerProcess, tokens: int) -> np.ndarray:
    """Stamps of one long answer."""
    turns = [[{"role": "user", "content": "Tell a story about a lighthouse."}]]
    (answer,) = worker.generate(Generate(request_id="r", turns=turns, max_tokens=tokens, seed=1), Deadlines())
    wall_less_monotonic = time.time() - time.monotonic()
    started_s = datetime.fromisoformat(answer.started_at).timestamp() - wall_less_monotonic
    return started_s + np.array(answer.stamps_us) / 1e6


def loaded(folder: Path, model: Path) -> WorkerProcess:
    worker = WorkerProcess(
        WorkerSpec(run_id="benchmark", arm="model", log_path=folder / "log", journal_path=folder / "journal")
    )
    sampling = {"temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "ignore_eos": True, "chat_template": True}
    request = Load(
        target="workers.engines.mlx_lm.MlxLm",
        settings={},
        checkpoint={"name": model.name, "source": "local", "path": str(model.resolve())},
        draft=None,
        sampling=sampling | {"template_options": {}},
    )
    worker.load(request, Deadlines())
    return worker


# ---- the windows ----


def windows(sampler: Sampler, draw: random.Random, *, window_s: float, until_s: float) -> Iterator[Pair]:
    """Lets the sampler go for one window of each pair, until a moment of monotonic seconds."""
    while time.monotonic() + PERIOD_S + 2 * window_s < until_s:
        time.sleep(PERIOD_S - 2 * window_s + draw.uniform(0, 0.05))
        starts = {}
        for side in draw.sample(["on", "off"], 2):
            starts[side] = time.monotonic()
            os.kill(sampler.pid, signal.SIGCONT if side == "on" else signal.SIGSTOP)
            time.sleep(window_s)
            os.kill(sampler.pid, signal.SIGSTOP)
        found = {side: count(sampler, start, window_s) for side, start in starts.items()}
        yield Pair(on_s=starts["on"], off_s=starts["off"], samples_on=found["on"], samples_off=found["off"])


def count(sampler: Sampler, start_s: float, window_s: float) -> int:
    """The number of samples that began within a window and are reported by now."""
    return len([sample for sample in sampler.since(start_s) if sample.at_s < start_s + window_s])


def log_ratio(stamps: np.ndarray, pair: Pair, window_s: float) -> float | None:
    """log(work with the sampler / work without); None: the work did not cover both windows."""
    done = [np.interp([start, start + window_s], stamps, np.arange(len(stamps))) for start in (pair.on_s, pair.off_s)]
    inside = stamps[0] < min(pair.on_s, pair.off_s) and max(pair.on_s, pair.off_s) + window_s < stamps[-1]
    with_it, without = (float(end - start) for start, end in done)
    return math.log(with_it / without) if inside and with_it > 0 and without > 0 else None


# ---- what it says ----


def hodges_lehmann(values: np.ndarray, *, alpha: float = 0.05) -> tuple[float, float, float]:
    """The median of all pairwise means, and the interval that inverts Wilcoxon's signed-rank test (normal limit).

    Source: Hollander, Wolfe, Chicken, Nonparametric Statistical Methods, 3.2 and 3.3.
    """
    n = len(values)
    means = np.sort(((values[:, None] + values[None, :]) / 2)[np.triu_indices(n)])
    spread = norm.ppf(1 - alpha / 2) * math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    low = max(math.floor(n * (n + 1) / 4 - spread), 0)
    return float(np.median(means)), float(means[low]), float(means[len(means) - 1 - low])


def report(ratios: np.ndarray, *, dropped: int, window_s: float, cpu_share: float | None) -> None:
    """Print the result, and whether it is conclusive."""

    def cost(log_rate: float) -> float:
        return window_s / INTERVAL_S * (1 - math.exp(log_rate))

    middle, low, high = hodges_lehmann(ratios)
    cores = os.cpu_count() or 1
    print(
        f"{len(ratios)} pairs of windows of {window_s:g} s; {dropped} dropped: not one sample in one, none in the other"
    )
    rates = [math.exp(value) for value in (middle, low, high)]
    print("rate in a window with a sample over without: {:.4f} ({:.4f} to {:.4f})".format(*rates))
    lost = f"{cost(middle):.3%} ({cost(high):.3%} to {cost(low):.3%})"
    print(f"lost of all work, at a sample every {INTERVAL_S:g} s: {lost}")
    known = (
        "not readable here" if cpu_share is None else f"{cpu_share:.3%} of one core, {cpu_share / cores:.3%} of {cores}"
    )
    print(f"the sampler's own processor time: {known}")
    if cost(low) < BOUND:
        print(f"shown: less than {BOUND:.1%}")
    elif cost(high) > BOUND:
        print(f"refuted: more than {BOUND:.1%}")
    else:
        print(f"not shown: this machine's noise hides {BOUND:.1%} in so many pairs")


def measure(work: Callable[[float], Callable[[], np.ndarray]], *, minutes: float, window_s: float) -> None:
    """Stretches of work with pairs of windows in them, until the time is over."""
    draw, ratios, dropped = random.Random(0), list[float](), 0
    end_s, stretch_s = time.monotonic() + 60 * minutes, min(60.0, 60 * minutes)
    with Sampler(interval_s=OVERDUE_S) as sampler:
        while len(sampler.since(0)) < 4:  # what cannot be read here is no longer tried
            time.sleep(0.05)
        os.kill(sampler.pid, signal.SIGSTOP)
        first = sampler.since(0)[-1]
        try:
            while time.monotonic() < end_s:
                stamps_of = work(stretch_s)
                time.sleep(LEAD_S)
                until_s = time.monotonic() + stretch_s - 2 * LEAD_S
                pairs = list(windows(sampler, draw, window_s=window_s, until_s=until_s))
                stamps = stamps_of()
                found = [log_ratio(stamps, pair, window_s) if pair.clean else None for pair in pairs]
                ratios += [value for value in found if value is not None]
                dropped += found.count(None)
        finally:
            os.kill(sampler.pid, signal.SIGCONT)  # a stopped process does not take SIGTERM
        last = sampler.since(0)[-1]
        taken = len(sampler.since(first.at_s)) - 1
    spent_s = None if first.cpu_s is None or last.cpu_s is None else last.cpu_s - first.cpu_s
    cpu_share = None if spent_s is None else spent_s / max(taken, 1) / INTERVAL_S
    report(np.array(ratios), dropped=dropped, window_s=window_s, cpu_share=cpu_share)


def main() -> None:
    """Run the measurement and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--window-s", type=float, default=0.2)
    parser.add_argument(
        "--tokens-per-s", type=float, default=50.0, help="about what the model decodes here; then measured"
    )
    parser.add_argument("--loop", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.loop is not None:
        print(READY, end="", flush=True)
        json.dump(loop(arguments.loop), sys.stdout)
        return
    with ExitStack() as stack:
        work: Callable[[float], Callable[[], np.ndarray]] = looping
        if arguments.model is not None:
            worker = stack.enter_context(loaded(Path(stack.enter_context(TemporaryDirectory())), arguments.model))
            work = Decoding(worker, tokens_per_s=arguments.tokens_per_s).start
        measure(work, minutes=arguments.minutes, window_s=arguments.window_s)


def looping(seconds: float) -> Callable[[], np.ndarray]:
    """The loop, under way; its stamps once it has ended."""
    return Loop(seconds).stamps


class Decoding:
    """One long answer after the other, each of about the wanted length by the rate of the one before."""

    def __init__(self, worker: WorkerProcess, *, tokens_per_s: float) -> None:
        self._worker = worker
        self._tokens_per_s = tokens_per_s

    def start(self, seconds: float) -> Callable[[], np.ndarray]:
        """An answer, under way in a thread; its stamps once it has ended."""
        pool = ThreadPoolExecutor(max_workers=1)
        future = pool.submit(decoded, self._worker, max(round(self._tokens_per_s * seconds), 2))
        pool.shutdown(wait=False)

        def stamps() -> np.ndarray:
            found = future.result()
            self._tokens_per_s = (len(found) - 1) / float(found[-1] - found[0])
            return found

        return stamps


if __name__ == "__main__":
    main()
