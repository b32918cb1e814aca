"""Environments are resolved, locked and built by uv and by pip, from a folder of wheels and without a network."""

import multiprocessing
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.environments import store
from orchestrator.environments.baseline import current
from orchestrator.environments.requirements import read
from orchestrator.environments.resolve import Request, resolve
from orchestrator.environments.tools import Pip, Tool, failure, tool
from orchestrator.errors import InputError, RefusedError
from orchestrator.plan import Lock

from .local_index import add_wheel, use_index

pytestmark = pytest.mark.slow  # each builds environments

INSTALLED = {"app": "1.0", "lib": "1.0", "other": "1.0"}
BOTH = pytest.mark.parametrize("which", ["uv", "pip"])


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("orchestrator.environments.resolve.roots", lambda needed: ("app", "other"))
    index = use_index(tmp_path, monkeypatch)
    for version, needs in (("1.0", "lib>=1"), ("1.1", "lib>=1"), ("2.0", "lib>=2")):
        add_wheel(index, "app", version, requires=[needs])
    for version in ("1.0", "2.0", "2.1"):
        add_wheel(index, "lib", version)
    for version in ("1.0", "2.0"):
        add_wheel(index, "other", version)
    return index


def chosen(which: str, monkeypatch: pytest.MonkeyPatch) -> Tool:
    if which == "pip":
        monkeypatch.setenv("INTERLACE_UV", "")
    found = tool()
    if found.name != which:
        pytest.skip(f"no {which} here")
    return found


def request(*packages: str, python: str | None = None) -> Request:
    """A request beside an environment that holds app 1.0, lib 1.0 and other 1.0."""
    return Request(
        name=packages[0],
        named=tuple(read(each) for each in packages),
        python=python,
        newest=False,
        needed=(),
        keep=INSTALLED,
        installed=INSTALLED,
        platform=current().platform,
    )


def versions(lock: Lock) -> dict[str, str | None]:
    return {package.name: package.version for package in lock.packages}


@BOTH
def test_only_what_is_named_moves(which: str, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = resolve(request("app==1.1"), chosen(which, monkeypatch))
    assert versions(lock) == {"app": "1.1", "lib": "1.0", "other": "1.0"}
    assert lock.moved == ()
    assert [package.name for package in lock.packages if package.named] == ["app"]
    assert {package.tag for package in lock.packages} == {"py3-none-any"}
    assert all(package.sha256 and package.file and package.source is None for package in lock.packages)


def test_what_has_to_move_besides_is_listed(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = resolve(request("app==2.0"), chosen("uv", monkeypatch))
    assert versions(lock) == {"app": "2.0", "lib": "2.1", "other": "1.0"}
    assert lock.moved == ("lib 1.0 -> 2.1",)


def test_what_an_earlier_environment_moved_is_taken_over_and_told_against_this_one(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = chosen("uv", monkeypatch)
    later = replace(request("app==1.1"), keep=INSTALLED | {"lib": "2.0"})
    lock = resolve(later, used)
    assert (versions(lock)["lib"], lock.moved) == ("2.0", ("lib 1.0 -> 2.0",))
    back = replace(request("app==1.1", "lib==1.0"), keep=INSTALLED | {"other": "2.0"}, installed={"other": "2.0"})
    assert resolve(back, used).moved == ()


def test_pip_frees_what_conflicts_and_keeps_the_rest(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip has no preferences: what is not installed under this interpreter moves to the newest that fits."""
    lock = resolve(request("app==2.0"), chosen("pip", monkeypatch))
    assert versions(lock)["lib"] == "2.1"
    assert "lib 1.0 -> 2.1" in lock.moved


@BOTH
def test_it_is_built_once_and_runs(which: str, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used = chosen(which, monkeypatch)
    lock = resolve(request("app==1.1"), used)
    assert store.find(lock) is None
    built = store.build(lock, used)
    said = subprocess.run(
        [built.python, "-c", "import app, lib, sys; print(app.VERSION, lib.VERSION, sys.prefix)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split() == ["1.1", "1.0", str(built.folder)]
    monkeypatch.setattr(store, "_build", lambda *_: pytest.fail("it was built again"))
    assert store.build(lock, used) == built
    assert [each.key for each in store.built()] == [built.key]
    assert store.size_of(built).total_bytes > 0
    assert not [each for each in store.folder().iterdir() if "unfinished" in each.name]


@BOTH
def test_a_source_tree_and_a_wheel_are_locked_by_their_content(
    which: str, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = chosen(which, monkeypatch)
    tree = write_tree(tmp_path / "my tree", "first")
    lock = resolve(request(str(tree)), used)
    (app,) = (package for package in lock.packages if package.name == "app")
    assert (app.source, app.named) == (str(tree), True)
    assert app.sha256
    built = store.build(lock, used)
    assert said_by(built.python) == "first"

    write_tree(tree, "second")
    store.remove(built)
    with pytest.raises(RefusedError, match="has changed since app was locked"):
        store.build(lock, used)
    other = resolve(request(str(tree)), used)
    assert other.sha256 != lock.sha256
    assert said_by(store.build(other, used).python) == "second"


def said_by(python: Path) -> str:
    done = subprocess.run([python, "-c", "import app; print(app.WORD)"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def write_tree(folder: Path, word: str) -> Path:
    """A source tree with its own build backend: nothing has to be fetched to build it."""
    folder.mkdir(exist_ok=True)
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "app"\nversion = "9.9"\n'
    )
    (folder / "app.py").write_text(f"WORD = {word!r}\n")
    (folder / "backend.py").write_text(
        "import pathlib, zipfile\n"
        "def build_wheel(folder, config_settings=None, metadata_directory=None):\n"
        "    name, info = 'app-9.9-py3-none-any.whl', 'app-9.9.dist-info'\n"
        "    with zipfile.ZipFile(pathlib.Path(folder) / name, 'w') as made:\n"
        "        made.writestr('app.py', pathlib.Path('app.py').read_text())\n"
        "        made.writestr(f'{info}/METADATA', 'Metadata-Version: 2.1\\nName: app\\nVersion: 9.9\\n')\n"
        "        made.writestr(f'{info}/WHEEL',\n"
        "            'Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n"
        "        files = ['app.py', *(f'{info}/{each}' for each in ('METADATA', 'WHEEL', 'RECORD'))]\n"
        "        made.writestr(f'{info}/RECORD', ''.join(f'{file},,\\n' for file in files))\n"
        "    return name\n"
    )
    return folder


@BOTH
@pytest.mark.parametrize(
    ("packages", "named"), [(("app==7",), "app==7"), (("nothere==1",), "nothere"), (("app==2.0", "lib<2"), "lib")]
)
def test_what_cannot_be_resolved_is_bad_input(
    which: str, packages: tuple[str, ...], named: str, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=named) as caught:
        resolve(request(*packages), chosen(which, monkeypatch))
    assert caught.value.exit_code == 2
    assert str(caught.value).startswith(f"environment {packages[0]}: cannot resolve")


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("error: Request failed\n cause: error sending request for url (https://host.example/simple/app/)", 4),
        ("WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError'\nERROR: No matching", 4),
        ("error: failed to write to file: No space left on device (os error 28)", 4),
        ("error: Failed to build `app`", 4),
        ("error: No solution found when resolving dependencies", 2),
    ],
)
def test_a_failure_is_told_apart_and_names_no_host(said: str, code: int) -> None:
    error = failure(said, what="resolve")
    assert error.exit_code == code
    assert "host.example" not in str(error)


def test_an_index_that_does_not_answer_is_the_machines_fault(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = chosen("uv", monkeypatch)
    config = tmp_path / "dead.toml"
    config.write_text('[[index]]\nurl = "http://127.0.0.1:9/simple"\ndefault = true\n')
    monkeypatch.setenv("UV_CONFIG_FILE", str(config))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with pytest.raises(RefusedError, match="does not answer"):
        resolve(request("app==1.1"), used)


@BOTH
def test_a_file_that_was_exchanged_is_refused_and_nothing_half_built_stays(
    which: str, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = chosen(which, monkeypatch)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    lock = resolve(request("app==1.1"), used)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "other-uv-cache"))
    add_wheel(index, "app", "1.1", files={"app.py": "VERSION = 'another'\n"})
    with pytest.raises(RefusedError):
        store.build(lock, used)
    assert store.find(lock) is None
    assert [each.name for each in store.folder().iterdir() if each.is_dir()] == []


def _build_in_a_process(lock: Lock) -> str:
    return str(store.build(lock, tool()).folder)


def test_two_processes_that_build_the_same_one_share_it(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = resolve(request("app==1.1"), chosen("uv", monkeypatch))
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.map(_build_in_a_process, [lock, lock])
    assert len(set(found)) == 1
    assert [str(each.folder) for each in store.built()] == found[:1]


def test_an_environment_whose_interpreter_is_gone_is_built_anew(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used = chosen("uv", monkeypatch)
    lock = resolve(request("app==1.1"), used)
    built = store.build(lock, used)
    built.python.unlink()
    assert store.find(lock) is None
    assert store.build(lock, used).python.exists()


def test_another_python_than_the_locked_one_is_refused(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used = chosen("uv", monkeypatch)
    lock = replace(resolve(request("app==1.1"), used), python="3.11.0a1")
    with pytest.raises(RefusedError, match=r"was locked for Python 3\.11\.0a1"):
        store.build(lock, used)


def test_pip_stands_in_where_uv_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("INTERLACE_UV", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert isinstance(tool(), Pip)
