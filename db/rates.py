"""Measured rates of a configuration on a host, from which a plan's duration is estimated."""

import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sqlalchemy import Engine, select

from db.models import Arm, Generation, Run, Trial
from db.session import read_only


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRates:
    """Medians over all finished generations."""

    prefill_tps: float
    decode_tps: float
    load_s: float


def measured_rates(
    engine: Engine, config_sha256s: Iterable[str], *, host_ids: Collection[str]
) -> dict[str, MeasuredRates]:
    """The rates of those configurations that were measured on these hosts, by the configuration's hash."""
    query = (
        select(Arm.config_sha256, Generation.prefill_tps, Generation.decode_tps, Arm.load_s)
        .join(Trial, Generation.trial_id == Trial.id)
        .join(Arm, Trial.arm_id == Arm.id)
        .join(Run, Trial.run_id == Run.id)
        .where(Arm.config_sha256.in_(list(config_sha256s)), Run.host_id.in_(list(host_ids)), Trial.status == "done")
    )
    with read_only(engine) as session:
        rows = session.execute(query).all()
    found: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for key, prefill_tps, decode_tps, load_s in rows:
        if prefill_tps is not None and decode_tps is not None and load_s is not None:
            found[key].append((prefill_tps, decode_tps, load_s))
    return {key: _medians(rates) for key, rates in found.items()}


def _medians(rates: list[tuple[float, float, float]]) -> MeasuredRates:
    prefill_tps, decode_tps, load_s = (statistics.median(column) for column in zip(*rates, strict=True))
    return MeasuredRates(prefill_tps=prefill_tps, decode_tps=decode_tps, load_s=load_s)
