"""Arms and answers for tests of the findings."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.findings.losslessness import losslessness
from orchestrator.findings.records import Answer, ArmRecord, Step
from orchestrator.findings.values import Losslessness
from orchestrator.report.document import Section
from orchestrator.report.sections.same_answers import losslessness_section

TOKEN_US = 10_000  # of a plain step
TOKENS = 40  # of an answer that leaves the control's


def arm(name: str = "plain", **changes: Any) -> ArmRecord:
    """A plain control at temperature 0 unless changed."""
    values: dict[str, Any] = {
        "is_control": name == "plain",
        "engine": "mlx_lm",
        "family": name,
        "checkpoint": "model",
        "weights": "digest",
        "draft": None,
        "width": None,
        "temperature": 0.0,
        "sampling": {},
        "speculates": False,
        "stamps_of": "token",
        "read_bytes": 1_000_000,
        "kv_bytes": 100,
        "draft_read_bytes": None,
        "draft_kv_bytes": None,
    }
    return ArmRecord(name=name, **(values | changes))


def drafting(name: str = "spec", **changes: Any) -> ArmRecord:
    """A speculative arm of the same weights."""
    values = {"engine": "mlx_lm_draft", "speculates": True, "width": 4, "draft": "small", "draft_read_bytes": 100_000}
    return arm(name, **({"is_control": False, "family": "drafting"} | values | changes))


def answer(
    of: str = "plain",
    ids: Sequence[int] | None = (1, 2, 3),
    *,
    steps: Sequence[Step] | None = None,
    stamps_us: Sequence[int] | None = None,
    **changes: Any,
) -> Answer:
    """One greedy answer to the first prompt."""
    count = len(ids or ())
    values: dict[str, Any] = {
        "is_aa": False,
        "measured": True,
        "round": 0,
        "workload": "quick",
        "prompt_class": "code",
        "prompt_id": "quick/0",
        "turn": 0,
        "prompt_sha256": "same",
        "prompt_tokens": 10,
        "cached_tokens": 0,
        "completion_tokens": count,
        "ttft_s": 0.1,
        "prefill_tps": 100.0,
        "decode_tps": 100.0,
        "flags": (),
        "text": " ".join(f"w{token}" for token in ids or ()),
        "stamps_of": "token",
        "token_ids_json": None if ids is None else json.dumps(list(ids)),
        "stamps_json": json.dumps(list(stamps_us or ((place + 1) * TOKEN_US for place in range(count)))),
        "steps_json": None if steps is None else json.dumps([list(step) for step in steps]),
    }
    return Answer(arm=of, **(values | changes))


def stepped(of: str, steps: Sequence[Step], *, round_us: Sequence[int], lead: int = 1, **changes: Any) -> Answer:
    """A speculative answer whose rounds take these times; `lead` 1: prefill yields a token of its own."""
    stamps, now = [TOKEN_US] * lead, TOKEN_US
    for place, (step, took) in enumerate(zip(steps, round_us, strict=True)):
        now = now + took if lead or place else TOKEN_US
        stamps += [now] * step[2]
    ids = list(range(len(stamps)))
    return answer(of, ids, steps=steps, stamps_us=stamps, **changes)


def decoded(marks: Sequence[bool], width: int) -> list[Step]:
    """The steps of a speculative arm along a text whose marks say where the draft is right; its end cuts the last."""
    steps: list[Step] = []
    at = 0
    while at < len(marks):
        drafted = min(width - 1, len(marks) - at)
        accepted = next((k for k in range(drafted) if not marks[at + k]), drafted)
        committed = min(accepted + 1, len(marks) - at)
        steps.append((drafted, accepted, committed))
        at += committed
    return steps


def shown(result: Losslessness) -> tuple[str, ...]:
    """The lines below the table."""
    section = losslessness_section(result)
    assert isinstance(section, Section)
    return section.lines


def parting(of: str, places: Mapping[str, int | None], *, proposing: bool = True) -> list[Answer]:
    """Answers that leave the control's at these tokens."""
    return [
        answer(
            of,
            [1] * TOKENS if place is None else [1] * place + [2] * (TOKENS - place),
            prompt_id=prompt,
            steps=None if of == "plain" else [(3 if proposing else 0, 0, 1)] * TOKENS,
        )
        for prompt, place in places.items()
    ]


def judged(places: Mapping[str, list[int | None]], arms: tuple[ArmRecord, ...]) -> Losslessness:
    """The findings of arms whose answers to the prompts in turn leave the control's at these tokens."""
    given = []
    for name, each in places.items():
        given += parting(name, {f"quick/{number}": place for number, place in enumerate(each)})
    found = losslessness(arms, given, control="plain", probes={})
    assert found is not None
    return found


def flagged(found: Losslessness) -> list[str]:
    """The arms that diverge earlier than rounding explains."""
    return [one.arm for one in found.arms if one.too_early is not None]


ARMS = (arm("plain"), drafting("one"), drafting("other"))
