"""`python -m interlace` is the command `interlace`."""

from orchestrator.cli import main

if __name__ == "__main__":
    main()
