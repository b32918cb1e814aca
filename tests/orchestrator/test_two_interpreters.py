"""Two interpreters with other versions, through the command line: the arms are named by what differs, and store it."""

import site
import subprocess
import sys
from pathlib import Path

import pytest

from tests.orchestrator.shells import Shell

ROOT = Path(__file__).resolve().parents[2]
QUICK = (
    "engine=simulated",
    "checkpoint=simulated",
    "gate=none",
    "workload=quick",
    "workload.max_tokens=8",
    "design.rounds=6",
)


def interpreter(folder: Path, **versions: str) -> Path:
    """A virtual environment that sees this one's packages after its own, of which there is only the metadata."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / "ours.pth").write_text("\n".join([str(ROOT), *site.getsitepackages()]))
    for name, version in versions.items():
        info = packages / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n")
    return folder / "bin" / "python"


@pytest.mark.slow
def test_arms_of_two_interpreters_are_named_by_the_versions_that_differ(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    older = interpreter(tmp_path / "a", mlx="0.31.0", mlx_lm="0.31.3")
    newer = interpreter(tmp_path / "b", mlx="0.32.2", mlx_lm="0.31.3")
    shell("run", *QUICK, f"engine.python={older},{newer}", "--quiet")
    assert shell.ask("SELECT DISTINCT arm, mlx_version, mlx_lm_version FROM trial_flat ORDER BY arm") == [
        {"arm": "python=a mlx=0.31.0", "mlx_version": "0.31.0", "mlx_lm_version": "0.31.3"},
        {"arm": "python=b mlx=0.32.2", "mlx_version": "0.32.2", "mlx_lm_version": "0.31.3"},
    ]
    assert "python=b mlx=0.32.2" in shell("audit").stdout
