"""Files that other people made: whatever is in one, it is a clear line, or a run that every command shows.

The large version, with figures: benchmarks/hostile_files.py.
"""

import json
import os
import random
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from db.errors import TransferError
from db.transfer.run_file import import_run
from tests.mutated import Desk, Genuine, change_json, change_numbers, every_column, flip, make_genuine, set_value

COLUMNS = sorted(every_column())
JSON_COLUMNS = (
    ("run", "plan"),
    ("round", "order"),
    ("generation", "steps"),
    ("comparison", "reasons"),
    ("audit", "best"),
)
NUMBERS = (("generation", "completion_tokens"), ("generation", "ttft_s"), ("trial", "sequence"), ("round", "index"))


@pytest.fixture(scope="module")
def genuine(tmp_path_factory: pytest.TempPathFactory) -> Genuine:
    """A small finished run, exported; and a database that holds another one like it."""
    folder = tmp_path_factory.mktemp("genuine")
    return make_genuine(folder)


@pytest.fixture
def desk(genuine: Genuine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INTERLACE_DB", str(tmp_path / "ours.db"))
    return Desk(genuine, tmp_path)


def refusal(desk: Desk, table: str, column: str, value: str) -> str:
    packed = desk.genuine.changed(
        lambda connection: connection.execute(f'UPDATE "{table}" SET "{column}" = {value} WHERE rowid = 1'),
        desk.folder / "scratch.db",
    )
    file = desk.folder / "their.interlace"
    file.write_bytes(packed)
    with pytest.raises(TransferError) as caught:
        import_run(str(desk.folder / "fresh.db"), file)
    line = str(caught.value)
    assert line.startswith(f"{file}: ")
    assert len(line.splitlines()) == 1
    return line


@pytest.mark.parametrize(
    ("table", "column", "value", "said"),
    [
        ("arm", "name", "X'ff00fe'", "column name: is not text"),
        ("generation", "text", "CAST(X'61c328ff' AS TEXT)", "column text: is not UTF-8"),
        ("run", "created_at", "'not a date'", "column created_at: is not a time such as"),
        ("trial", "started_at", "'2026-02-30 00:00:00.000000'", "column started_at: is not a time that exists"),
        ("trial", "started_at", "'9999-12-31 23:59:59.999999'", "column started_at: lies in the future"),
        ("generation", "decode_tps", "9e999", "column decode_tps: is not a number from 0"),
        ("generation", "ttft_s", "-5", "column ttft_s: is not a number from 0"),
        ("generation", "completion_tokens", "1 << 62", "column completion_tokens: is not a whole number from 0"),
        ("trial", "is_aa", "2", "column is_aa: is not true or false"),
        ("generation", "flags", "'{}'", "column flags: does not hold a list of texts"),
        ("generation", "flags", "'[NaN]'", "column flags: NaN in JSON is not a number"),
        ("generation", "steps", "'[[1, 2]]'", "column steps: does not hold a list of [drafted, accepted, committed]"),
        ("host", "detail", '\'{"a": "\\ud800"}\'', "column detail: a lone surrogate in JSON is not text"),
        ("host", "detail", "'[' || replace(hex(zeroblob(300)), '0', '9') || ']'", "in JSON is beyond 64 bits"),
        ("arm", "name", "replace(hex(zeroblob(5000)), '0', 'A') || name", "characters, at most 1,000 are read"),
        ("generation", "stamps_of", "'word'", "column stamps_of: is not one of token, chunk"),
        ("run", "rounds", "7", "column rounds: is 7, and 6 in its plan"),
        ("arm", "is_control", "1 - is_control", "its control is not that of its plan"),
    ],
)
def test_a_value_that_our_code_does_not_write_is_named_with_its_place(
    desk: Desk, table: str, column: str, value: str, said: str
) -> None:
    assert said in refusal(desk, table, column, value)


def test_a_rate_that_contradicts_its_stamps_is_left_out_and_reported(desk: Desk) -> None:
    packed = desk.genuine.changed(
        lambda connection: connection.execute(
            "UPDATE generation SET decode_tps = decode_tps * 10, end_to_end_tps = end_to_end_tps * 0.5,"
            " inter_token_p95_s = 9.0 WHERE rowid = 1"
        ),
        desk.folder / "scratch.db",
    )
    (desk.folder / "their.interlace").write_bytes(packed)
    merged = import_run(str(desk.folder / "fresh.db"), desk.folder / "their.interlace")
    assert merged.notes == ("1 generations: rates that their stamps contradict are left out (rate_contradicts_stamps)",)
    with closing(sqlite3.connect(desk.folder / "fresh.db")) as connection:
        rows = connection.execute(
            "SELECT decode_tps, end_to_end_tps, inter_token_p95_s, ttft_s IS NULL FROM generation"
            " WHERE flags LIKE '%rate_contradicts_stamps%'"
        ).fetchall()
    assert rows == [(None, None, None, 0)]


def test_a_genuine_file_is_taken_as_it_is(desk: Desk) -> None:
    found = desk.attempt(desk.genuine.packed(desk.genuine.content))
    assert (found.taken, found.problems) == (True, ())
    assert import_run(str(desk.folder / "fresh.db"), desk.folder / "their.interlace").notes == ()


def test_a_file_that_would_fill_the_disk_is_not_unpacked(desk: Desk) -> None:
    file = desk.folder / "bomb.interlace"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("run.db", "w") as content:
            for _ in range(30):
                content.write(bytes(1_000_000))
        archive.writestr("manifest.json", json.dumps(desk.genuine.manifest | {"size_bytes": 30_000_000}))
    with pytest.raises(TransferError, match=r"would unpack to 30,000,000 bytes from [\d,]+, as no export does"):
        import_run(str(desk.folder / "fresh.db"), file)


def test_what_is_not_a_file_is_not_waited_for(desk: Desk) -> None:
    os.mkfifo(desk.folder / "pipe")
    for command in ("import", "merge"):
        error = desk.run("db", command, "pipe").exception
        assert "is not a regular file" in str(error)
    assert "is not a regular file" in str(desk.run("status", "--db", "pipe").exception)


@pytest.mark.nightly
def test_each_column_at_a_wrong_type_is_a_line_or_is_shown(desk: Desk) -> None:
    chance = random.Random(12)
    shown = 0
    for table, column, value in chance.sample(COLUMNS, 60):
        packed = desk.genuine.changed(set_value(table, column, value), desk.folder / "scratch.db")
        found = desk.attempt(packed, thorough=shown < 1)
        shown += found.taken
        assert found.problems == (), (table, column, value)


@pytest.mark.nightly
def test_numbers_and_json_of_their_own_type_are_a_line_or_are_shown(desk: Desk) -> None:
    chance = random.Random(13)
    changes = [change_json(*each, chance) for each in JSON_COLUMNS * 3] + [
        change_numbers(*each, chance) for each in NUMBERS * 2
    ]
    shown = 0
    for number, change in enumerate(changes):
        found = desk.attempt(desk.genuine.changed(change, desk.folder / "scratch.db"), thorough=shown < 1)
        shown += found.taken
        assert found.problems == (), number


def test_turned_bytes_are_a_line_or_are_shown(desk: Desk) -> None:
    chance = random.Random(14)
    whole = desk.genuine.packed(desk.genuine.content)
    for number in range(30):
        packed = flip(whole, chance) if number % 2 else desk.genuine.packed(flip(desk.genuine.content, chance))
        found = desk.attempt(packed, thorough=False)
        assert found.problems == (), number
