"""Rows that several runs share (an experiment, a host, versions, a checkpoint), found by what identifies them."""

import datetime as dt
from typing import TypeVar

from sqlalchemy import select
from sqlalchemy.orm import InstrumentedAttribute, Session

from db import models

Row = TypeVar("Row", bound=models.Base)


def found_or_added(session: Session, row: Row, identity: InstrumentedAttribute[str]) -> Row:
    """The stored row that has this one's identity; else this one, added."""
    stored = session.scalar(select(type(row)).where(identity == getattr(row, identity.key)))
    if stored is not None:
        return stored
    session.add(row)
    session.flush()
    return row


def experiment_row(session: Session, name: str) -> models.Experiment:
    """The experiment of this name."""
    row = models.Experiment(id=models.new_id(), name=name, created_at=dt.datetime.now(dt.UTC))
    return found_or_added(session, row, models.Experiment.name)
