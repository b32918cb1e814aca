"""The installed packages, and the macOS for which MLX's Metal kernels were built."""

import sys
from pathlib import Path

import pytest

from workers.environment import METAL_BUILD, versions, wheel_tag
from workers.supervision.served_versions import of_command

BUILDS = ["py3-none-macosx_14_0_arm64", "py3-none-macosx_15_0_arm64", "py3-none-macosx_26_0_arm64"]


def install_metal(folder: Path, tag: str) -> Path:
    """A site folder with mlx-metal from a wheel of this tag."""
    info = folder / "mlx_metal-0.32.4.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mlx-metal\nVersion: 0.32.4\n")
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n")
    return folder


@pytest.mark.parametrize("tag", BUILDS)
def test_builds_of_one_version_are_distinguished(tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(install_metal(tmp_path, tag)))
    found = versions()
    assert (found["mlx-metal"], found[METAL_BUILD]) == ("0.32.4", tag)


@pytest.mark.parametrize("tag", BUILDS)
def test_a_servers_build_is_that_of_its_environment(tag: str, tmp_path: Path) -> None:
    found = of_command([sys.executable, "serve"], {"PYTHONPATH": str(install_metal(tmp_path, tag))})
    assert (found.versions["mlx-metal"], found.versions[METAL_BUILD]) == ("0.32.4", tag)


@pytest.mark.skipif(sys.platform == "darwin", reason="there it has one")
def test_without_metal_there_is_no_build() -> None:
    assert METAL_BUILD not in versions()


def test_a_wheel_has_the_platform_that_it_was_built_for() -> None:
    tag = wheel_tag("mlx")
    assert tag is not None
    assert tag.startswith("cp3")
    assert wheel_tag("no-such-package") is None
