"""Runs as flat rows, for tests and benchmarks."""

import numpy as np
import pandas as pd

from tests.orchestrator.flat import FlatRun, changed, typed

RATES = ("end_to_end_tps", "decode_tps", "prefill_tps")
THERMAL = "thermal: level 2 while it ran, above 1"
MS_A_TOKEN = 1e-3
MESSAGE = 20  # tokens of the second turn's question


def throttling(*, rounds: int, share: float, seed: int, replays: int = 2, own_reason: bool = True) -> pd.DataFrame:
    """An arm "hot" that runs at 0.8x in a share of its trials; each such round is replayed until it is clean."""
    rng = np.random.default_rng(seed)
    base = FlatRun(
        effects={"plain": 1.0, "hot": 1.0}, prompts={"a": "x"}, rounds=rounds, noise=0.0, seed=seed, drift=-0.1
    )
    frame = base.frame()
    kept = [frame[frame["kind"] != "measured"]]
    for _, group in frame[frame["kind"] == "measured"].groupby("round"):
        for attempt in range(replays + 1):
            rows, slow = group.assign(attempt=attempt), rng.random() < share
            factor = np.exp(0.01 * rng.standard_t(4, len(rows)))
            factor = factor * np.where((rows["arm"] == "hot") & slow, 0.8, 1.0)
            rows = rows.assign(**{name: rows[name] * factor for name in RATES})
            last = not slow or attempt == replays
            if not last:
                rows = changed(
                    rows, rows["round"].notna(), status="excluded", excluded_reason=f"round_replayed: {THERMAL}"
                )
            if slow and (last or own_reason):
                rows = changed(rows, rows["arm"] == "hot", status="excluded", excluded_reason=THERMAL)
            kept.append(rows)
            if last:
                break
    return typed(pd.concat(kept, ignore_index=True))


def conversation(
    *, answers: tuple[int, int], document: int = 1000, caches: tuple[bool, bool] = (True, True), known: bool = True
) -> pd.DataFrame:
    """Two turns of two arms at the same prefill speed; `answers` and `caches` are the control's and the treatment's."""
    frame = FlatRun(effects={"plain": 1.0, "other": 1.0}, turns=2, prompts={"p": "x"}, noise=0.01).frame()
    treated, later = (frame["arm"] == "other").to_numpy(dtype=bool), (frame["turn"] == 1).to_numpy(dtype=bool)
    grown = np.where(treated, answers[1], answers[0]) + MESSAGE
    prompt = np.where(later, document + grown, document)
    cached = np.where(later & np.where(treated, caches[1], caches[0]), document, 0)
    frame["prompt_tokens"] = pd.array(prompt, dtype="Int64")
    frame["ttft_s"] = (prompt - cached) * MS_A_TOKEN * (frame["ttft_s"] / 0.1)
    return frame.assign(cached_tokens=pd.array(cached, dtype="Int64")) if known else frame
