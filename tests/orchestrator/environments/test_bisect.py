"""`interlace bisect` from end to end: a package of twelve releases, one of which decodes 5 % slower."""

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra.core.config_store import ConfigStore
from packaging.version import Version

from orchestrator.configuration import checks, engines
from orchestrator.environments.releases import ordered, releases_between
from orchestrator.errors import InputError

from .command_line import interlace
from .local_index import add_installed, add_wheel, use_index

ENGINE = """
from workers.engines.simulated import Simulated as Base

VERSION, EFFECT = {version!r}, {effect}


class Simulated(Base):
    def __init__(self, **arguments):
        settings = dict(arguments.pop("settings"))
        settings["effect"] = settings.get("effect", 1.0) * EFFECT
        super().__init__(settings=settings, **arguments)
"""
ENTRY = "[interlace.engines]\npaced = paced:Simulated\n"
OVERRIDES = (
    "engine=paced",
    "checkpoint=dummy-tiny",
    "gate=none",
    "workload=quick",
    "workload.max_tokens=16",
    "engine.drift=saturating",
    "design.interleave_by=workload",
    "design.probe=false",
)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Twelve releases of an engine in a folder of wheels; the newest is installed for this process too."""
    index = use_index(tmp_path, monkeypatch)
    monkeypatch.setattr("orchestrator.environments.resolve.roots", lambda needed: ("psutil",))
    monkeypatch.setenv("INTERLACE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("INTERLACE_DB", str(tmp_path / "x.db"))
    add_installed(index, "psutil")
    for number in range(12):
        add_release(index, f"1.{number}", 1.0 if number < 7 else 0.95)
    site = tmp_path / "site"
    shutil.unpack_archive(index / "paced-1.11-py3-none-any.whl", site, "zip")
    monkeypatch.syspath_prepend(str(site))
    forget()
    yield index
    monkeypatch.undo()  # the package leaves the path before engines are looked up again
    forget()
    repo = ConfigStore.instance().repo
    for group in (repo.get("engine", {}), repo.get("schema", {}).get("engine", {})):
        group.pop("paced.yaml", None)


def forget() -> None:
    """Engines are looked up once in a process."""
    engines._engines.cache_clear()  # noqa: SLF001
    engines.register_engines.cache_clear()
    checks.all_settings.cache_clear()


def add_release(index: Path, version: str, effect: float, *, requires: tuple[str, ...] = ()) -> None:
    source = ENGINE.format(version=version, effect=effect)
    add_wheel(index, "paced", version, files={"paced.py": source}, entry_points=ENTRY, requires=requires)


def test_releases_come_from_the_index_in_their_order(index: Path) -> None:
    assert releases_between("paced", "1.8", "1.11") == ["1.8", "1.9", "1.10", "1.11"]
    listed = interlace("bisect", "paced", "1.8", "1.11", "--list")
    assert "1.8, 1.9, 1.10, 1.11" in listed.output
    with pytest.raises(InputError, match="older release first"):
        releases_between("paced", "1.11", "1.8")
    with pytest.raises(InputError, match="nothere"):
        releases_between("nothere", "1", "2")
    with pytest.raises(InputError, match="not a version"):
        releases_between("paced", "old", "2")
    assert interlace("bisect", "-r evil", "1", "2").exit_code == 2


def test_previews_count_only_between_previews() -> None:
    listed = ["1.0", "1.1rc1", "1.1", "broken version", "2.0"]
    assert ordered(listed, Version("1.0"), Version("2.0")) == ["1.0", "1.1", "2.0"]
    assert ordered(listed, Version("1.0rc1"), Version("1.1")) == ["1.0rc1", "1.0", "1.1rc1", "1.1"]
    assert ordered([], Version("0.31.0"), Version("0.31.3")) == ["0.31.0", "0.31.3"]  # withdrawn, and still named


@pytest.mark.slow
def test_the_release_is_named_and_the_search_goes_on_from_the_database(index: Path, tmp_path: Path) -> None:
    picture = tmp_path / "releases.svg"
    add_release(index, "1.6", 1.0, requires=("not-there==1",))  # cannot be installed: skipped
    words = ("bisect", "paced", "1.4", "1.9", *OVERRIDES, "--quiet", "--picture", str(picture))
    done = interlace(*words)
    assert done.exit_code == 0, f"{done.output} {done.exception!r}"
    assert "paced 1.6 is skipped" in done.output
    assert "the speed changed in one of: 1.6, 1.7" in done.output
    assert "last release like 1.4: 1.5" in done.output
    assert picture.read_text().startswith("<?xml")

    add_release(index, "1.6", 1.0)
    runs = stored(tmp_path)
    again = interlace(*words)
    assert again.exit_code == 0, f"{again.output} {again.exception!r}"
    assert "first release in which the speed changed: paced 1.7" in again.output
    assert set(runs) < set(stored(tmp_path)), "finished steps were not measured again"
    assert len(stored(tmp_path)) == len(runs) + 1


@pytest.mark.slow
@pytest.mark.nightly  # a whole search
def test_equal_releases_are_nothing_to_bisect(index: Path, tmp_path: Path) -> None:
    done = interlace("bisect", "paced", "1.0", "1.5", *OVERRIDES, "--quiet")
    assert done.exit_code == 0, f"{done.output} {done.exception!r}"
    assert "nothing to bisect" in done.output
    assert len(stored(tmp_path)) == 1


@pytest.mark.slow
def test_a_search_out_of_time_is_incomplete_and_goes_on(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datetime as dt

    monkeypatch.setattr(
        "orchestrator.queue.clock_times.next_time", lambda text, now: dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    )
    words = ("bisect", "paced", "1.6", "1.7", *OVERRIDES, "--quiet")
    done = interlace(*words, "--until", "07:00")
    assert done.exit_code == 3
    assert "the same command continues" in str(done.exception)
    assert "first release in which the speed changed: paced 1.7" in interlace(*words).output


@pytest.mark.slow
def test_a_newer_and_slower_release_ends_a_nightly_job_with_1(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.environments.resolve.roots", lambda needed: ("psutil", *needed))
    older = tmp_path / "older"
    shutil.unpack_archive(index / "paced-1.0-py3-none-any.whl", older, "zip")
    monkeypatch.setenv("PYTHONPATH", str(older))  # what is installed here
    words = ("run", "environment=current,latest", *OVERRIDES, "design.rounds=8", "--quiet")
    done = interlace(*words, "--fail-on", "slower")
    assert done.exit_code == 1, f"{done.output} {done.exception!r}"
    assert "latest" in done.output
    assert interlace("audit", "last", "--fail-on", "faster").exit_code == 0


@pytest.mark.parametrize("line", ["environment=latest", "design.rounds=8", "experiment=mine", "sweep=quickstart"])
def test_what_a_bisection_sets_itself_is_refused(index: Path, line: str) -> None:
    done = interlace("bisect", "paced", "1.6", "1.7", line)
    assert done.exit_code == 2
    assert "leave it out" in str(done.exception) or "--rounds" in str(done.exception)


def test_more_than_one_configuration_is_refused(index: Path) -> None:
    done = interlace("bisect", "paced", "1.6", "1.7", *OVERRIDES, "engine.decode_tps=100,200")
    assert done.exit_code == 2
    assert "make more arms" in str(done.exception)


def stored(folder: Path) -> list[str]:
    with sqlite3.connect(folder / "x.db") as connection:
        return [row[0] for row in connection.execute("SELECT id FROM run ORDER BY id")]


@pytest.mark.slow
def test_a_queued_search_is_executed_by_work_and_goes_on_after_a_kill_between_its_steps(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("bisect", "paced", "1.5", "1.8", *OVERRIDES)
    queued = interlace(*words, "--queue")
    assert queued.exit_code == 0, f"{queued.output} {queued.exception!r}"
    (first,) = stored(tmp_path)
    assert f"queued: run {first} of bisect paced 1.5 1.8" in queued.output
    assert interlace(*words, "--queue").exit_code == 0
    assert stored(tmp_path) == [first], "the same search waits only once"
    assert "bisect paced 1.5" in interlace("queue", "list").output

    with monkeypatch.context() as patch:
        patch.setattr("orchestrator.commands.queued_searches.continue_search", interrupted)
        assert interlace("work", "--quiet").exception is not None
    assert stored(tmp_path) == [first]

    database = tmp_path / "x.db"
    monkeypatch.setenv("INTERLACE_DB", str(tmp_path / "other.db"))
    done = interlace("work", "--quiet", "--db", str(database))
    monkeypatch.setenv("INTERLACE_DB", str(database))
    assert done.exit_code == 0, f"{done.output} {done.exception!r}"
    assert not (tmp_path / "other.db").exists()
    flat = " ".join(done.output.split())
    assert "first release in which the speed changed: paced 1.7" in flat
    newest = max((tmp_path / "nights").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    assert "last release like 1.5: 1.6" in newest.read_text(encoding="utf-8")
    assert not list((tmp_path / "bisections").iterdir())
    assert "all steps are measured" in interlace(*words, "--queue").output


def interrupted(database: object, entry: object) -> list[str]:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_a_search_whose_step_is_cancelled_leaves_the_queue(index: Path, tmp_path: Path) -> None:
    words = ("bisect", "paced", "1.6", "1.7", *OVERRIDES, "--queue")
    assert interlace(*words, "--until", "07:00").exit_code == 2
    interlace(*words)
    (run_id,) = stored(tmp_path)
    assert interlace("queue", "cancel", run_id).exit_code == 0
    done = interlace("work", "--quiet")
    assert "was cancelled" in done.output
    assert stored(tmp_path) == [run_id]
    assert not list((tmp_path / "bisections").iterdir())
    assert "queued" in interlace(*words).output
    assert len(stored(tmp_path)) == 2
    assert interlace("work", "--quiet").exit_code == 0, "the search that was added again is not the cancelled one"
