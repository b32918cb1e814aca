"""Frames with the right kinds, and runs found by what a person types."""

import datetime as dt

import pandas as pd
import pytest

from db.errors import RunNotFoundError
from db.frames import resolve_run, runs, trials, verdicts
from tests.db.conftest import Database
from tests.db.filling import Filled
from tests.db.flat_columns import MORE_OF_TRIAL_FLAT, TRIAL_FLAT, VERDICT_FLAT


@pytest.fixture(scope="module")
def frame(stored: tuple[Database, Filled]) -> pd.DataFrame:
    database, filled = stored
    return trials(database.engine, filled.last_run)


def test_a_run_comes_in_time_order(frame: pd.DataFrame, stored: tuple[Database, Filled]) -> None:
    assert len(frame) == stored[1].trials
    assert frame["started_at"].is_monotonic_increasing
    assert set(TRIAL_FLAT + MORE_OF_TRIAL_FLAT) <= set(frame.columns)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("round", "Int64"),
        ("thermal_before", "Int64"),
        ("block_size", "Int64"),
        ("is_control", "boolean"),
        ("engaged", "boolean"),
        ("decode_tps", "float64"),
        ("accept_length", "float64"),
        ("started_at", "datetime64[us, UTC]"),
        ("generation_started_at", "datetime64[us, UTC]"),
        ("arm", "string"),
        ("error_kind", "string"),
    ],
)
def test_columns_keep_what_they_are(column: str, kind: str, frame: pd.DataFrame) -> None:
    assert str(frame[column].dtype) == kind


def test_every_column_has_a_considered_kind(frame: pd.DataFrame) -> None:
    assert [name for name in frame.columns if frame[name].dtype == object] == ["flags", "gate_detail"]
    numbers = [name for name in frame.columns if str(frame[name].dtype) == "string" and name.endswith(("_s", "_tps"))]
    assert numbers == []


def test_missing_is_missing(frame: pd.DataFrame) -> None:
    failed = frame[frame["status"] == "invalid"].iloc[0]
    assert pd.isna(failed["decode_tps"])
    assert pd.isna(failed["engaged"])
    assert pd.isna(failed["round"])
    assert not pd.isna(failed["error_message"])


def test_flags_are_lists(frame: pd.DataFrame) -> None:
    prose = frame[frame["prompt_class"] == "prose"]["flags"]
    assert next(iter(prose)) == ["cache_contradiction"]


def test_a_url_does_as_well_as_an_engine(stored: tuple[Database, Filled], frame: pd.DataFrame) -> None:
    database, filled = stored
    pd.testing.assert_frame_equal(trials(database.url, filled.last_run), frame)


def test_an_unknown_run_has_no_rows_and_the_same_kinds(stored: tuple[Database, Filled], frame: pd.DataFrame) -> None:
    empty = trials(stored[0].engine, "unknown")
    assert len(empty) == 0
    assert dict(empty.dtypes) == dict(frame.dtypes)


def test_verdicts_are_those_of_the_newest_audit(stored: tuple[Database, Filled]) -> None:
    database, filled = stored
    found = verdicts(database.engine, filled.last_run)
    assert set(VERDICT_FLAT) <= set(found.columns)
    assert list(found["verdict"]) == ["supported", "could_be_drift", "supported", "supported"]
    assert list(found["ratio"]) == [1.2, 1.02, 1.5, 0.8]
    assert found["reasons"][0] == [{"code": "clear", "words": "the interval is clear of 1"}]


def test_runs_come_newest_first(stored: tuple[Database, Filled]) -> None:
    database, filled = stored
    found = runs(database.engine)
    assert list(found["run_id"]) == [filled.last_run, filled.first_run]
    assert found["trials"][0] == filled.trials
    assert found["created_at"][0] == pd.Timestamp(dt.datetime(2026, 3, 2, 22, tzinfo=dt.UTC))
    assert list(runs(database.engine, limit=1)["run_id"]) == [filled.last_run]


# ---- finding a run ----


def test_last_is_the_newest(stored: tuple[Database, Filled]) -> None:
    database, filled = stored
    assert resolve_run(database.engine, "last") == filled.last_run
    assert resolve_run(database.engine, " LAST ") == filled.last_run


@pytest.mark.parametrize("part", [slice(None), slice(-6, None), slice(20, -3)], ids=["whole", "end", "middle"])
def test_a_unique_part_of_an_id_will_do(part: slice, stored: tuple[Database, Filled]) -> None:
    database, filled = stored
    assert resolve_run(database.engine, filled.first_run[part]) == filled.first_run
    assert resolve_run(database.engine, filled.first_run[part].upper()) == filled.first_run


@pytest.mark.parametrize("name", ["zzz", "", "0"])
def test_none_or_several_are_refused_with_candidates(name: str, stored: tuple[Database, Filled]) -> None:
    database, filled = stored
    with pytest.raises(RunNotFoundError, match=r"no run has this in its id|2 runs fit") as caught:
        resolve_run(database.engine, name)
    assert f"{filled.last_run} (draft-or-quantise, done)" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_empty_database_says_how_to_start(database: Database) -> None:
    with pytest.raises(RunNotFoundError, match="no run is stored yet; start one with `interlace run`"):
        resolve_run(database.engine, "last")
