"""Rows that several runs share: an experiment, a machine, a set of versions, a set of weights. Found, else made."""

import datetime as dt
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from db import models
from orchestrator.plan import sha256_of
from workers.machine.host import HostFacts
from workers.protocol import Hello, Served
from workers.weights.checkpoints import CheckpointInfo


def experiment_row(session: Session, name: str) -> models.Experiment:
    row = session.scalar(select(models.Experiment).where(models.Experiment.name == name))
    if row is None:
        row = models.Experiment(id=models.new_id(), name=name, created_at=dt.datetime.now(dt.UTC))
        session.add(row)
        session.flush()
    return row


def environment_row(
    session: Session, hello: Hello, host: HostFacts, *, served: Served | None = None
) -> models.Environment:
    """The versions that made an arm's figures.

    Args:
        served: what the environment of the arm's server holds; None: the worker itself runs the model.
    """
    found = served or Served(python=hello.python, versions=hello.versions)
    parts: list[Any] = [found.python, found.versions, host.os, host.os_build]
    if served is not None:
        parts += [served.source, served.reason, hello.versions.get("interlace")]
    identity = sha256_of(parts)
    row = session.scalar(select(models.Environment).where(models.Environment.sha256 == identity))
    if row is None:
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
        session.add(row)
        session.flush()
    return row


def checkpoint_row(session: Session, config: dict[str, Any], info: CheckpointInfo | None) -> models.Checkpoint:
    """The weights' row; without weights (simulated) the configuration is the identity."""
    digest = info.digest if info is not None else "config:" + sha256_of(config)
    row = session.scalar(select(models.Checkpoint).where(models.Checkpoint.digest == digest))
    if row is None:
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
        session.add(row)
    if info is not None and row.bytes_read_per_token is None:  # a row from before they were stored has none
        row.bytes_read_per_token = config.get("bytes_read_per_token") or info.bytes_read_per_token
        row.kv_bytes_per_token = info.kv_bytes_per_token
    session.flush()
    return row
