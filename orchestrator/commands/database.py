"""`interlace db`."""

import sys

from orchestrator.commands.opening import EXIT_DONE
from orchestrator.errors import RefusedError


def check_database(*, url: str | None) -> int:
    """`interlace db check`."""
    from db.check import check
    from db.session import database_url

    found = check(database_url(url))
    sys.stdout.write(f"{found}\n")
    return EXIT_DONE if found.ok else RefusedError.exit_code


def upgrade_database(*, url: str | None) -> None:
    """`interlace db upgrade`."""
    from db.migrate import upgrade
    from db.session import database_url

    version = upgrade(database_url(url))
    sys.stdout.write(f"{version}\n")


def database_path(*, url: str | None) -> None:
    """`interlace db path`."""
    from db.session import database_path as path_of
    from db.session import database_url

    sys.stdout.write(f"{path_of(database_url(url))}\n")
