"""Types of columns that SQLAlchemy does not have."""

import datetime as dt
import math

from sqlalchemy import DateTime, Double
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator


class UtcDateTime(TypeDecorator[dt.datetime]):
    """An aware datetime, stored in UTC without offset. A naive value is refused: whose zone would it be?"""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: dt.datetime | None, dialect: Dialect) -> dt.datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"naive datetime {value!r}: give it a time zone")
        return value.astimezone(dt.UTC).replace(tzinfo=None)

    def process_result_value(self, value: dt.datetime | None, dialect: Dialect) -> dt.datetime | None:
        return None if value is None else value.replace(tzinfo=dt.UTC)


class Finite(TypeDecorator[float]):
    """A float that is a number: NaN and infinity are refused, so that a failed division cannot look like a rate."""

    impl = Double
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:
        if value is not None and not math.isfinite(value):
            raise ValueError(f"{value!r} is not a measurement; store NULL and the reason")
        return value
