"""The content of another tool's file. None: the file has no value, or has 0 where 0 means not measured."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

# own: the file has each trial's time; placed: put one after the other from a time that the file has;
# none: the file has no order in time to go by.
Timing = Literal["own", "placed", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine, as far as the file names it."""

    chip: str | None = None
    cpu_count: int | None = None
    memory_bytes: int | None = None
    os: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """The installed versions."""

    python: str | None = None
    mlx: str | None = None
    mlx_lm: str | None = None
    packages: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A set of weights by name."""

    name: str
    bits: int | None = None
    weights_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignArm:
    """One configuration."""

    name: str  # unique in the file
    engine: str
    engine_version: str | None = None
    model: Model
    draft: Model | None = None
    block_size: int | None = None
    temperature: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # what makes it another configuration
    kept: Mapping[str, Any] = field(default_factory=dict)  # everything else that the file says of it


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignGeneration:
    """One prompt turn. Rates are in tokens per second."""

    prompt: str  # arms can be compared on prompts of the same name
    prompt_class: str
    turn: int = 0
    max_tokens: int = 0  # as requested; 0: none, or unknown
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    ttft_s: float | None = None
    prefill_tps: float | None = None
    decode_tps: float | None = None
    end_to_end_tps: float | None = None
    total_s: float | None = None
    drafted: int | None = None
    accepted: int | None = None
    verify_steps: int | None = None
    accept_length: float | None = None
    acceptance_rate: float | None = None
    requested: bool | None = None
    engaged: bool | None = None
    useful: bool | None = None
    evidence: str | None = None  # the sign, in the file's words
    peak_memory_bytes: int | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignTrial:
    """One execution, in the order in which it was run."""

    arm: str
    started_at: dt.datetime | None = None  # naive: local time of an unknown zone
    wall_s: float | None = None
    generation: ForeignGeneration
    error: str | None = None  # the trial failed
    power_source: str | None = None
    thermal: str | None = None  # in the file's words


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignResults:
    """A file, read."""

    format: str
    tool_version: str | None
    started_at: dt.datetime | None  # naive: local time of an unknown zone; None: the file has no time at all
    timing: Timing
    machine: Machine
    versions: Versions
    arms: tuple[ForeignArm, ...]  # the control first
    trials: tuple[ForeignTrial, ...]
    notes: tuple[str, ...]  # what was assumed, left out or turned into something else, one line each
