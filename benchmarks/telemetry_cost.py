"""What the sampler costs: the decode rate with it and without it, interleaved at random, as an A/B of our own.

    python benchmarks/telemetry_cost.py                       a loop on one core stands for decoding
    python benchmarks/telemetry_cost.py --model FOLDER        a real model, decoded by a worker

The wanted bound is 0.5 %. Two figures answer: the ratio of rates with its interval, which shows what the machine lets
one see, and the sampler's own CPU time, which bounds what it can take even where the ratio's noise is larger.
"""

import argparse
import os
import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from orchestrator.effects import estimate_effect
from orchestrator.plan import Deadlines
from workers.process import WorkerProcess, WorkerSpec
from workers.protocol import Generate, Load
from workers.sampling import Sampler

BOUND = 0.005
TOKENS = 24


def loop_tps(seconds: float) -> float:
    """Iterations a second of a loop that does nothing else."""
    count, started = 0, time.perf_counter()
    while (spent := time.perf_counter() - started) < seconds:
        for _ in range(10_000):
            count += 1
    return count / spent


def worker_tps(worker: WorkerProcess) -> float:
    """The decode rate of one fixed request."""
    turns = [[{"role": "user", "content": "Tell a story about a lighthouse."}]]
    (answer,) = worker.generate(Generate(request_id="r", turns=turns, max_tokens=TOKENS, seed=1), Deadlines())
    stamps = answer.stamps_us
    return (len(stamps) - 1) / (stamps[-1] - stamps[0]) * 1e6


def loaded(folder: Path, model: Path) -> WorkerProcess:
    worker = WorkerProcess(
        WorkerSpec(run_id="benchmark", arm="model", log_path=folder / "log", journal_path=folder / "journal")
    )
    sampling = {"temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "ignore_eos": True, "chat_template": True}
    checkpoint = {"name": model.name, "source": "local", "path": str(model.resolve())}
    request = Load(
        target="workers.engines.mlx_lm.MlxLm",
        settings={},
        checkpoint=checkpoint,
        draft=None,
        sampling=sampling | {"template_options": {}},
    )
    worker.load(request, Deadlines())
    return worker


def main() -> None:
    """Run the rounds and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=3.0, help="of the loop, each time")
    parser.add_argument("--interval-s", type=float, default=1.0)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        measure: Callable[[], float] = partial(loop_tps, arguments.seconds)
        if arguments.model is not None:
            worker = stack.enter_context(loaded(Path(stack.enter_context(TemporaryDirectory())), arguments.model))
            measure = partial(worker_tps, worker)
        measure()  # warm
        frame, share = rounds(arguments.rounds, measure, arguments.interval_s)
    effect = estimate_effect(frame, treatment="on", control="off")
    cores = os.cpu_count() or 1
    print(f"rate with the sampler over without: {effect.ratio:.4f} ({effect.ci_low:.4f} to {effect.ci_high:.4f})")
    print(f"the sampler's own CPU time: {share:.2%} of one core, {share / cores:.2%} of {cores}")
    if effect.ci_low > 1 - BOUND:
        print(f"shown: less than {BOUND:.1%}")
    elif effect.ci_high < 1 - BOUND:
        print(f"refuted: more than {BOUND:.1%}")
    else:
        print(f"not shown: this machine's noise hides {BOUND:.1%}; its CPU time alone can take {share / cores:.2%}")


def rounds(count: int, measure: Callable[[], float], interval_s: float) -> tuple[pd.DataFrame, float]:
    """Both ways in random order each round; and the share of a core that the sampler took while it ran."""
    draw, rows = random.Random(0), []
    spent_s = watched_s = 0.0
    for index in range(count):
        order = ["on", "off"]
        draw.shuffle(order)
        for position, arm in enumerate(order):
            # Both begin alike, with a sampler that has started; only one keeps it.
            with Sampler(interval_s=interval_s) as sampler:
                while len(sampler.since(0)) < 2:
                    time.sleep(0.05)
                if arm == "off":
                    sampler.stop()
                started = time.monotonic()
                rows.append({"round": index, "position": position, "arm": arm, "value": measure()})
                cost = [sample.cpu_s for sample in sampler.since(started) if sample.cpu_s is not None]
            if len(cost) > 1:
                spent_s, watched_s = spent_s + cost[-1] - cost[0], watched_s + (len(cost) - 1) * interval_s
    return pd.DataFrame(rows), spent_s / watched_s if watched_s else float("nan")


if __name__ == "__main__":
    main()
