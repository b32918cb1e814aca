"""Everything that is said of a run is said of the same rows, whichever command says it."""

import ast
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from orchestrator.judging import judge
from orchestrator.statistics.observations import REQUIRED
from orchestrator.stored_run import StoredRun
from tests.orchestrator.flat import FlatRun
from tests.orchestrator.plans import arm, plan
from tests.orchestrator.shells import Shell

SPECULATION = "speculation_qwen35b_m4"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A plain arm and one that speculates."""
    shell = Shell(tmp_path_factory.mktemp("measured"))
    settings = ["engine=simulated", "checkpoint=simulated", "workload=quick", "design.interleave_by=prompt"]
    shell("run", *settings, "engine.acceptance=null,0.7", "design.rounds=6", "--quiet")
    return shell


def reading(field: str) -> Callable[[sqlite3.Connection], None]:
    """Another reading of the machine in the one arm than in the other."""

    def spoil(database: sqlite3.Connection) -> None:
        database.execute("DELETE FROM telemetry WHERE field = ? AND phase = 'before'", [field])
        database.execute(
            "INSERT INTO telemetry (id, trial_id, phase, field, value_text) SELECT 'spoilt-' || trial.id, trial.id,"
            " 'before', ?, CASE WHEN arm.is_control THEN 'one' ELSE 'another' END"
            " FROM trial JOIN arm ON arm.id = trial.arm_id",
            [field],
        )

    return spoil


def power_source(database: sqlite3.Connection) -> None:
    """On the mains in the one arm, on battery in the other."""
    database.execute(
        "UPDATE trial SET power_source = (SELECT CASE WHEN is_control THEN 'ac' ELSE 'battery' END FROM arm"
        " WHERE arm.id = trial.arm_id)"
    )


def version(column: str) -> Callable[[sqlite3.Connection], None]:
    """Another version in the one arm's environment than in the other's."""

    def spoil(database: sqlite3.Connection) -> None:
        database.row_factory = sqlite3.Row
        own = dict(database.execute("SELECT * FROM environment").fetchone())
        for is_control, value in ((1, "one"), (0, "another")):
            row = own | {"id": value, "sha256": value, column: value}
            marks = ", ".join("?" for _ in row)
            database.execute(f"INSERT INTO environment ({', '.join(row)}) VALUES ({marks})", list(row.values()))
            arms = "SELECT id FROM arm WHERE is_control = ?"
            database.execute(f"UPDATE trial SET environment_id = ? WHERE arm_id IN ({arms})", [value, is_control])

    return spoil


def test_a_clean_run_holds_figures_against_claims(measured: Shell) -> None:
    audited, claims = _said(measured)
    assert "confounded" not in audited
    assert "confounded" not in claims


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (reading("power_mode"), "power mode differs"),
        (reading("nice"), "nice value differs"),
        (reading("lid"), "lid differs"),
        (reading("display"), "display differs"),
        (power_source, "power source differs"),
        (version("python"), "Python version differs"),
        (version("os_build"), "OS build differs"),
        (version("mlx_version"), "MLX version differs"),
        (version("mlx_lm_version"), "mlx-lm version differs"),
        (version("interlace_version"), "interlace version differs"),
    ],
)
def test_claims_never_contradict_the_audit_above_them(
    measured: Shell, tmp_path: Path, spoil: Callable[[sqlite3.Connection], None], says: str
) -> None:
    shell = Shell(tmp_path)
    with closing(sqlite3.connect(measured.db)) as source, closing(sqlite3.connect(shell.db)) as database:
        source.backup(database)
        with database:
            spoil(database)
    audited, claims = _said(shell)
    assert "confounded" in audited
    assert says in audited
    assert "verdict: confounded" in claims
    assert "so: no figure to compare: the comparison is confounded" in claims
    assert "the interval holds the claim" not in claims


CLAIMS = "Compared with published figures"


def _said(shell: Shell) -> tuple[str, str]:
    """Return an audit's text and its part on the claim, with joined lines."""
    audited, claims = shell("audit", "last", "--full", "--against", SPECULATION).stdout.split(CLAIMS)
    return " ".join(audited.split()), " ".join(claims.split())


@pytest.mark.parametrize("name", REQUIRED)
def test_rows_that_lack_a_column_are_refused(name: str) -> None:
    frame = _frame().drop(columns=name)
    with pytest.raises((ValueError, KeyError), match=name):
        judge(frame, plan(arm("a"), arm("b"), rounds=6))


@pytest.mark.parametrize("name", sorted({*REQUIRED} - {"randomised"}))
def test_rows_of_another_tool_that_lack_a_column_are_refused(name: str) -> None:
    frame = _frame().assign(randomised=False).drop(columns=name)
    with pytest.raises(ValueError, match=f"columns missing: {name};"):
        judge(frame, plan(arm("a"), arm("b"), rounds=6))


def _frame() -> pd.DataFrame:
    return FlatRun(effects={"a": 1.0, "b": 1.3}, rounds=6).frame()


def test_a_table_is_read_once(measured: Shell) -> None:
    """A run under way grows between two looks: what one command says of it is said of the same rows."""
    from db.session import open_existing

    database = open_existing(f"sqlite:///{measured.db}")
    (row,) = measured.ask("SELECT id FROM run")
    run = StoredRun.load(database, str(row["id"]))
    assert run.trials is run.trials
    assert run.answers is run.answers
    assert set(REQUIRED) <= set(run.trials.columns)
    database.dispose()


def test_a_runs_rows_are_read_in_one_place() -> None:
    """Whoever reads them by another way judges other rows: `db.frames` keeps its other names to finding runs."""
    allowed = {"runs", "resolve_run"}
    readers = {"stored_run.py", "notebook.py"}  # a notebook hands the view's rows on as they are
    for path in sorted((ROOT / "orchestrator").rglob("*.py")):
        if path.name in readers:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "db":
                assert "frames" not in {alias.name for alias in node.names}, path
            if isinstance(node, ast.ImportFrom) and node.module == "db.frames":
                assert {alias.name for alias in node.names} <= allowed, path
