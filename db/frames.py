"""The stored results as pandas frames, and finding a run by what a person types.

Columns keep what they are: whole numbers stay whole where some are missing, flags are three-valued, times are UTC.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd
from sqlalchemy import Engine, bindparam, text

from db.errors import RunNotFoundError
from db.session import open_existing, reading

LAST = "last"
_CANDIDATES_SHOWN = 5

_FLAGS = frozenset("is_control is_warmup is_aa requested engaged useful simulated randomised".split())
_COUNTS = frozenset(
    (
        "round position bits block_size turn thermal_before thermal_max thermal_after prompt_tokens cached_tokens"
        " completion_tokens peak_memory_bytes sequence attempt seed generation_position verify_steps drafted accepted"
        " drafted_per_step rounds wins runner_pid trials ordinal"
    ).split()
)
_REALS = frozenset(
    (
        "ttft_s prefill_tps decode_tps end_to_end_tps accept_length acceptance_rate total_s engine_prefill_tps"
        " engine_decode_tps engine_gap first_byte_s first_visible_s cpu_s gate_wait_s wall_s monotonic_s temperature"
        " ratio ci_low ci_high p_value"
        " aa_ratio aa_low aa_high family_p engaged_share drift alpha margin runner_started_at"
    ).split()
)
_TIMES = frozenset("started_at generation_started_at created_at run_created_at finished_at".split())
_JSON = frozenset(("flags", "reasons", "gate_detail"))


def trials(source: Engine | str, run_id: str) -> pd.DataFrame:
    """A run's generations in time order, with the columns of the view `trial_flat`.

    `source` is an engine or a database URL. Trials without a generation have one row, with `generation_id` missing.
    """
    return _frame(
        source,
        "SELECT * FROM trial_flat WHERE run_id = :run_id ORDER BY ordinal, started_at, trial_id, generation_position",
        run_id=run_id,
    )


def readings(source: Engine | str, run_id: str, field: str) -> "pd.Series[Any]":
    """One telemetry field in words as it was before each trial of a run, by trial_id; trials without it are absent."""
    rows = _frame(
        source,
        """
        SELECT telemetry.trial_id AS trial_id, telemetry.value_text AS value_text
        FROM telemetry JOIN trial ON trial.id = telemetry.trial_id
        WHERE trial.run_id = :run_id AND telemetry.field = :field AND telemetry.phase = 'before'
            AND telemetry.value_text IS NOT NULL
        """,
        run_id=run_id,
        field=field,
    )
    return rows.set_index("trial_id")["value_text"]


def verdicts(source: Engine | str, run_id: str) -> pd.DataFrame:
    """The comparisons of a run's newest audit, with the columns of the view `verdict_flat`."""
    return _frame(source, "SELECT * FROM verdict_flat WHERE run_id = :run_id ORDER BY position", run_id=run_id)


def runs(source: Engine | str, *, limit: int | None = None) -> pd.DataFrame:
    """The runs, newest first, with their experiment, host and number of stored trials; without their plans."""
    return _frame(
        source,
        """
        SELECT run.id AS run_id, experiment.name AS experiment, host.name AS host, host.chip AS chip,
            run.status AS status, run.created_at AS created_at, run.finished_at AS finished_at, run.seed AS seed,
            run.rounds AS rounds, run.metric AS metric, run.interleave_by AS interleave_by,
            run.simulated AS simulated, run.plan_sha256 AS plan_sha256, run.workload_sha256 AS workload_sha256,
            run.runner_pid AS runner_pid, run.runner_started_at AS runner_started_at, run.boot_id AS boot_id,
            run.log_dir AS log_dir, run.note AS note,
            (SELECT count(*) FROM trial WHERE trial.run_id = run.id) AS trials
        FROM run
        JOIN experiment ON experiment.id = run.experiment_id
        JOIN host ON host.id = run.host_id
        ORDER BY run.created_at DESC, run.id DESC
        LIMIT :limit
        """,
        limit=-1 if limit is None else limit,
    )


def resolve_run(engine: Engine, name: str) -> str:
    """The id of the run that a full id, a unique part of one, or `last` names. A matching start goes before the rest.

    Raises:
        RunNotFoundError: none fits, or several; with the newest candidates.
    """
    wanted = name.strip().lower()
    with reading(engine) as session:
        rows = session.execute(
            text(
                "SELECT run.id, experiment.name, run.status FROM run JOIN experiment"
                " ON experiment.id = run.experiment_id ORDER BY run.created_at DESC, run.id DESC"
            )
        ).all()
    known = {str(run_id): f"{run_id} ({experiment}, {status})" for run_id, experiment, status in rows}
    if not known:
        raise RunNotFoundError("no run is stored yet; start one with `interlace run`")
    if wanted == LAST:
        return next(iter(known))
    fitting = _fitting(list(known), wanted)
    if len(fitting) == 1:
        return fitting[0]
    shown = "; ".join(known[run_id] for run_id in (fitting or list(known))[:_CANDIDATES_SHOWN])
    if fitting:
        raise RunNotFoundError(f"run {name!r}: {len(fitting)} runs fit; write more of the id: {shown}")
    raise RunNotFoundError(f"run {name!r}: no run has this in its id; write `{LAST}` or one of {shown}")


def _fitting(ids: list[str], wanted: str) -> list[str]:
    """The ids that equal, else start with, else end with, else hold the text."""
    rules: Iterable[Callable[[str], bool]] = (
        lambda run_id: run_id == wanted,
        lambda run_id: run_id.startswith(wanted),
        lambda run_id: run_id.endswith(wanted),
        lambda run_id: wanted in run_id,
    )
    if not wanted:
        return ids
    return next((found for rule in rules if (found := [run_id for run_id in ids if rule(run_id)])), [])


def _frame(source: Engine | str, sql: str, **params: Any) -> pd.DataFrame:
    engine = open_existing(source) if isinstance(source, str) else source
    try:
        with reading(engine) as session:
            result = session.execute(text(sql).bindparams(*(bindparam(key, value) for key, value in params.items())))
            frame = pd.DataFrame(result.fetchall(), columns=list(result.keys()), dtype=object)
    finally:
        if isinstance(source, str):
            engine.dispose()
    return frame.assign(**{name: _typed(name, frame[name]) for name in frame.columns})


def _typed(name: str, column: "pd.Series[Any]") -> "pd.Series[Any]":
    if name in _FLAGS:
        return column.astype("Int64").astype("boolean")
    if name in _COUNTS:
        return column.astype("Int64")
    if name in _REALS:
        return column.astype("float64")
    if name in _TIMES:
        return pd.to_datetime(column, utc=True, format="ISO8601").dt.as_unit("us")
    if name in _JSON:
        return column.map(json.loads, na_action="ignore")
    return column.astype("string")
