"""`python -m interlace` is the command `interlace`."""

from orchestrator.cli import main

main()
