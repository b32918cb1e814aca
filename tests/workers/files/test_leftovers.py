"""Unfinished files and folders of killed processes: told from those that somebody is writing, named and removed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from workers.files import atomic
from workers.files.atomic import create_file, unfinished_folder, write_file
from workers.files.leftovers import find_abandoned, working_folder

WRITER = """
import sys
from pathlib import Path
from workers.files.atomic import replacing
from workers.files.leftovers import working_folder
place = Path(sys.argv[1])
with replacing(place / "report.html") as stream, working_folder(place, "backup") as folder:
    stream.write(b"half")
    stream.flush()
    (folder / "backup.db").write_bytes(b"123456")
    print("ready", flush=True)
    sys.stdin.read()
"""


def aged(place: Path) -> None:
    """Make everything in a folder an hour old."""
    for each in place.iterdir():
        os.utime(each, (each.stat().st_mtime - 3600,) * 2)


def test_what_a_killed_process_left_is_found_and_removed_and_what_a_live_one_writes_is_not(tmp_path: Path) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], **pipes) as writer:  # type: ignore[call-overload]
        writer.stdout.readline()
        aged(tmp_path)
        assert find_abandoned(tmp_path) == []
        write_file(tmp_path / "other", b"")
        assert len(list(tmp_path.iterdir())) == 3
        writer.send_signal(signal.SIGKILL)
    assert sorted(each.size_bytes for each in find_abandoned(tmp_path)) == [4, 6]
    with working_folder(tmp_path, "export") as folder:
        assert sorted(each.name for each in tmp_path.iterdir()) == [folder.name, "other"]
    assert [each.name for each in tmp_path.iterdir()] == ["other"]


def test_other_peoples_names_stay(tmp_path: Path) -> None:
    names = [".notes.unfinished", ".a.0123456789abcdef.unfinishedx", "a.0123456789abcdef.unfinished", ".interlace-x"]
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / ".a.0123456789abcdef.unfinished").symlink_to(tmp_path / names[0])
    aged(tmp_path)
    write_file(tmp_path / "report.html", b"")
    assert len(list(tmp_path.iterdir())) == len(names) + 2


def test_a_checkpoint_that_is_being_made_stays(tmp_path: Path) -> None:
    with unfinished_folder(tmp_path / "smollm2") as folder:
        aged(tmp_path)
        write_file(tmp_path / "manifest", b"")
        assert folder.is_dir()


def test_a_new_file_never_bears_its_name_before_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, synchronise = tmp_path / "night.md", os.fsync

    def fsync(descriptor: int) -> None:
        assert not path.exists() or path.read_bytes() == b"content"
        synchronise(descriptor)

    monkeypatch.setattr(atomic.os, "fsync", fsync)
    create_file(path, b"content")
    with pytest.raises(FileExistsError):
        create_file(path, b"other")
    assert ([each.name for each in tmp_path.iterdir()], path.read_bytes()) == (["night.md"], b"content")


def test_a_disk_without_hard_links_takes_a_new_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    create_file(tmp_path / "night.md", b"content")
    with pytest.raises(FileExistsError):
        create_file(tmp_path / "night.md", b"other")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("night.md", b"content")]
