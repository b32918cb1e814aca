"""Answers of arms, and what widths of passes change, made up."""

import json
from typing import Any

from orchestrator.findings.records import Answer
from orchestrator.plan import Arm
from orchestrator.running.questions import (
    ArmWidth,
)

GREEDY: dict[str, Any] = {"name": "greedy", "temperature": 0.0}


def arm(name: str, *, checkpoint: str = "c", draft: str | None = None, temperature: float = 0.0) -> Arm:
    engine = "mlx_lm_draft" if draft else "mlx_lm"
    return Arm(
        name=name,
        checkpoint={"name": checkpoint},
        engine={"name": engine, "_target_": f"workers.engines.{engine}.X"},
        sampling=GREEDY | {"temperature": temperature},
        draft=None if draft is None else {"name": draft},
    )


def answer(of: str, *token_ids: int, prompt_id: str = "quick/0", turn: int = 0, **values: Any) -> Answer:
    given: dict[str, Any] = {
        "is_aa": False,
        "measured": True,
        "round": 0,
        "workload": "quick",
        "prompt_class": "code",
        "prompt_sha256": "same",
        "prompt_tokens": 100,
        "cached_tokens": 0,
        "completion_tokens": len(token_ids),
        "ttft_s": 1.0,
        "prefill_tps": None,
        "decode_tps": None,
        "flags": (),
        "text": f"text of {of}",
        "stamps_of": "token",
        "stamps_json": json.dumps([1_000_000 * (place + 1) for place in range(len(token_ids))]),
        "steps_json": None,
    } | values
    return Answer(arm=of, prompt_id=prompt_id, turn=turn, token_ids_json=json.dumps(list(token_ids)), **given)


def widths(**of_arm: int | None) -> list[ArmWidth]:
    return [ArmWidth(arm=name, verify_width=width, drafts=(width or 1) > 1) for name, width in of_arm.items()]
