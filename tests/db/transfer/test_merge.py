"""Merging: idempotent, in any order, with a note if two sides disagree, and without changes of the other database."""

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from db.check import check
from db.engine import open_engine
from db.errors import LocationError, NetworkDiskError, SchemaError, TransferError
from db.session import open_database
from db.transfer.backup import backup
from db.transfer.merge import Merged, merge, merge_staged
from db.transfer.run_file import export_run, import_run
from tests.db.conftest import Database
from tests.db.filling import Filled, fill
from tests.db.states import Description, RunState, TrialState, build, contents


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database in one file."""
    path = tmp_path_factory.mktemp("template") / "empty.db"
    open_database(str(path)).dispose()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    return path


class Bench:
    """Databases in a folder, merged without the checks that only cost time here."""

    def __init__(self, folder: Path, template: Path) -> None:
        self.folder, self.template = folder, template
        self._made = 0

    def build(self, wanted: Description) -> Path:
        self._made += 1
        path = self.folder / f"{self._made}.db"
        build(self.template, path, wanted).dispose()
        return path

    def merge(self, target: Path, other: Path) -> Merged:
        copy = self.folder / "copy.db"
        with closing(sqlite3.connect(other)) as source, closing(sqlite3.connect(copy)) as to:
            source.backup(to)
        engine = open_engine(f"sqlite:///{target}")
        try:
            return merge_staged(engine, copy, shown=other)
        finally:
            engine.dispose()

    def merged(self, parts: Sequence[Description]) -> Path:
        first, *others = [self.build(part) for part in parts]
        for other in others:
            self.merge(first, other)
        return first


@pytest.fixture
def bench(tmp_path: Path, template: Path) -> Bench:
    return Bench(tmp_path, template)


# ---- whole databases ----


def test_another_database_comes_whole_and_a_second_time_changes_nothing(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.db"
    engine = open_database(str(theirs))
    filled = fill(engine)
    engine.dispose()
    before = theirs.read_bytes()
    ours = str(tmp_path / "ours.db")
    first = merge(ours, theirs)
    assert (first.runs_new, first.runs_known, first.trials_known, first.notes) == (2, 0, 0, ())
    assert first.trials_new > filled.trials
    whole = contents(tmp_path / "ours.db")
    assert whole == contents(theirs)
    again = merge(ours, theirs)
    assert (again.runs_new, again.runs_known, again.runs_advanced, again.trials_new) == (0, 2, 0, 0)
    assert again.trials_known == first.trials_new
    assert contents(tmp_path / "ours.db") == whole
    assert theirs.read_bytes() == before
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".interlace")]
    assert check(ours).ok


def test_a_place_in_the_queue_stays_where_it_is(stored: tuple[Database, Filled], tmp_path: Path) -> None:
    database, _ = stored
    merge(str(tmp_path / "ours.db"), database.path)
    with closing(sqlite3.connect(tmp_path / "ours.db")) as connection:
        assert connection.execute("SELECT count(*) FROM queue_entry").fetchone() == (0,)


def test_what_somebody_is_writing_is_read_with_its_log(bench: Bench, tmp_path: Path) -> None:
    other = bench.build(Description(side="b", runs=[RunState(number=1)]))
    with closing(sqlite3.connect(other, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("UPDATE run SET note = 'in the log only'")
        merge(str(tmp_path / "ours.db"), other)
    with closing(sqlite3.connect(tmp_path / "ours.db")) as connection:
        assert connection.execute("SELECT note FROM run").fetchone() == ("in the log only",)


@pytest.mark.parametrize("version", ["0001", "0004"])
def test_an_older_database_is_migrated_in_a_copy(version: str, tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    with closing(sqlite3.connect(old)) as connection:
        connection.executescript(Path(f"tests/fixtures/databases/{version}.sql").read_text())
    before = old.read_bytes()
    merged = merge(str(tmp_path / "ours.db"), old)
    assert merged.runs_new == 2
    assert old.read_bytes() == before


def test_a_newer_database_is_refused_with_the_remedy(bench: Bench, tmp_path: Path) -> None:
    other = bench.build(Description(side="b"))
    with closing(sqlite3.connect(other, isolation_level=None)) as connection:
        connection.execute("UPDATE interlace_version SET version_num = '9999'")
    with pytest.raises(SchemaError, match=r"written by a newer interlace \(schema 9999, .*; upgrade interlace here"):
        merge(str(tmp_path / "ours.db"), other)


def test_what_is_none_of_ours_is_refused(database: Database, tmp_path: Path) -> None:
    with pytest.raises(TransferError, match="no such file"):
        merge(database.url, tmp_path / "none.db")
    with pytest.raises(TransferError, match="is this database itself"):
        merge(database.url, database.path)
    foreign = tmp_path / "foreign.db"
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE notes (text)")
    with pytest.raises(TransferError, match="holds no interlace database"):
        merge(database.url, foreign)
    (tmp_path / "text.db").write_text("hello")
    with pytest.raises(LocationError, match="is not a SQLite database"):
        merge(database.url, tmp_path / "text.db")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("PRAGMA foreign_keys=OFF; DELETE FROM host", "not sound .broken reference"),
        ("ALTER TABLE trial DROP COLUMN wall_s", "not sound .differs: trial"),
    ],
)
def test_a_broken_database_is_refused_and_nothing_is_changed(
    damage: str, said: str, bench: Bench, database: Database
) -> None:
    other = bench.build(Description(side="b", runs=[RunState(number=1)]))
    with closing(sqlite3.connect(other)) as connection:
        connection.executescript("DROP VIEW trial_flat; " + damage)
    with pytest.raises(SchemaError, match=said):
        merge(database.url, other)
    assert contents(database.path)["run"] == []


ENDLESS = "(WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c)"


@pytest.mark.parametrize(
    ("added", "said"),
    [
        ("CREATE INDEX mine ON trial (wall_s)", "unknown: index mine"),
        ("CREATE INDEX slow ON run (length(hex(zeroblob(4000))))", "unknown: index slow"),
        ("CREATE TRIGGER t AFTER INSERT ON run BEGIN DELETE FROM run; END", "unknown: trigger t"),
        (f"CREATE VIEW more AS SELECT {ENDLESS}", "unknown: view more"),
        ("CREATE TABLE more (x, CHECK (length(hex(randomblob(1000))) > 0))", "unknown: table more"),
        ("CREATE VIRTUAL TABLE more USING fts5(x)", "unknown: table more"),
        ("ALTER TABLE trial ADD COLUMN x AS (length(hex(zeroblob(1000))))", "differs: trial"),
        (f"DROP VIEW trial_flat; CREATE VIEW trial_flat AS SELECT {ENDLESS} AS run_id", "differs: trial_flat"),
    ],
)
def test_a_schema_that_is_not_ours_is_not_read(added: str, said: str, bench: Bench, database: Database) -> None:
    other = bench.build(Description(side="b", runs=[RunState(number=1)]))
    with closing(sqlite3.connect(other)) as connection:
        connection.executescript(added)
    with pytest.raises(SchemaError, match=re.escape(f"{other}: not sound ({said}")):
        merge(database.url, other)
    assert contents(database.path)["run"] == []


def test_a_view_of_an_older_version_is_replaced_before_it_is_asked(tmp_path: Path, database: Database) -> None:
    old = tmp_path / "old.db"
    with closing(sqlite3.connect(old)) as connection:
        connection.executescript(Path("tests/fixtures/databases/0004.sql").read_text())
        connection.executescript(f"DROP VIEW trial_flat; CREATE VIEW trial_flat AS SELECT {ENDLESS} AS run_id")
    merge(database.url, old)
    assert len(contents(database.path)["run"]) == 2
    assert check(database.url).ok


def test_a_version_that_is_a_view_is_not_asked(bench: Bench, database: Database) -> None:
    other = bench.build(Description(side="b", runs=[RunState(number=1)]))
    with closing(sqlite3.connect(other)) as connection:
        connection.executescript(
            f"DROP TABLE interlace_version; CREATE VIEW interlace_version AS SELECT {ENDLESS} AS version_num"
        )
    with pytest.raises(TransferError, match="holds no interlace database"):
        merge(database.url, other)
    assert not check(str(other)).ok


def test_torn_pages_are_refused(tmp_path: Path, database: Database) -> None:
    other = tmp_path / "torn.db"
    engine = open_database(str(other))
    fill(engine)
    engine.dispose()
    content = bytearray(other.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 20_000] = b"\x55" * 20_000
    other.write_bytes(content)
    with pytest.raises(SchemaError, match=r"torn.db: (database disk image is malformed|damaged|not sound)"):
        merge(database.url, other)


# ---- what both sides know ----


def test_shared_things_keep_our_ids_and_learn_what_was_unknown(bench: Bench) -> None:
    ours = bench.build(Description(side="a", runs=[RunState(number=1)]))
    theirs = bench.build(Description(side="b", runs=[RunState(number=2)], bits=4))
    bench.merge(ours, theirs)
    with closing(sqlite3.connect(ours)) as connection:
        assert connection.execute("SELECT id, bits FROM checkpoint").fetchall() == [("a-c", 4)]
        assert connection.execute("SELECT DISTINCT checkpoint_id FROM arm").fetchall() == [("a-c",)]
        assert connection.execute("SELECT DISTINCT experiment_id, host_id FROM run").fetchall() == [("a-e", "a-h")]


def test_shared_things_that_differ_are_reported(bench: Bench) -> None:
    ours, theirs = (bench.build(Description(side=side, bits=bits)) for side, bits in (("a", 8), ("b", 4)))
    assert bench.merge(ours, theirs).notes == ("checkpoint: the same one has bits 8 here and 4 there; ours kept",)


def test_a_run_that_both_know_is_the_union_and_the_later_row(bench: Bench) -> None:
    early, late = [TrialState(round=0), TrialState(round=1)], [TrialState(round=1), TrialState(round=2)]
    ours = bench.build(
        Description(side="a", runs=[RunState(number=1, status="interrupted", heartbeat=1, trials=early)])
    )
    theirs = bench.build(Description(side="b", runs=[RunState(number=1, status="done", heartbeat=2, trials=late)]))
    found = bench.merge(ours, theirs)
    assert (found.runs_known, found.runs_advanced, found.trials_new, found.trials_known) == (1, 1, 1, 1)
    rows = contents(ours)
    assert len(rows["trial"]) == len(rows["generation"]) == len(rows["round"]) == 3
    with closing(sqlite3.connect(ours)) as connection:
        assert connection.execute("SELECT status, host_id FROM run").fetchall() == [("done", "a-h")]


def test_a_stale_backup_changes_nothing_of_a_run_that_went_on(bench: Bench) -> None:
    ours = bench.build(
        Description(side="a", runs=[RunState(number=1, status="running", heartbeat=5, trials=[TrialState(round=0)])])
    )
    before = contents(ours)
    stale = bench.build(Description(side="a", runs=[RunState(number=1, status="interrupted", heartbeat=1)]))
    found = bench.merge(ours, stale)
    assert (found.runs_known, found.runs_advanced) == (1, 0)
    assert contents(ours) == before


def test_a_round_measured_on_both_sides_stays_twice_as_attempts_and_is_reported(bench: Bench) -> None:
    sides = [
        Description(side=side, runs=[RunState(number=1, trials=[TrialState(round=3, owner=side)])]) for side in "ab"
    ]
    ours, theirs = map(bench.build, sides)
    found = bench.merge(ours, theirs)
    assert "rounds 3 were measured on both sides; both are kept, the later attempt counts" in found.notes[0]
    with closing(sqlite3.connect(ours)) as connection:
        attempts = connection.execute("SELECT id, attempt FROM round ORDER BY id").fetchall()
    assert attempts == [("run1-round3-a", 0), ("run1-round3-b", 1)]
    assert bench.merge(ours, theirs).notes == ()


def test_an_exclusion_that_the_other_side_knows_holds(bench: Bench) -> None:
    def side(name: str, reason: str | None) -> Path:
        run = RunState(number=1, trials=[TrialState(round=0, excluded=reason)])
        return bench.build(Description(side=name, runs=[run]))

    ours = side("a", None)
    assert bench.merge(ours, side("b", "hot_start")).notes[0].startswith("1 trials known here are excluded")
    assert bench.merge(ours, side("c", None)).notes == ()
    with closing(sqlite3.connect(ours)) as connection:
        assert connection.execute("SELECT status, excluded_reason FROM trial").fetchall() == [("excluded", "hot_start")]


def test_two_probes_of_one_place_leave_the_later(bench: Bench) -> None:
    ours, theirs = (
        bench.build(Description(side=side, runs=[RunState(number=1, divergence=number)]))
        for side, number in ("a1", "b2")
    )
    assert "1 were made on both sides" in bench.merge(ours, theirs).notes[0]
    with closing(sqlite3.connect(ours)) as connection:
        assert connection.execute("SELECT id FROM divergence").fetchall() == [("run1-divergence2",)]


def test_nothing_is_added_to_a_trial_that_is_here(bench: Bench) -> None:
    run = RunState(number=1, trials=[TrialState(round=0)])
    ours, theirs = (bench.build(Description(side=side, runs=[run])) for side in "ab")
    before = contents(ours)
    with closing(sqlite3.connect(theirs)) as connection:
        connection.execute(
            "INSERT INTO generation"
            " (id, trial_id, position, prompt_id, workload, prompt_class, turn, started_at, flags)"
            " SELECT 'another', trial_id, 1, prompt_id, workload, prompt_class, turn, started_at, flags FROM generation"
        )
        connection.commit()
    bench.merge(ours, theirs)
    assert contents(ours) == before


def test_a_row_of_ours_is_not_claimed_by_another_run(bench: Bench) -> None:
    ours, theirs = (
        bench.build(Description(side=side, runs=[RunState(number=number, trials=[TrialState(round=0)])]))
        for side, number in (("a", 1), ("b", 2))
    )
    with closing(sqlite3.connect(theirs)) as connection:
        connection.executescript(
            "UPDATE trial SET id = 'run1-round0-both-trial';"
            "UPDATE generation SET trial_id = 'run1-round0-both-trial', id = 'another', position = 7;"
        )
    before = contents(ours)
    with pytest.raises(SchemaError, match="trial run1-round0-both-trial belongs to another run here"):
        bench.merge(ours, theirs)
    assert contents(ours) == before


def test_a_trial_of_another_runs_arm_is_refused(bench: Bench) -> None:
    runs = [RunState(number=1), RunState(number=2, trials=[TrialState(round=0)])]
    ours, theirs = bench.build(Description(side="a")), bench.build(Description(side="b", runs=runs))
    with closing(sqlite3.connect(theirs)) as connection:
        connection.execute("UPDATE trial SET arm_id = 'run1-arm'")
        connection.commit()
    with pytest.raises(TransferError, match="column arm_id: is of another run"):
        bench.merge(ours, theirs)


def test_runs_that_cannot_stand_beside_ours_are_left_out_and_reported(bench: Bench) -> None:
    ours = bench.build(Description(side="a", runs=[RunState(number=1), RunState(number=2, source="file")]))
    theirs = bench.build(
        Description(
            side="b",
            runs=[RunState(number=1, plan="other", trials=[TrialState(round=0)]), RunState(number=3, source="file")],
        )
    )
    before = contents(ours)
    found = bench.merge(ours, theirs)
    assert found.notes == (
        "run run1: has another plan here under the same id; the other's is left out",
        "run run3: its file was imported here already, as run run2; left out",
    )
    assert found.runs == ("run2",)
    assert contents(ours) == before


def test_what_does_not_fit_changes_nothing(bench: Bench) -> None:
    """The same id for another thing: no rule is there for what must not happen."""
    ours = bench.build(Description(side="a", runs=[RunState(number=1)]))
    theirs = bench.build(Description(side="a", runs=[RunState(number=2)]))
    with closing(sqlite3.connect(theirs)) as connection:
        connection.execute("UPDATE experiment SET name = 'renamed'")
        connection.commit()
    before = contents(ours)
    with pytest.raises(SchemaError, match=r"does not fit this database .*; nothing was changed"):
        bench.merge(ours, theirs)
    assert contents(ours) == before


# ---- whatever the databases hold ----

TRIALS = st.lists(
    st.builds(
        TrialState,
        round=st.integers(0, 2),
        owner=st.sampled_from(["both", "one", "two"]),
        excluded=st.sampled_from([None, None, "hot_start", "off_mains"]),
    ),
    max_size=4,
    unique_by=lambda trial: (trial.round, trial.owner),
).map(lambda trials: list({trial.round: trial for trial in trials}.values()))
RUNS = st.lists(
    st.builds(
        RunState,
        number=st.integers(0, 2),
        status=st.sampled_from(["planned", "running", "interrupted", "done"]),
        heartbeat=st.sampled_from([None, 1, 2]),
        trials=TRIALS,
        divergence=st.sampled_from([None, 1, 2]),
    ),
    max_size=3,
    unique_by=lambda run: run.number,
)


def descriptions(count: int) -> st.SearchStrategy[list[Description]]:
    return st.lists(RUNS, min_size=count, max_size=count).map(
        lambda each: [Description(side=side, runs=runs) for side, runs in zip("abc", each, strict=False)]
    )


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=descriptions(3))
def test_order_does_not_matter_and_twice_is_once(parts: list[Description], template: Path) -> None:
    with TemporaryDirectory() as name:
        bench = Bench(Path(name), template)
        one, two, three = parts
        there = bench.merged([one, two, three])
        back = bench.merged([three, two, one])
        nested = bench.merged([two])
        bench.merge(nested, bench.merged([three, one]))
        expected = contents(there)
        assert contents(back) == expected
        assert contents(nested) == expected
        again = bench.merge(there, bench.build(two))
        assert (again.runs_new, again.runs_advanced, again.trials_new) == (0, 0, 0)
        assert contents(there) == expected
        ids = {
            trial
            for part in parts
            for run in part.runs
            for trial in ((run.number, t.round, t.owner) for t in run.trials)
        }
        assert len(expected["trial"]) == len(ids)


# ---- network disks ----


@pytest.fixture
def share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is taken for a network disk."""
    folder = tmp_path / "share"
    folder.mkdir()
    mounts = [("/", "ext4"), (str(folder.resolve()), "nfs4")]
    monkeypatch.setattr("db.location._mounts", lambda: mounts)
    return folder


def test_a_network_disk_takes_and_gives_plain_files(share: Path, tmp_path: Path) -> None:
    database = tmp_path / "ours.db"
    engine = open_database(str(database))
    filled = fill(engine)
    engine.dispose()
    saved = backup(str(database), share / "saved.db").path
    assert merge(str(tmp_path / "restored.db"), saved).runs_new == 2
    moved = export_run(str(database), filled.last_run, share / "run.zip").path
    assert import_run(str(tmp_path / "taken.db"), moved).runs_new == 1
    with pytest.raises(NetworkDiskError):
        open_database(str(share / "there.db"))
    assert sorted(path.name for path in share.iterdir()) == ["run.zip", "saved.db"]


def test_a_database_in_use_on_a_network_disk_is_not_read(share: Path, bench: Bench, tmp_path: Path) -> None:
    other = bench.build(Description(side="b", runs=[RunState(number=1)])).rename(share / "other.db")
    share.joinpath("other.db-wal").write_bytes(b"changes")
    with pytest.raises(TransferError, match="is open on a network disk; make a copy where it is in use"):
        merge(str(tmp_path / "ours.db"), other)


@pytest.mark.parametrize("order", ["cba", "abc", "bca"])
def test_attempts_of_several_sides_are_numbered_by_their_times(bench: Bench, order: str) -> None:
    """Whichever comes first: an earlier attempt takes the number of a later one, which is given another."""
    runs = {side: RunState(number=1, trials=[TrialState(round=3, owner=side)]) for side in order}
    parts = [Description(side=side, runs=[run]) for side, run in runs.items()]
    with closing(sqlite3.connect(bench.merged(parts))) as connection:
        attempts = connection.execute("SELECT id, attempt FROM round ORDER BY id").fetchall()
    assert attempts == [("run1-round3-a", 0), ("run1-round3-b", 1), ("run1-round3-c", 2)]
