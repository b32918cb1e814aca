"""A second environment for the packages that do not fit this one: z-lab's dflash and mtplx, on an older mlx-lm.

Made once, from a lock with hashes, and kept under the cache folder by the lock's digest; a later run finds it. On a
Mac the two pin different versions of MLX: there each needs an environment of its own, which no test makes.
"""

import fcntl
import hashlib
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from workers.weights.folders import cache_dir

LOCK = Path(__file__).with_name("elsewhere.lock")
# mtplx links a library of macOS as it is imported, for readings that it does without elsewhere.
_SHIM = """\
import ctypes

_load = ctypes.CDLL


class _Function:
    argtypes = restype = None

    def __call__(self, *arguments):
        return 0


class _Library:
    def __getattr__(self, name):
        function = _Function()
        setattr(self, name, function)
        return function


def _load_or_stand_in(name, *arguments, **named):
    return _Library() if name and "libSystem" in str(name) else _load(name, *arguments, **named)


ctypes.CDLL = _load_or_stand_in
"""
_LOCKED = ("--no-deps", "--require-hashes", "-r", str(LOCK))
_TIMEOUT_S = 600


def elsewhere() -> Path:
    """The other environment's interpreter."""
    if sys.platform != "linux":
        pytest.skip("dflash and mtplx pin different versions of MLX on a Mac")
    digest = hashlib.sha256(LOCK.read_bytes() + _SHIM.encode() + sys.version.encode()).hexdigest()[:16]
    folder = cache_dir() / "environments" / digest
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs at a time make it once
        if not folder.is_dir():
            _make(folder)
    return folder / "bin" / "python"


def _make(folder: Path) -> None:
    unfinished = folder.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    python = unfinished / "bin" / "python"
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv:
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(unfinished)])
        _run(
            [uv, "pip", "install", "--quiet", "--python", str(python), "--no-deps", "--require-hashes", "-r", str(LOCK)]
        )
    else:
        _run([sys.executable, "-m", "venv", str(unfinished)])
        _run([str(python), "-m", "pip", "install", "--quiet", *_LOCKED])
    (site,) = (unfinished / "lib").glob("python*/site-packages")
    (site / "sitecustomize.py").write_text(_SHIM)
    unfinished.rename(folder)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr[-2000:]}"


@contextmanager
def lent_package(folder: Path) -> Iterator[str]:
    """An interpreter with mlx-lm 0.31, which its server needs; this environment's dflash-mlx is lent to it."""
    found = importlib.util.find_spec("dflash_mlx")
    if found is None or found.origin is None:
        pytest.skip("dflash-mlx is not installed: pip install interlace[dflash]")
    package = Path(found.origin).parent
    lent = folder / "lent"
    lent.mkdir()
    for each in (package, *package.parent.glob("dflash_mlx-*.dist-info")):
        (lent / each.name).symlink_to(each)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(lent))
        yield str(elsewhere())
