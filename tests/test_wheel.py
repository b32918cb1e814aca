"""The wheel as a user gets it: built, installed where nothing of this checkout is, and used."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.nightly
def test_the_wheel_works_in_a_bare_environment(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("INTERLACE_", "PYTHON"))}
    done = subprocess.run(
        [ROOT / ".ci" / "verify-wheel"],
        env=env | {"PYTHON": sys.executable},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("the run is listed: ok\n")
