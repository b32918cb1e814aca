"""Measure the effect and the cost of the wake-up decode: an arm that idled, woken or not, in random pairs.

    python benchmarks/wake_up.py --model FOLDER [--pairs 40] [--idle-s 2]

On a Mac the first decode after about a second's idling can be several times slower, for the GPU unwires what it does
not use; there the ratio shows what trials of resident arms would suffer without it. On a CPU no effect is expected.
"""

import argparse
import random
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from telemetry_cost import loaded

from orchestrator.effects import estimate_effect
from orchestrator.plan import Deadlines
from workers.protocol import Generate, Generation
from workers.supervision.worker_process import WorkerProcess

TOKENS = 24


def ask(worker: WorkerProcess, text: str, tokens: int) -> Generation:
    request = Generate(request_id="r", turns=[[{"role": "user", "content": text}]], max_tokens=tokens, seed=1)
    (answer,) = worker.generate(request, Deadlines())
    return answer


def trial(worker: WorkerProcess, *, wake_tokens: int, idle_s: float) -> tuple[dict[str, float], float]:
    """The trial's rates after an idle time, and what the wake-up took."""
    time.sleep(idle_s)
    started_s = time.monotonic()
    if wake_tokens:
        ask(worker, "Good morning. Count to five.", wake_tokens)
    spent_s = time.monotonic() - started_s
    stamps = ask(worker, "Tell a story about a lighthouse.", TOKENS).stamps_us
    decode = (len(stamps) - 1) / (stamps[-1] - stamps[0]) * 1e6
    return {"decode_tps": decode, "end_to_end_tps": len(stamps) / stamps[-1] * 1e6}, spent_s


def main() -> None:
    """Run the pairs and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--idle-s", type=float, default=2.0)
    parser.add_argument("--wake-tokens", type=int, default=4)
    arguments = parser.parse_args()
    draw, rows, spent = random.Random(0), [], []
    with TemporaryDirectory() as folder, loaded(Path(folder), arguments.model) as worker:
        trial(worker, wake_tokens=4, idle_s=0)
        for pair in range(arguments.pairs):
            for position, arm in enumerate(draw.sample(["woken", "idle"], 2)):
                tokens = arguments.wake_tokens if arm == "woken" else 0
                rates, took_s = trial(worker, wake_tokens=tokens, idle_s=arguments.idle_s)
                rows.append({"round": pair, "position": position, "arm": arm} | rates)
                spent += [took_s] if tokens else []
    frame = pd.DataFrame(rows)
    for metric in ("decode_tps", "end_to_end_tps"):
        effect = estimate_effect(frame.assign(value=frame[metric]), treatment="woken", control="idle")
        print(f"{metric}, woken over idle: {effect.ratio:.3f} ({effect.ci_low:.3f} to {effect.ci_high:.3f})")
    print(f"a wake-up of {arguments.wake_tokens} tokens takes {sorted(spent)[len(spent) // 2]:.2f} s")


if __name__ == "__main__":
    main()
