"""Files that appear whole under their name, and follow nothing that somebody else put there."""

import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from workers.files import atomic, private
from workers.files.atomic import copy_into, create_file, replacing, unfinished_folder, write_file
from workers.files.private import UnsafeTargetError, make_private_folder, open_private, refuse_unsafe, tighten


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """The umask of somebody who shares everything."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def names_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_a_file_is_whole_and_for_its_owner_alone(tmp_path: Path) -> None:
    write_file(tmp_path / "a", b"content")
    assert ((tmp_path / "a").read_bytes(), mode(tmp_path / "a")) == (b"content", 0o600)
    write_file(tmp_path / "a", b"more")
    assert (tmp_path / "a").read_bytes() == b"more"
    assert names_in(tmp_path) == ["a"]


def test_what_was_there_stays_when_writing_fails(tmp_path: Path) -> None:
    write_file(tmp_path / "a", b"before")
    with pytest.raises(ValueError, match="of closed file"), replacing(tmp_path / "a") as stream:
        stream.close()  # flushing it fails
    assert ((tmp_path / "a").read_bytes(), names_in(tmp_path)) == (b"before", ["a"])


def link(path: Path) -> None:
    (path.parent / "precious").write_bytes(b"precious")
    path.symlink_to(path.parent / "precious")


def dangling(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere")


def bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 7))
    except PermissionError:
        pytest.skip("only root can make a device")


UNSAFE: tuple[tuple[Callable[[Path], None], str], ...] = (
    (link, "a symbolic link is there"),
    (dangling, "a symbolic link is there"),
    (os.mkfifo, "a pipe is there"),
    (os.mkdir, "a folder is there"),
    (bound, "a socket is there"),
    (device, "a device is there"),
)


@pytest.mark.parametrize(("put", "words"), UNSAFE)
def test_what_is_no_regular_file_is_refused_and_stays(
    put: Callable[[Path], None], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path may be short only
    place = Path("place")
    put(place)
    before = place.lstat()
    attempts: tuple[Callable[[], object], ...] = (
        lambda: refuse_unsafe(place),
        lambda: write_file(place, b"x"),
        lambda: open_private(place, os.O_RDWR | os.O_CREAT),
        lambda: open_private(place, os.O_RDONLY),
    )
    for attempt in attempts:
        with pytest.raises(UnsafeTargetError, match=words):
            attempt()
    with pytest.raises(FileExistsError):
        create_file(place, b"x")
    assert (place.lstat().st_ino, place.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert not Path("nowhere").exists()
    assert not Path("precious").exists() or Path("precious").read_bytes() == b"precious"


def test_no_name_can_be_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever guesses the name all the same finds it created exclusively: the link is not followed."""
    (tmp_path / "precious").write_bytes(b"precious")
    names = []
    for _ in range(2):
        with replacing(tmp_path / "a"):
            names += [name for name in names_in(tmp_path) if name.endswith(".unfinished")]
    assert len(set(names)) == 2
    monkeypatch.setattr(atomic.secrets, "token_hex", lambda _: "guessed")
    (tmp_path / ".b.guessed.unfinished").symlink_to(tmp_path / "precious")
    with pytest.raises(FileExistsError):
        write_file(tmp_path / "b", b"x")
    assert (tmp_path / "precious").read_bytes() == b"precious"


def test_a_file_that_must_be_new_is_left_alone_where_one_is(tmp_path: Path) -> None:
    create_file(tmp_path / "a", b"first")
    with pytest.raises(FileExistsError):
        create_file(tmp_path / "a", b"second")
    assert ((tmp_path / "a").read_bytes(), mode(tmp_path / "a")) == (b"first", 0o600)


def test_a_copy_is_private_whatever_its_source_is(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"x" * 3_000_000)
    copy_into(tmp_path / "source", tmp_path / "copy")
    assert ((tmp_path / "copy").stat().st_size, mode(tmp_path / "copy")) == (3_000_000, 0o600)


def test_folders_are_private_and_existing_ones_are_left_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o755)
    make_private_folder(tmp_path / "shared" / "a" / "b")
    assert [mode(tmp_path / each) for each in ("shared", "shared/a", "shared/a/b")] == [0o755, 0o700, 0o700]
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        make_private_folder(tmp_path / "file")


def test_an_open_file_is_private_and_an_old_one_is_tightened(tmp_path: Path) -> None:
    (tmp_path / "old").touch(mode=0o664)
    for name in ("old", "new"):
        os.close(open_private(tmp_path / name, os.O_RDWR | os.O_CREAT))
        assert mode(tmp_path / name) == 0o600


def test_only_what_is_ours_is_tightened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / name).touch(mode=0o644)
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    tighten(tmp_path / "ours")
    tighten(tmp_path / "link")
    tighten(tmp_path / "nothing")
    monkeypatch.setattr(private.os, "geteuid", lambda: (tmp_path / "theirs").stat().st_uid + 1)
    tighten(tmp_path / "theirs")
    assert [mode(tmp_path / name) for name in ("ours", "theirs")] == [0o600, 0o644]


def test_an_unfinished_folder_goes_unless_it_is_moved(tmp_path: Path) -> None:
    (tmp_path / ".out.0123456789abcdef.unfinished").mkdir()  # what a killed process leaves
    (tmp_path / ".out.v2.0123456789abcdef.unfinished").mkdir()  # another one's
    with unfinished_folder(tmp_path / "out") as made:
        assert (mode(made), made.parent) == (0o700, tmp_path)
        (made / "file").touch()
    assert names_in(tmp_path) == [".out.v2.0123456789abcdef.unfinished"]
    with unfinished_folder(tmp_path / "out") as made:
        made.rename(tmp_path / "out")
    assert (tmp_path / "out").is_dir()
