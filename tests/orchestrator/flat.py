"""Builds what the view `trial_flat` would hold for a simulated run, with the column types that the database gives."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from orchestrator.schedule import AA_LABEL, draw_rounds, draw_williams

CLASSES = {"m1": "maths", "m2": "maths", "c1": "code", "c2": "code", "p1": "prose"}
ENVIRONMENT = {
    "host": "mac",
    "os_build": "25A1",
    "mlx_version": "0.32.0",
    "mlx_lm_version": "0.32.0",
    "interlace_version": "0.1.0",
    "python": "3.11.7",
    "power_source": "ac",
    "power_mode": "automatic",
    "nice": "0",
    "lid": "open",
    "display": "on",
    "sampler": "temperature 0",
    "environment_id": "e",
    "missing_reason": None,
    "mlx_missing": None,
    "packages": '{"mlx": "0.32.0", "mlx-lm": "0.32.0", "numpy": "2.4.6"}',
    "mlx_build": "py3-none-macosx_26_0_arm64",
    "engine": "mlx_lm",
    "engine_version": "0.32.0",
}


@dataclass(frozen=True, kw_only=True)
class FlatRun:
    """A run to simulate. Effects may be one number an arm, or one for each prompt class."""

    effects: Mapping[str, float | Mapping[str, float]]  # the first arm is the control
    rounds: int = 8
    by_prompt: bool = False
    turns: int = 1
    aa: bool = True
    bracket: bool = True
    drift: float = -0.2
    noise: float = 0.005
    seed: int = 0
    williams: bool = False
    drafting: Sequence[str] = field(default_factory=tuple)
    prompts: Mapping[str, str] = field(default_factory=lambda: CLASSES)

    def frame(self) -> pd.DataFrame:
        rng = np.random.default_rng(self.seed)
        arms = list(self.effects)
        labels = [*arms, AA_LABEL] if self.aa else arms
        names = list(self.prompts)
        schedule: list[tuple[str, int | None, int | None, str, list[str]]] = []
        schedule += [("warmup", None, None, arm, names[:1]) for arm in arms]
        schedule += [("bracket", None, None, arms[0], names)] if self.bracket else []
        draw = draw_williams if self.williams else draw_rounds
        for index, order in enumerate(draw(labels, self.rounds, self.seed)):
            prompts = [names[index % len(names)]] if self.by_prompt else names
            schedule += [("measured", index, position, label, prompts) for position, label in enumerate(order)]
        schedule += [("bracket", None, None, arms[0], names)] if self.bracket else []
        rows = []
        for sequence, (kind, round_, position, label, prompts) in enumerate(schedule):
            arm = arms[0] if label == AA_LABEL else label
            level = math.log1p(self.drift * sequence / len(schedule)) + self.noise * rng.standard_t(4)
            for prompt in prompts:
                for turn in range(self.turns):
                    rows.append(
                        self._row(arm, prompt, turn, level + 0.2 * names.index(prompt))
                        | {
                            "kind": kind,
                            "round": round_,
                            "position": position,
                            "is_aa": label == AA_LABEL,
                            "sequence": sequence,
                            "is_control": arm == arms[0],
                        }
                    )
        return typed(pd.DataFrame(rows))

    def _row(self, arm: str, prompt: str, turn: int, level: float) -> dict[str, object]:
        effect = self.effects[arm]
        factor = effect if isinstance(effect, float | int) else effect[self.prompts[prompt]]
        speed = factor * math.exp(level)
        drafts = arm in self.drafting
        return ENVIRONMENT | {
            "arm": arm,
            "workload": None,
            "randomised": True,
            "attempt": 0,
            "status": "done",
            "excluded_reason": None,
            "error_kind": None,
            "gate_state": None,
            "flags": None,
            "prompt_id": prompt,
            "prompt_class": self.prompts[prompt],
            "turn": turn,
            "requested": drafts,
            "engaged": drafts,
            "useful": drafts,
            "prompt_tokens": 30,
            "cached_tokens": None,
            "completion_tokens": 64,
            "end_to_end_tps": 20 * speed,
            "decode_tps": 25 * speed,
            "prefill_tps": 300 * speed,
            "ttft_s": 0.1 / speed,
            "inter_token_p95_s": 0.05 / speed,
            "inter_token_reason": None,
            "accept_length": 3.1 if drafts else None,
            "acceptance_rate": 0.7 if drafts else None,
            "peak_memory_bytes": 10**9,
        }


def typed(frame: pd.DataFrame) -> pd.DataFrame:
    """Whole numbers stay whole where some are missing, flags are three-valued, words are strings."""
    counts = (
        "round position attempt sequence turn prompt_tokens cached_tokens completion_tokens peak_memory_bytes".split()
    )
    flags = "is_aa is_control requested engaged useful randomised".split()
    reals = "inter_token_p95_s end_to_end_tps decode_tps prefill_tps ttft_s accept_length acceptance_rate".split()
    kinds = dict.fromkeys(counts, "Int64") | dict.fromkeys(flags, "boolean") | dict.fromkeys(reals, "float64")
    return frame.astype({name: kinds.get(str(name), "string") for name in frame.columns})


def changed(frame: pd.DataFrame, where: "pd.Series[bool]", **values: object) -> pd.DataFrame:
    """A copy with these columns set in these rows."""
    rows = where.fillna(value=False).astype(bool)
    return frame.assign(**{column: _put(frame[column], rows, value) for column, value in values.items()})


def _put(column: "pd.Series[Any]", rows: "pd.Series[bool]", value: object) -> "pd.Series[Any]":
    new = column.astype(object)
    new[rows] = value[rows] if isinstance(value, pd.Series) else value
    return new.astype(column.dtype)
