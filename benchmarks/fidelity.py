"""Measure the cost of measuring: decode rate through the worker's engine and stopwatch against mlx-lm's bare loop.

    python benchmarks/fidelity.py [--checkpoint smollm2-8bit] [--rounds 60] [--tokens 12]

Both arms run the same model object in one process, in random order within each round, and each is timed by its own
means: the bare loop by mlx-lm's `generation_tps` (n tokens over n - 1 intervals, made (n - 1) here), ours by the
stopwatch, with the worker's heartbeat thread running. The claim is that the ratio's interval lies within 0.5 %.

A slow model hides a cost of microseconds. So the path alone is measured too: the engine's stream and the stopwatch over
a loop that yields without computing, less that loop by itself; the best of several, in microseconds per token.
"""

import argparse
import os
import timeit
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import repeat
from typing import Any
from unittest.mock import patch

import mlx.core as mx
import pandas as pd
from mlx_lm import stream_generate
from mlx_lm.generate import GenerationResponse, generation_stream

from orchestrator.effects import Effect, estimate_effect
from orchestrator.schedule import draw_rounds
from workers.engines.base import TurnRequest
from workers.engines.mlx_lm import MlxLm
from workers.stopwatch import Stopwatch
from workers.worker import Channel, Pulse

LIMIT = 0.005
PROMPT = "The sea"
MESSAGES = [{"role": "user", "content": PROMPT}]
HEARTBEAT_S = 1.0


def loaded(checkpoint: Mapping[str, Any]) -> MlxLm:
    """The engine, which runs to the token limit on a bare prompt of two tokens: little prefill, equal lengths."""
    sampling = {"name": "fidelity", "ignore_eos": True, "chat_template": False}
    engine = MlxLm(settings={}, checkpoint=checkpoint, draft=None, sampling=sampling)
    engine.load()
    engine.settle()
    return engine


def bare_rate(engine: MlxLm, tokens: int) -> float:
    """Decode rate of mlx-lm's own loop, by its own clock."""
    model, tokenizer = engine.target.model, engine.target.tokenizer
    mx.clear_cache()
    (last,) = deque(stream_generate(model, tokenizer, tokenizer.encode(PROMPT), tokens), maxlen=1)
    mx.synchronize(generation_stream)
    return float(last.generation_tps) * (tokens - 1) / tokens


def our_rate(engine: MlxLm, pulse: Pulse, tokens: int) -> float:
    """Decode rate as the worker measures it."""
    engine.start_conversation()
    stopwatch = Stopwatch()
    with pulse.during_request():
        pulse.watch(stopwatch)
        engine.prepare(TurnRequest(messages=MESSAGES, turn=0, max_tokens=tokens, seed=0))
        stopwatch.time(engine.answer)
        engine.finish()
        engine.settle()
    stamps_us = stopwatch.stamps_us()
    return (len(stamps_us) - 1) / (stamps_us[-1] - stamps_us[0]) * 1e6


def compare(engine: MlxLm, pulse: Pulse, *, rounds: int, tokens: int) -> tuple[Effect, float]:
    """The effect of our measuring on the decode rate, and the bare loop's median rate."""
    arms: dict[str, Callable[[], float]] = {
        "bare": lambda: bare_rate(engine, tokens),
        "ours": lambda: our_rate(engine, pulse, tokens),
    }
    for warm_up in arms.values():
        warm_up()
    rows = [
        {"round": index, "position": position, "arm": arm, "value": arms[arm]()}
        for index, order in enumerate(draw_rounds(list(arms), rounds, seed=0))
        for position, arm in enumerate(order)
    ]
    frame = pd.DataFrame(rows)
    effect = estimate_effect(frame, treatment="ours", control="bare")
    return effect, float(frame[frame["arm"] == "bare"]["value"].median())


def path_cost_us(engine: MlxLm, *, tokens: int = 100_000, repeats: int = 7) -> float:
    """Microseconds per token that the engine's stream and the stopwatch add to a loop that computes nothing."""
    response = GenerationResponse("x", 7, mx.array([0.0]), False, 2, 1.0, 1, 1.0, 0.0, "length")

    def yields(*_: Any, **__: Any) -> Iterator[GenerationResponse]:
        return repeat(response, tokens)

    def best_s(run: Callable[[], object]) -> float:
        return min(timeit.repeat(run, number=1, repeat=repeats))

    def ours() -> None:
        engine.prepare(TurnRequest(messages=MESSAGES, turn=0, max_tokens=tokens, seed=0))
        Stopwatch().time(engine.answer)
        engine.settle()

    engine.start_conversation()
    with patch("mlx_lm.stream_generate", yields):
        return (best_s(ours) - best_s(lambda: deque(yields(), maxlen=1))) / tokens * 1e6


def report(name: str, effect: Effect, rate: float, cost_us: float) -> None:
    """The ratio, the claim, and what the path alone costs."""
    inside = 1 - LIMIT <= effect.ci_low and effect.ci_high <= 1 + LIMIT
    print(f"{name}: bare loop {rate:.2f} tok/s; {effect.rounds} rounds, ours faster in {effect.wins}")
    print(
        f"ours / bare {effect.ratio:.5f}, 95 % interval {effect.ci_low:.5f} to {effect.ci_high:.5f}: "
        f"{'within' if inside else 'NOT shown to be within'} {LIMIT:.1%}"
    )
    print(
        f"the path alone: {cost_us:.2f} us per token, {cost_us * rate / 1e6:.5%} of a token here, "
        f"{cost_us * 500 / 1e6:.3%} at 500 tok/s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", default="smollm2-8bit", help="an imported checkpoint")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=12)
    options = parser.parse_args()
    devnull = os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY)
    pulse = Pulse(Channel(request_fd=devnull[0], record_fd=devnull[1]), interval_s=HEARTBEAT_S)
    pulse.start()
    engine = loaded({"name": options.checkpoint, "source": "imported"})
    cost_us = path_cost_us(engine)
    effect, rate = compare(engine, pulse, rounds=options.rounds, tokens=options.tokens)
    report(options.checkpoint, effect, rate, cost_us)


if __name__ == "__main__":
    main()
