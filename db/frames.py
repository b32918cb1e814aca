"""The stored results as pandas frames, and finding a run by what a person types.

Columns keep what they are: whole numbers stay whole where some are missing, flags are three-valued, times are UTC.
"""

import json
from typing import Any

import pandas as pd
from sqlalchemy import Engine, bindparam, text

from db.runs import NO_LIMIT, RUN_LIST_SQL, RUNS_SQL, choose_run
from db.session import open_existing, read_only

_FLAGS = frozenset("is_control is_warmup is_aa requested engaged useful simulated randomised".split())
_COUNTS = frozenset(
    (
        "round position bits block_size turn thermal_before thermal_max thermal_after prompt_tokens cached_tokens"
        " completion_tokens peak_memory_bytes sequence attempt seed generation_position verify_steps drafted accepted"
        " drafted_per_step rounds wins runner_pid trials ordinal token_index control_token arm_token width repeats"
        " context_tokens bytes_read_per_token kv_bytes_per_token draft_bytes_read_per_token draft_kv_bytes_per_token"
    ).split()
)
_REALS = frozenset(
    (
        "ttft_s prefill_tps decode_tps end_to_end_tps accept_length acceptance_rate total_s engine_prefill_tps"
        " engine_decode_tps engine_gap inter_token_p95_s"
        " first_byte_s first_visible_s cpu_s gate_wait_s wall_s monotonic_s temperature"
        " ratio ci_low ci_high p_value"
        " aa_ratio aa_low aa_high family_p engaged_share drift alpha margin runner_started_at gap rounding median_s"
        " low_s high_s bandwidth_bytes_per_s"
    ).split()
)
_TIMES = frozenset("started_at generation_started_at created_at run_created_at finished_at".split())
_JSON = frozenset(("flags", "reasons", "gate_detail", "top", "host_detail"))
# Not PyArrow's strings, which pandas takes if PyArrow is installed: the first one takes 0.1 s of CPU, and what is
# computed would depend on what else is installed.
TEXT = pd.StringDtype("python")


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
    """One telemetry field before each trial of a run, by trial_id: its words, else its number as text.

    Trials without a reading of it are absent.
    """
    rows = _frame(
        source,
        """
        SELECT telemetry.trial_id AS trial_id, coalesce(telemetry.value_text, printf('%g', telemetry.value)) AS found
        FROM telemetry JOIN trial ON trial.id = telemetry.trial_id
        WHERE trial.run_id = :run_id AND telemetry.field = :field AND telemetry.phase = 'before'
            AND (telemetry.value_text IS NOT NULL OR telemetry.value IS NOT NULL)
        """,
        run_id=run_id,
        field=field,
    )
    return rows.set_index("trial_id")["found"]


def environments(source: Engine | str, run_id: str) -> pd.DataFrame:
    """The environment of each trial of a run, by trial_id, and the reason where MLX's version is missing.

    `mlx_missing` is `unknown`, or `none` where it is known that a server runs without MLX. `mlx_build` is the platform
    that MLX's Metal kernels were built for; NULL: not on a Mac, or not recorded. `packages` is a JSON text: every
    recorded distribution with its version.
    """
    rows = _frame(
        source,
        """
        SELECT trial.id AS trial_id, environment.id AS environment_id, environment.missing_reason AS missing_reason,
            CASE
                WHEN environment.server IS NULL OR environment.mlx_version IS NOT NULL THEN NULL
                WHEN json_type(environment.packages, '$.mlx') = 'null' THEN 'none'
                ELSE 'unknown'
            END AS mlx_missing,
            json_extract(environment.packages, '$."mlx-metal build"') AS mlx_build, environment.packages AS packages
        FROM trial JOIN environment ON environment.id = trial.environment_id
        WHERE trial.run_id = :run_id
        """,
        run_id=run_id,
    )
    return rows.set_index("trial_id")


def answers(source: Engine | str, run_id: str) -> pd.DataFrame:
    """The answers of a run's arms with their times: the generations of its rounds and control runs, in time order.

    `token_ids`, `stamps_us` (one per token, since the request's start) and `steps` ([drafted, accepted, committed] a
    verify step) are JSON texts: a run may hold millions of them, and few questions need all.
    """
    return _frame(
        source,
        """
        SELECT generation.id AS generation_id, trial.id AS trial_id, arm.name AS arm, trial.is_aa AS is_aa,
            trial.kind AS kind, trial.status AS status, trial.excluded_reason AS excluded_reason,
            round."index" AS round, round.attempt AS attempt, trial.sequence AS sequence,
            generation.workload AS workload, generation.prompt_class AS prompt_class,
            generation.prompt_id AS prompt_id, generation.turn AS turn, generation.prompt_sha256 AS prompt_sha256,
            generation.prompt_tokens AS prompt_tokens, generation.cached_tokens AS cached_tokens,
            generation.completion_tokens AS completion_tokens, generation.ttft_s AS ttft_s,
            generation.prefill_tps AS prefill_tps, generation.decode_tps AS decode_tps,
            generation.requested AS requested, generation.flags AS flags, generation.text AS text,
            generation.token_ids AS token_ids, generation.stamps_us AS stamps_us, generation.steps AS steps,
            generation.stamps_of AS stamps_of
        FROM generation
        JOIN trial ON trial.id = generation.trial_id
        JOIN arm ON arm.id = trial.arm_id
        LEFT JOIN round ON round.id = trial.round_id
        WHERE trial.run_id = :run_id AND trial.kind IN ('measured', 'bracket')
            AND trial.status IN ('done', 'excluded')
        ORDER BY trial.ordinal, trial.started_at, trial.id, generation.position
        """,
        run_id=run_id,
    )


def arms(source: Engine | str, run_id: str) -> pd.DataFrame:
    """A run's arms, the control first, with what one of their tokens reads: of the target and of the draft."""
    return _frame(
        source,
        """
        SELECT arm.name AS arm, arm.is_control AS is_control, arm.engine AS engine, arm.draft AS draft,
            arm.block_size AS block_size, arm.drafted_per_step AS drafted_per_step, arm.temperature AS temperature,
            checkpoint.name AS checkpoint, checkpoint.digest AS checkpoint_digest,
            checkpoint.bytes_read_per_token AS bytes_read_per_token,
            checkpoint.kv_bytes_per_token AS kv_bytes_per_token,
            drafting.bytes_read_per_token AS draft_bytes_read_per_token,
            drafting.kv_bytes_per_token AS draft_kv_bytes_per_token
        FROM arm
        LEFT JOIN checkpoint ON checkpoint.id = arm.checkpoint_id
        LEFT JOIN checkpoint AS drafting ON drafting.id = arm.draft_checkpoint_id
        WHERE arm.run_id = :run_id
        ORDER BY arm.is_control DESC, arm.id
        """,
        run_id=run_id,
    )


def divergences(source: Engine | str, run_id: str) -> pd.DataFrame:
    """The places where a run's arms diverge from its control, as probed after its rounds."""
    return _frame(
        source,
        """
        SELECT arm.name AS arm, divergence.prompt_id AS prompt_id, divergence.turn AS turn,
            divergence.token_index AS token_index, divergence.control_token AS control_token,
            divergence.arm_token AS arm_token, divergence.control_text AS control_text,
            divergence.arm_text AS arm_text, divergence.context_text AS context_text, divergence.top AS top,
            divergence.gap AS gap, divergence.rounding AS rounding, divergence.verdict AS verdict,
            divergence.reason AS reason
        FROM divergence JOIN arm ON arm.id = divergence.arm_id
        WHERE divergence.run_id = :run_id
        ORDER BY arm.id, divergence.prompt_id, divergence.turn
        """,
        run_id=run_id,
    )


def pass_times(source: Engine | str, run_id: str) -> pd.DataFrame:
    """The duration of one pass of a run's models, by the number of tokens in it."""
    return _frame(
        source,
        """
        SELECT arm.name AS arm, pass_time.role AS role, pass_time.width AS width, pass_time.median_s AS median_s,
            pass_time.low_s AS low_s, pass_time.high_s AS high_s, pass_time.repeats AS repeats,
            pass_time.context_tokens AS context_tokens
        FROM pass_time JOIN arm ON arm.id = pass_time.arm_id
        WHERE pass_time.run_id = :run_id
        ORDER BY arm.id, pass_time.role, pass_time.width
        """,
        run_id=run_id,
    )


def machine(source: Engine | str, run_id: str) -> pd.DataFrame:
    """One row: the run's host, and its memory's bandwidth with where that is known from."""
    return _frame(
        source,
        """
        SELECT host.name AS host, host.chip AS chip, host.detail AS host_detail, run.simulated AS simulated,
            run.bandwidth_bytes_per_s AS bandwidth_bytes_per_s, run.bandwidth_source AS bandwidth_source
        FROM run JOIN host ON host.id = run.host_id
        WHERE run.id = :run_id
        """,
        run_id=run_id,
    )


def verdicts(source: Engine | str, run_id: str) -> pd.DataFrame:
    """The comparisons of a run's newest audit, with the columns of the view `verdict_flat`."""
    return _frame(source, "SELECT * FROM verdict_flat WHERE run_id = :run_id ORDER BY position", run_id=run_id)


def runs(source: Engine | str, *, limit: int | None = None) -> pd.DataFrame:
    """The runs, newest first, with their experiment, host and number of stored trials; without their plans."""
    return _frame(
        source,
        RUN_LIST_SQL,
        limit=NO_LIMIT if limit is None else limit,
    )


def resolve_run(engine: Engine, name: str) -> str:
    """The id of the run that a full id, a unique part of one, or `last` names. A matching start goes before the rest.

    Raises:
        RunNotFoundError: none fits, or several; with the newest candidates.
    """
    with read_only(engine) as session:
        return choose_run(session.execute(text(RUNS_SQL)), name)


def _frame(source: Engine | str, sql: str, **params: Any) -> pd.DataFrame:
    engine = open_existing(source) if isinstance(source, str) else source
    try:
        with read_only(engine) as session:
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
    return column.astype(TEXT)
