"""How fast a configuration was on a host so far: what a plan's duration is estimated from."""

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd
from sqlalchemy import Engine, select

from db.models import Arm, Generation, Host, Run, Trial
from db.session import reading


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRates:
    """Medians over all finished generations."""

    prefill_tps: float
    decode_tps: float
    load_s: float


def measured_rates(engine: Engine, config_sha256s: Iterable[str], *, hostname: str) -> dict[str, MeasuredRates]:
    """The rates of those configurations that were measured on this host, by the configuration's hash."""
    query = (
        select(Arm.config_sha256, Generation.prefill_tps, Generation.decode_tps, Arm.load_s)
        .join(Trial, Generation.trial_id == Trial.id)
        .join(Arm, Trial.arm_id == Arm.id)
        .join(Run, Trial.run_id == Run.id)
        .join(Host, Run.host_id == Host.id)
        .where(Arm.config_sha256.in_(list(config_sha256s)), Host.name == hostname, Trial.status == "done")
    )
    with reading(engine) as session:
        rows = session.execute(query).all()
    frame = pd.DataFrame(rows, columns=["config_sha256", "prefill_tps", "decode_tps", "load_s"]).dropna()
    medians = frame.groupby("config_sha256").median()
    return {
        str(key): MeasuredRates(prefill_tps=prefill_tps, decode_tps=decode_tps, load_s=load_s)
        for key, prefill_tps, decode_tps, load_s in medians.itertuples(name=None)
    }
