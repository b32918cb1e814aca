"""A folder of wheels in place of an index: uv and pip see nothing else, and no network."""

import base64
import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from importlib.metadata import distribution
from pathlib import Path

import pytest

from orchestrator.environments.baseline import Baseline, current


def use_index(folder: Path, monkeypatch: pytest.MonkeyPatch, *, tool: str = "uv") -> Path:
    """Point both tools at a folder of wheels, and the cache at another one; the folder of wheels."""
    index = folder / "index"
    index.mkdir(exist_ok=True)
    config = folder / "uv.toml"
    config.write_text(f'no-index = true\nfind-links = ["{index}"]\n')
    monkeypatch.setenv("UV_CONFIG_FILE", str(config))
    for name, value in (
        ("PIP_CONFIG_FILE", "/dev/null"),
        ("PIP_NO_INDEX", "1"),
        ("PIP_FIND_LINKS", str(index)),
        ("INTERLACE_CACHE", str(folder / "cache")),
    ):
        monkeypatch.setenv(name, value)
    if tool == "pip":
        monkeypatch.setenv("INTERLACE_UV", "")
    return index


def add_wheel(
    index: Path,
    name: str,
    version: str,
    *,
    requires: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    entry_points: str = "",
) -> Path:
    """Write a wheel of one module, which holds its version."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    contents = {f"{module}.py": f"VERSION = {version!r}\n"} if files is None else dict(files)
    contents[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
    contents[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    if entry_points:
        contents[f"{info}/entry_points.txt"] = entry_points
    return _zipped(index / f"{module}-{version}-py3-none-any.whl", info, {k: v.encode() for k, v in contents.items()})


def add_installed(index: Path, name: str) -> Path:
    """Write a wheel of what is installed here."""
    found = distribution(name)
    info = next(str(each.parent) for each in found.files or () if each.name == "METADATA")
    tag = next(line[5:] for line in (found.read_text("WHEEL") or "").splitlines() if line.startswith("Tag: "))
    contents = {
        str(each): Path(str(found.locate_file(each))).read_bytes()
        for each in found.files or ()
        if not str(each).startswith("..") and each.suffix != ".pyc" and each.name not in ("RECORD", "INSTALLER")
    }
    contents = {path: content for path, content in contents.items() if not path.endswith("direct_url.json")}
    return _zipped(index / f"{info.removesuffix('.dist-info')}-{tag}.whl", info, contents)


def _zipped(path: Path, info: str, contents: Mapping[str, bytes]) -> Path:
    record = "".join(f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in contents.items())
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in [*contents.items(), (f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode())]:
            archive.writestr(zipfile.ZipInfo(name), content)
    return path


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def pretend_installed(monkeypatch: pytest.MonkeyPatch, versions: Mapping[str, str], *, roots: Sequence[str]) -> None:
    """Make these versions the ones of this environment, and these requirements those of every worker."""
    here = current()
    pretended = Baseline(python=here.python, versions=dict(versions), platform=here.platform)
    monkeypatch.setattr("orchestrator.environments.provision.current", lambda: pretended)
    monkeypatch.setattr("orchestrator.environments.resolve.roots", lambda needed: tuple(roots))
