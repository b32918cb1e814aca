"""The input of the findings: arms and their answers as plain values, read once from the database's frames."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any, Self

import pandas as pd

from orchestrator.findings.values import Figure
from workers.sampling import effective

TIMING_ENGINES = frozenset({"verify_cost"})  # their passes are wide, and nothing is drafted
Step = tuple[int, int, int]  # drafted, accepted, committed


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRecord:
    """The properties of an arm that the findings depend on. None: unknown, or not there."""

    name: str
    is_control: bool
    engine: str
    family: str  # equal for arms that differ only in their verify width
    checkpoint: str | None
    weights: str | None  # the checkpoint's digest
    draft: str | None
    width: int | None  # verify width
    temperature: float | None
    sampling: Mapping[str, Any]  # the other settings in the plan, without the name
    speculates: bool  # drafts and verifies
    stamps_of: str | None  # token: in process; chunk: by a server; None: it has no answer
    read_bytes: int | None  # weights that a pass of one token reads
    kv_bytes: int | None  # of the cache, per token
    draft_read_bytes: int | None
    draft_kv_bytes: int | None

    @property
    def times_passes(self) -> bool:
        """Return whether it decodes one token per pass of its width, fillers included, in order to time the pass."""
        return self.engine in TIMING_ENGINES

    @property
    def sampler(self) -> dict[str, Any]:
        """Return the temperature and all other effective sampler settings: arms are comparable if these are equal."""
        return effective({"temperature": self.temperature, **self.sampling})


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One generation of a finished trial."""

    arm: str
    is_aa: bool
    measured: bool  # in a round, and not excluded: counts for speed
    round: int | None
    workload: str
    prompt_class: str
    prompt_id: str
    turn: int
    prompt_sha256: str | None
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    ttft_s: float | None
    prefill_tps: float | None
    decode_tps: float | None
    flags: tuple[str, ...]
    text: str | None
    stamps_of: str | None  # token | chunk
    token_ids_json: str | None
    stamps_json: str | None
    steps_json: str | None

    @property
    def key(self) -> tuple[str, int]:
        """Return the prompt and the turn."""
        return self.prompt_id, self.turn

    @cached_property
    def token_ids(self) -> tuple[int, ...] | None:
        """Return the token ids, or None if the engine returned none."""
        return tuple(json.loads(self.token_ids_json)) or None if self.token_ids_json else None

    @cached_property
    def stamps_us(self) -> tuple[int, ...] | None:
        """Return one stamp per token since the request's start, or None if several tokens share a chunk's stamp."""
        known = self.stamps_json and self.stamps_of != "chunk"
        return tuple(json.loads(self.stamps_json)) or None if known and self.stamps_json else None

    @cached_property
    def steps(self) -> tuple[Step, ...] | None:
        """Return the counts of each verify step; None for plain decoding, or if the engine does not report them."""
        return tuple(tuple(step) for step in json.loads(self.steps_json)) if self.steps_json else None

    @classmethod
    def read(cls, frame: pd.DataFrame) -> tuple[Self, ...]:
        """Read from `db.frames.answers`: the newest attempt of each round, in time order."""
        newest = frame.groupby("round")["attempt"].transform("max")
        rows = frame[frame["round"].isna() | (frame["attempt"] == newest)]
        plain = rows.astype(object).where(rows.notna(), None)
        return tuple(cls._of(row) for row in plain.to_dict("records"))

    @classmethod
    def _of(cls, row: "dict[Any, Any]") -> Self:
        counts = row["kind"] == "measured" and row["status"] == "done" and row["excluded_reason"] is None
        return cls(
            measured=counts,
            flags=tuple(row["flags"] or ()),
            token_ids_json=row["token_ids"],
            stamps_json=row["stamps_us"],
            steps_json=row["steps"],
            is_aa=bool(row["is_aa"]),
            **{name: row[name] for name in _SAME},
        )


_SAME = (
    "arm round workload prompt_class prompt_id turn prompt_sha256 prompt_tokens cached_tokens completion_tokens ttft_s"
    " prefill_tps decode_tps text stamps_of"
).split()


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTimes:
    """Median seconds of one pass of an arm's model, by the number of tokens in it."""

    arm: str
    role: str  # target | draft
    seconds: dict[int, float]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """A row of the table `divergence`."""

    token_index: int
    control_text: str | None
    arm_text: str | None
    context_text: str | None
    top: tuple[tuple[int, str, float], ...]
    gap: float | None
    rounding: float | None
    verdict: str
    reason: str


def unknown(reason: str) -> Figure:
    """Return an unknown figure with its reason."""
    return Figure(value=None, source=reason)


def plain_arm_of(arm: ArmRecord, arms: Sequence[ArmRecord]) -> ArmRecord | None:
    """Return the arm that speculation is compared with, or None if no arm fits. docs/meaning.md has the rule."""
    fitting = [
        other
        for other in arms
        if not (other.speculates or other.times_passes)
        and arm.weights is not None
        and other.weights == arm.weights
        and other.sampler == arm.sampler
    ]
    return min(
        fitting,
        key=lambda other: (
            other.stamps_of != arm.stamps_of,
            -_shared_words(other.engine, arm.engine),
            not other.is_control,
        ),
        default=None,
    )


def _shared_words(one: str, other: str) -> int:
    """Count the equal words of two names from the left: mlx_lm_server is nearer to mlx_lm_server_draft than mlx_lm."""
    pairs = zip(one.split("_"), other.split("_"), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
