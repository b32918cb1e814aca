"""The places where the database can be and where it cannot."""

import datetime as dt
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from db import location, models
from db.errors import LocationError, NetworkDiskError
from db.location import check_disk, check_file, database_path, database_url, file_system_type
from db.query import run_query
from db.session import open_database, open_existing, transaction

LINUX_MOUNTS = """\
/dev/vda / ext4 rw,relatime 0 0
nas:/export /home nfs4 rw,relatime 0 0
tmpfs /home/me/scratch\\040space tmpfs rw 0 0
host /mnt/cloud fuse.sshfs rw 0 0
"""
MACOS_MOUNTS = """\
/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
/dev/disk3s5 on /System/Volumes/Data (apfs, local, journaled, nobrowse)
//me@nas.local/share on /Volumes/my share (smbfs, nodev, nosuid, mounted by me)
map auto_home on /System/Volumes/Data/home (autofs, automounted, nobrowse)
"""


def test_the_explicit_one_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INTERLACE_DB", f"sqlite:///{tmp_path}/env.db")
    assert database_url(f"sqlite:///{tmp_path}/mine.db") == f"sqlite:///{tmp_path}/mine.db"
    assert database_url(None) == f"sqlite:///{tmp_path}/env.db"


def test_without_either_it_lies_in_the_users_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("INTERLACE_DB", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    url = database_url(None)
    assert url.startswith("sqlite:////")
    assert url.endswith("interlace/interlace.db")


@pytest.mark.parametrize("text", ["results.db", "sqlite:///results.db"])
def test_a_path_becomes_absolute(text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert database_url(text) == f"sqlite:///{tmp_path}/results.db"


NAMES = (
    "u%25rl",
    "qu?est",
    "per%20cent",
    "100%",
    "ha#sh",
    "sp ace",
    "q'uo\"te",
    "semi;colon",
    "amp&x=1",
    "ün→icode",
    "new\nline",
    "a@b:c",
)


@pytest.mark.parametrize("name", [*NAMES, "not-utf8-\udcff"])
def test_a_path_is_taken_letter_by_letter(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"{name}.db"
    monkeypatch.setenv("INTERLACE_DB", str(path))
    url = database_url(None)
    assert database_path(url) == database_path(str(path)) == path
    assert database_url(url) == url
    open_database(url).dispose()
    assert [each.name for each in tmp_path.iterdir() if not each.name.endswith(("-wal", "-shm"))] == [path.name]
    with open_existing(url).connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM run").scalar() == 0
    assert run_query(url, "SELECT count(*) FROM run", {}).rows == ((0,),)


def test_a_database_behind_a_link_is_private_too(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "data" / "real.db")
    with open_database(str(tmp_path / "link.db")).connect():
        modes = {each.name: each.stat().st_mode & 0o777 for each in (tmp_path / "data").iterdir()}
    assert modes == dict.fromkeys(("real.db", "real.db-wal", "real.db-shm"), 0o600)


def test_a_url_has_percent_escapes_and_no_parameters(tmp_path: Path) -> None:
    assert database_path(f"sqlite:///{tmp_path}/a%20b%3Fc%25d#e.db") == tmp_path / "a b?c%d#e.db"
    assert database_path(f"sqlite+pysqlite:///{tmp_path}/a.db") == tmp_path / "a.db"
    with pytest.raises(LocationError, match="%3F"):
        database_path(f"sqlite:///{tmp_path}/a?b.db")


@pytest.mark.parametrize("text", ["~nobody-of-this-name/x.db", "./a://b.db"])
def test_an_odd_path_is_a_path(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert database_path(text) == tmp_path / text


def test_the_home_folder_is_filled_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert database_path("sqlite:///~/results.db") == tmp_path / "results.db"
    assert database_path("~/results.db") == tmp_path / "results.db"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://me:secret@host/db", "only SQLite files"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite://results.db", "three slashes"),
        ("sqlite:///x.db?mode=ro", "takes no parameters"),
        ("sqlite:///file:x.db?uri=true", "takes no parameters"),
        ("sqlite:x.db", "not a URL"),
    ],
)
def test_what_names_no_file_is_refused(url: str, message: str) -> None:
    with pytest.raises(LocationError, match=message) as caught:
        database_path(url)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocationError, match="is a folder"):
        check_file(tmp_path)


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes, and they are long enough")
    with pytest.raises(LocationError, match=r"notes\.txt: is not a SQLite database"):
        check_file(path)


def test_an_unreadable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        error = sqlite3.OperationalError("unable to open database file")
        error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
        raise error

    (tmp_path / "x.db").write_bytes(b"")
    monkeypatch.setattr(sqlite3, "connect", refuse)
    with pytest.raises(LocationError, match=r"cannot be read \(unable to open"):
        check_file(tmp_path / "x.db")


_LOOK = """
import sys
from sqlalchemy import text
from db.session import open_existing, read_only
engine = open_existing(sys.argv[1])
with read_only(engine) as session:
    print(session.execute(text("SELECT count(*) FROM experiment")).scalar_one())
engine.dispose()
"""


def test_looking_at_an_open_database_again_loses_nothing(tmp_path: Path) -> None:
    """A process that opens and closes the file by other means than SQLite's drops its own locks: the next reader that
    leaves then removes the log, and what is committed afterwards is lost with the process.
    """
    url = f"sqlite:///{tmp_path / 'x.db'}"
    engine = open_database(url)
    for count in (1, 2):
        with transaction(engine) as session:
            session.add(models.Experiment(name=f"{count}", created_at=dt.datetime.now(dt.UTC)))
        check_file(tmp_path / "x.db")
        open_existing(url).dispose()
        seen = subprocess.run([sys.executable, "-c", _LOOK, url], capture_output=True, text=True, check=True)
        assert int(seen.stdout) == count
    engine.dispose()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LocationError, match="no folder there"):
        location.make_folder(tmp_path / "file" / "below" / "x.db")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/x.db", "ext4"),
        ("/homeless/x.db", "ext4"),
        ("/home/me/x.db", "nfs4"),
        ("/home/me/scratch space/x.db", "tmpfs"),
        ("/mnt/cloud/deep/x.db", "fuse.sshfs"),
    ],
)
def test_the_innermost_mount_of_linux_counts(path: str, kind: str) -> None:
    assert file_system_type(Path(path), location.parse_linux_mounts(LINUX_MOUNTS)) == kind


@pytest.mark.parametrize(("path", "kind"), [("/Users/me/x.db", "apfs"), ("/Volumes/my share/x.db", "smbfs")])
def test_the_innermost_mount_of_macos_counts(path: str, kind: str) -> None:
    assert file_system_type(Path(path), location.parse_macos_mounts(MACOS_MOUNTS)) == kind


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs"])
def test_a_network_disk_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(location, "_mounts", lambda: [("/", "ext4"), (str(tmp_path), kind)])
    with pytest.raises(NetworkDiskError, match=f"network file system \\({kind}\\).*INTERLACE_DB"):
        check_disk(tmp_path / "x.db")


def test_this_machines_disk_is_local(tmp_path: Path) -> None:
    check_disk(tmp_path / "x.db")
