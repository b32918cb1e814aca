"""Database rows from a run's values: rows that runs share (found or created), and the parts of a trial."""

import datetime as dt
import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy.orm import Session

from db import models
from db.shared_rows import found_or_added
from orchestrator.plan import Plan, Prompt, sha256_of
from orchestrator.running.gate import Passage
from orchestrator.running.measures import flags, measure
from orchestrator.running.trial import Judgement, judge
from workers.machine.host import HostFacts
from workers.machine.telemetry import Reading
from workers.protocol import Generation, Hello, Served
from workers.weights.checkpoints import CheckpointInfo


def generation_rows(pairs: Sequence[tuple[Prompt, Generation]]) -> list[models.Generation]:
    first_turns = {prompt.id: generation for prompt, generation in pairs if generation.turn == 0}
    rows = []
    for position, (prompt, generation) in enumerate(pairs):
        first = first_turns.get(prompt.id) if generation.turn > 0 else None
        rows.append(_generation(position, prompt, generation, first))
    return rows


def _generation(position: int, prompt: Prompt, generation: Generation, first: Generation | None) -> models.Generation:
    judgement: Judgement = judge(generation.evidence)
    return models.Generation(
        position=position,
        prompt_id=prompt.id,
        workload=prompt.workload,
        prompt_class=prompt.prompt_class,
        turn=generation.turn,
        prompt_sha256=generation.prompt_sha256,
        started_at=dt.datetime.fromisoformat(generation.started_at),
        prompt_tokens=generation.prompt_tokens,
        cached_tokens=generation.cached_tokens,
        completion_tokens=generation.tokens,
        finish_reason=generation.finish_reason,
        requested=judgement.requested,
        engaged=judgement.engaged,
        useful=judgement.useful,
        engine_prefill_tps=generation.engine_prefill_tps,
        engine_decode_tps=generation.engine_decode_tps,
        flags=flags(generation, max_tokens=prompt.max_tokens, first_turn=first),
        peak_memory_bytes=generation.peak_memory_bytes,
        cpu_s=generation.cpu_s,
        text=generation.text,
        text_sha256=hashlib.sha256(generation.text.encode("utf-8", "surrogatepass")).hexdigest(),
        token_ids=generation.token_ids,
        token_ids_sha256=_answer_identity(generation),
        stamps_us=generation.stamps_us,
        steps=generation.steps,
        first_byte_s=_seconds(generation.first_byte_us),
        first_visible_s=_seconds(generation.first_visible_us),
        stamps_of=generation.stamps_of,
        evidence=[models.Evidence(**asdict(sign)) for sign in generation.evidence],
        **asdict(measure(generation)),
    )


def gate_detail(passage: Passage) -> dict[str, Any]:
    return {
        "waited_for": dict(passage.waited_for),
        "not_held": passage.hot_start,
        "unreadable": dict(passage.unreadable),
    }


def _answer_identity(generation: Generation) -> str:
    """Hash the token ids, or the text if the server returned no ids: else all its answers would be equal."""
    if generation.token_ids:
        return sha256_of(generation.token_ids)
    return f"text:{hashlib.sha256(generation.text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _seconds(stamp_us: int | None) -> float | None:
    return None if stamp_us is None else stamp_us / 1e6


def telemetry_values(trial_id: str, **readings: Sequence[Reading]) -> list[dict[str, Any]]:
    """Return the readings of each phase as plain values: sixty ORM objects would dominate a trial's commit."""
    return [
        {"trial_id": trial_id, "phase": phase}
        | {name: getattr(reading, name) for name in ("field", "value", "value_text", "source", "reason")}
        for phase, found in readings.items()
        for reading in found
    ]


def _reading(readings: Sequence[Reading], name: str) -> Reading | None:
    return next((reading for reading in readings if reading.field == name), None)


def number(readings: Sequence[Reading], name: str) -> tuple[float | None, str | None]:
    reading = _reading(readings, name)
    return (None, f"{name} was not read") if reading is None else (reading.value, reading.reason)


def words(readings: Sequence[Reading], name: str) -> tuple[str | None, str | None]:
    reading = _reading(readings, name)
    return (None, f"{name} was not read") if reading is None else (reading.value_text, reading.reason)


def environment_row(
    session: Session, hello: Hello, host: HostFacts, *, served: Served | None = None
) -> models.Environment:
    """Return the row of the software versions that produced an arm's figures.

    Args:
        served: the packages in the server's environment; None: the worker itself runs the model.
    """
    found = served or Served(python=hello.python, versions=hello.versions)
    parts: list[Any] = [found.python, found.versions, host.os, host.os_build]
    if served is not None:
        parts += [served.source, served.reason, hello.versions.get("interlace")]
    identity = sha256_of(parts)
    row = models.Environment(
        id=models.new_id(),
        sha256=identity,
        python=found.python or "unknown",
        interlace_version=hello.versions.get("interlace") or "unknown",
        mlx_version=found.versions.get("mlx"),
        mlx_lm_version=found.versions.get("mlx-lm"),
        os=host.os,
        os_build=host.os_build,
        packages=found.versions,
        server=None if served is None else served.source or "unknown",
        missing_reason=found.reason or None,
    )
    return found_or_added(session, row, models.Environment.sha256)


def locked_rows(plan: Plan, run_id: str) -> list[models.LockedPackage]:
    """The packages of the plan's locked environments."""
    return [
        models.LockedPackage(
            run_id=run_id,
            environment=lock.environment,
            python=lock.python,
            name=package.name,
            version=package.version,
            file=package.file,
            sha256=package.sha256,
            tag=package.tag,
            source=package.source,
            is_named=package.named,
        )
        for lock in plan.locks
        for package in lock.packages
    ]


def checkpoint_row(session: Session, config: dict[str, Any], info: CheckpointInfo | None) -> models.Checkpoint:
    """Return the row of the weights; a simulated checkpoint has none and is identified by its configuration."""
    digest = info.digest if info is not None else "config:" + sha256_of(config)
    row = models.Checkpoint(
        id=models.new_id(),
        digest=digest,
        name=config["name"],
        source=config["source"],
        revision=config.get("revision"),
        bits=info.bits if info is not None and info.bits is not None else config.get("bits"),
        weights_bytes=None if info is None else info.weights_bytes,
        config=config,
    )
    row = found_or_added(session, row, models.Checkpoint.digest)
    if info is not None and row.bytes_read_per_token is None:  # an older row lacks them
        row.bytes_read_per_token = config.get("bytes_read_per_token") or info.bytes_read_per_token
        row.kv_bytes_per_token = info.kv_bytes_per_token
    session.flush()
    return row
