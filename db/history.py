"""One configuration over time: a row for each run that measured it."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
from sqlalchemy import Engine, text

from db.session import read_only
from db.vocabulary import METRICS

VERSIONS = ("mlx_version", "mlx_lm_version", "engine_version", "os_build", "checkpoint_digest", "interlace_version")
SERIES = ("config_sha256", "workload_sha256", "host")  # points that may be set side by side share these

_SQL = """
SELECT arm.config_sha256, run.workload_sha256, host.name AS host, arm.name AS arm, arm.engine AS engine,
    checkpoint.name AS checkpoint, experiment.name AS experiment, run.id AS run_id, run.created_at AS created_at,
    environment.mlx_version, environment.mlx_lm_version, arm.engine_version, environment.os_build,
    checkpoint.digest AS checkpoint_digest, environment.interlace_version, environment.packages AS packages,
    arm.environment AS environment, generation.{metric} AS value,
    trial.id AS trial_id
FROM generation
JOIN trial ON trial.id = generation.trial_id
JOIN arm ON arm.id = trial.arm_id
JOIN run ON run.id = trial.run_id
JOIN host ON host.id = run.host_id
JOIN experiment ON experiment.id = run.experiment_id
LEFT JOIN environment ON environment.id = trial.environment_id
LEFT JOIN checkpoint ON checkpoint.id = arm.checkpoint_id
WHERE trial.kind = 'measured' AND trial.status = 'done' AND generation.{metric} IS NOT NULL
    AND run.simulated = :simulated
"""
_FILTERS = {
    "arm": "arm.name LIKE :arm",
    "engine": "arm.engine = :engine",
    "checkpoint": "checkpoint.name = :checkpoint",
    "experiment": "experiment.name = :experiment",
}


_EVENINGS_SQL = """
SELECT treatment.config_sha256 AS treatment, control.config_sha256 AS control, verdict_flat.verdict AS verdict,
    verdict_flat.ratio AS ratio
FROM run AS asked
JOIN run AS other ON other.host_id = asked.host_id AND other.workload_sha256 = asked.workload_sha256
    AND other.metric = asked.metric AND other.simulated = asked.simulated
JOIN verdict_flat ON verdict_flat.run_id = other.id AND verdict_flat.metric = asked.metric
JOIN arm AS treatment ON treatment.run_id = other.id AND treatment.name = verdict_flat.treatment
JOIN arm AS control ON control.run_id = other.id AND control.name = verdict_flat.control
WHERE asked.id = :run_id AND other.randomised AND verdict_flat.ratio IS NOT NULL
    AND verdict_flat.prompt_class IS NULL AND verdict_flat.turn IS NULL AND verdict_flat.workload IS NULL
    AND other.id NOT IN (:run_id, :without)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEffect:
    """The effect over all prompts that one run's newest audit found."""

    pair: tuple[str, str]  # hashes of the treatment's and of the control's configuration
    verdict: str
    ratio: float


def other_evenings(engine: Engine, run_id: str, *, without: str) -> list[StoredEffect]:
    """The effects in the other runs of a run's host, prompts and metric; the run `without` is left out as well."""
    with read_only(engine) as session:
        rows = session.execute(text(_EVENINGS_SQL), {"run_id": run_id, "without": without}).all()
    return [
        StoredEffect(pair=(treatment, control), verdict=verdict, ratio=ratio)
        for treatment, control, verdict, ratio in rows
    ]


def generations_over_time(
    engine: Engine, *, metric: str, filters: Mapping[str, str | None], simulated: bool = False
) -> pd.DataFrame:
    """The finished generations of every run: the metric as `value`, the trial, the configuration and the versions.

    Args:
        metric: one of `METRICS`.
        filters: any of arm (an SQL pattern), engine, checkpoint, experiment; None is no filter.
        simulated: simulated runs instead of real ones, never both.

    Raises:
        ValueError: an unknown metric.
    """
    if metric not in METRICS:
        raise ValueError(f"metric {metric!r}: unknown; choose one of {', '.join(METRICS)}")
    wanted = {name: value for name, value in filters.items() if value is not None}
    sql = _SQL.format(metric=metric) + "".join(f" AND {_FILTERS[name]}" for name in wanted)
    with read_only(engine) as session:
        result = session.execute(text(sql), {**wanted, "simulated": simulated})
        return pd.DataFrame(result.all(), columns=list(result.keys()))


def arm_history(generations: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration and run: its median, the number of generations, and the versions.

    Args:
        generations: rows of `generations_over_time`.
    """
    keys = [column for column in generations.columns if column not in ("value", "trial_id")]
    points = generations.groupby(keys, dropna=False)["value"].agg(["median", "size"]).reset_index()
    points["created_at"] = pd.to_datetime(points["created_at"], utc=True)
    return points.rename(columns={"median": "value", "size": "generations"}).sort_values("created_at")


def runs_with_exclusions(engine: Engine) -> frozenset[str]:
    """The runs in which a rule left a measured trial out."""
    with read_only(engine) as session:
        rows = session.execute(
            text("SELECT DISTINCT run_id FROM trial WHERE kind = 'measured' AND status = 'excluded'")
        )
        return frozenset(rows.scalars())
