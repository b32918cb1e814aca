"""`python -m tests.standin.driver FOLDER < COMMANDS`: commands of one Mac, one after the other, in one process.

A line of JSON per command: its exit code and what it wrote.
"""

import json
import os
import sys
from pathlib import Path

from tests.orchestrator.shells import run_here


def main() -> None:
    """Run the commands that standard input lists as JSON."""
    for arguments in json.load(sys.stdin):
        done = run_here(*arguments, env=dict(os.environ), folder=Path(sys.argv[1]))
        sys.stdout.write(json.dumps({"code": done.returncode, "out": done.stdout, "err": done.stderr}) + "\n")


if __name__ == "__main__":
    main()
