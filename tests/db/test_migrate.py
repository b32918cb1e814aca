"""The revisions: the same tables as the models, upgrades that keep what is stored, and a check that finds damage."""

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory

from db import check as check_module
from db.check import check, compare_ddl, migrated_ddl, model_ddl, model_drift, normalised_ddl
from db.errors import LocationError, SchemaError
from db.migrate import SCRIPTS, VERSION_TABLE, State, current, refuse_all_but_current, upgrade, view_files
from tests.db.conftest import Database
from tests.db.filling import fill

HEAD = max(file.name[:4] for file in Path(SCRIPTS, "versions").glob("[0-9]*.py"))  # the newest revision

# A later revision of the kind that goes wrong: it recreates a parent table, which views and children refer to.
_SECOND = """
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "HEAD"
branch_labels = None
depends_on = None


def upgrade():
    with op.batch_alter_table("run") as batch:
        batch.add_column(sa.Column("operator", sa.String()))
        batch.create_check_constraint("ck_run_rounds_natural", "rounds >= 0")
    op.execute("UPDATE run SET operator = 'nobody'")
""".replace("HEAD", HEAD)
_CHILDREN = ("arm", "round", "trial", "generation", "evidence", "telemetry", "audit", "comparison")


@pytest.fixture
def later_scripts(tmp_path: Path) -> Path:
    """The revisions of a later version: ours and one more."""
    folder = tmp_path / "later" / "migrations"
    shutil.copytree(SCRIPTS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / "9999_operator.py").write_text(_SECOND)
    return folder


def _counts(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as connection:
        return {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in _CHILDREN}


def test_the_models_and_the_revisions_make_the_same_tables() -> None:
    assert model_drift() == []


def test_drift_is_seen_down_to_the_words_of_a_check() -> None:
    models = model_ddl()
    models["trial"] = tuple(part.replace("'bracket', ", "") for part in models["trial"])
    (problem,) = compare_ddl(
        models, {k: v for k, v in migrated_ddl().items() if k in models}, expected="the migrations"
    )
    assert problem.startswith("differs: trial: has CONSTRAINT ck_trial_kind_known CHECK")


def test_a_missing_index_is_seen() -> None:
    wanted = migrated_ddl()
    found = {name: ddl for name, ddl in wanted.items() if name != "ix_trial_arm_id_started_at"}
    assert compare_ddl(found, wanted, expected="the migrations") == [
        "missing: ix_trial_arm_id_started_at, which the migrations make"
    ]


def test_constraints_are_compared_whatever_their_order() -> None:
    one = "CREATE TABLE t (\n\tid INTEGER, \n\tCONSTRAINT a CHECK (id IN (1, 2)), CONSTRAINT b UNIQUE (id)\n)"
    other = 'CREATE TABLE "t" (id INTEGER,\n  CONSTRAINT b UNIQUE (id), CONSTRAINT a CHECK (id IN (1, 2)))'
    assert normalised_ddl(one) == normalised_ddl(other) != normalised_ddl(one.replace("(1, 2)", "(1, 3)"))


def test_a_revision_imports_nothing_of_the_project() -> None:
    revisions = list((Path(SCRIPTS) / "versions").glob("[0-9]*.py"))
    assert revisions
    for path in revisions:
        imports = [line for line in path.read_text().splitlines() if line.startswith(("import ", "from "))]
        assert set(imports) <= {"import sqlalchemy as sa", "from alembic import op"}, path.name


def test_the_revisions_are_read_from_their_files_as_alembic_reads_them(database: Database) -> None:
    directory = ScriptDirectory(SCRIPTS)
    version = current(database.url)
    assert version.head == directory.get_current_head()
    with closing(sqlite3.connect(database.path)) as connection:
        for script in directory.walk_revisions():
            connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '{script.revision}'")
            connection.commit()
            known = State.CURRENT if script.revision == version.head else State.OLDER
            assert current(database.url).state is known
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = 'from the future'")
        connection.commit()
    assert current(database.url).state is State.NEWER


def test_whoever_changes_a_view_adds_a_revision() -> None:
    """Views are created by an upgrade, so a database that has the newest revision already would keep the old ones."""
    views = b"".join(path.read_bytes() for path in view_files().values())
    assert (HEAD, sha256(views).hexdigest()[:16]) == ("0011", "f4dddffd114277c7")


def test_upgrading_twice_changes_nothing(database: Database) -> None:
    before = database.path.read_bytes()
    assert upgrade(database.url).state is State.CURRENT
    assert database.path.read_bytes() == before


def test_an_older_database_is_refused_with_the_command(database: Database, later_scripts: Path) -> None:
    version = current(database.url, scripts=str(later_scripts))
    assert (version.state, version.revision, version.head) == (State.OLDER, HEAD, "9999")
    with pytest.raises(SchemaError, match=f"schema {HEAD}, this interlace needs 9999; run `interlace db upgrade`"):
        refuse_all_but_current(version)


def test_an_upgrade_that_recreates_a_parent_keeps_its_children(database: Database, later_scripts: Path) -> None:
    filled = fill(database.engine)
    database.engine.dispose()
    before = _counts(database.path)
    assert all(before.values())
    assert upgrade(database.url, scripts=str(later_scripts)).revision == "9999"
    assert _counts(database.path) == before
    with closing(sqlite3.connect(database.path)) as connection:
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        assert connection.execute("SELECT DISTINCT operator FROM run").fetchall() == [("nobody",)]
        flat = connection.execute("SELECT count(*) FROM trial_flat WHERE run_id = ?", (filled.last_run,)).fetchone()
        assert flat == (filled.trials,)
        with pytest.raises(sqlite3.IntegrityError, match="ck_run_rounds_natural"):
            connection.execute("UPDATE run SET rounds = -1")
    assert check_module.compare_ddl(_ddl(database.path), migrated_ddl(str(later_scripts)), expected="they") == []


def test_our_code_refuses_the_database_that_a_later_version_upgraded(database: Database, later_scripts: Path) -> None:
    upgrade(database.url, scripts=str(later_scripts))
    with pytest.raises(SchemaError, match=f"newer interlace \\(schema 9999, this one knows {HEAD}\\)"):
        upgrade(database.url)


@pytest.mark.parametrize(
    "fault", ["raise RuntimeError('half-way')", "op.execute('DELETE FROM host')"], ids=["fails", "breaks references"]
)
def test_an_upgrade_that_goes_wrong_leaves_the_database_as_it_was(
    fault: str, database: Database, later_scripts: Path
) -> None:
    fill(database.engine)
    database.engine.dispose()
    before = database.path.read_bytes()
    (later_scripts / "versions" / "9999_operator.py").write_text(f"{_SECOND}    {fault}\n")
    with pytest.raises(
        (RuntimeError, SchemaError), match=r"half-way|broken references after the upgrade, which is undone"
    ):
        upgrade(database.url, scripts=str(later_scripts))
    assert database.path.read_bytes() == before
    assert current(database.url).state is State.CURRENT


def test_a_folder_with_a_percent_sign_holds_revisions_too(tmp_path: Path) -> None:
    folder = tmp_path / "100%s" / "migrations"
    shutil.copytree(SCRIPTS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    assert migrated_ddl(str(folder)) == migrated_ddl()


# ---- check ----


def test_a_sound_database_passes(database: Database) -> None:
    fill(database.engine)
    found = check(database.url)
    assert found.ok
    assert (found.problems, found.version.revision) == ((), HEAD)
    assert str(found) == f"{database.path}: schema {HEAD}, current, sound"


def test_checking_changes_nothing(database: Database) -> None:
    fill(database.engine)
    database.engine.dispose()
    before = database.path.read_bytes()
    check(database.url)
    assert database.path.read_bytes() == before


def test_what_somebody_changed_by_hand_is_found(database: Database) -> None:
    fill(database.engine)
    with closing(sqlite3.connect(database.path)) as connection:
        connection.execute("DROP INDEX ix_trial_started_at")
        connection.execute("CREATE TABLE notes (text)")
        connection.execute("DELETE FROM host")
        connection.commit()
    problems = check(database.url).problems
    assert "missing: ix_trial_started_at, which the migrations make" in problems
    assert "unknown: notes, which the migrations do not make" in problems
    assert sum(problem.startswith("broken reference: run row") for problem in problems) == 2


def test_damage_is_found(database: Database) -> None:
    fill(database.engine)
    database.engine.dispose()
    with closing(sqlite3.connect(database.path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size, page = (
            connection.execute("PRAGMA page_size").fetchone()[0],
            connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'ix_arm_name'").fetchone()[0],
        )
    with database.path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\x0a" + b"\x00" * 7)
    assert any(problem.startswith("damaged: ") for problem in check(database.url).problems)


def test_without_a_database_the_check_reports_it(tmp_path: Path) -> None:
    found = check(str(tmp_path / "x.db"))
    assert (found.ok, found.version.state) == (False, State.FRESH)
    assert str(found).startswith(f"{tmp_path / 'x.db'}: schema none, fresh, not sound\n")
    assert found.problems == (f"{tmp_path / 'x.db'}: no database there yet; `interlace run` creates it",)
    with pytest.raises(LocationError, match="interlace run"):
        refuse_all_but_current(found.version)


def test_a_newer_database_is_not_sound_and_the_check_says_why(database: Database, later_scripts: Path) -> None:
    upgrade(database.url, scripts=str(later_scripts))
    (problem,) = check(database.url).problems
    assert "written by a newer interlace" in problem


def test_the_command_that_ci_runs_agrees() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "migrations.verify"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "migrations match the models\n", "")


def _ddl(path: Path) -> dict[str, check_module.Ddl]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return {name: normalised_ddl(sql) for name, sql in rows if name != "interlace_version"}
