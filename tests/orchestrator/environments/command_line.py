"""The command line in this process, with the exit code that a shell would see."""

from click.testing import CliRunner, Result

from orchestrator.cli import cli


def interlace(*words: str) -> Result:
    """Run the command line; an error of ours has its own exit code."""
    done = CliRunner().invoke(cli, list(words), standalone_mode=False)
    returned = done.return_value if isinstance(done.return_value, int) else done.exit_code
    done.exit_code = getattr(done.exception, "exit_code", returned)
    return done
