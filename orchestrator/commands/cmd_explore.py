"""`interlace explore`."""

import click

from orchestrator.commands import options


@click.command("explore")
@options.db
@click.option("--port", type=click.IntRange(0, 65535), help="Default: 8341, or a free one if it is taken.")
@click.option("--no-browser", is_flag=True, help="Print the address only.")
def command(url: str | None, port: int | None, *, no_browser: bool) -> None:
    """Open the database in the browser, read-only, on this machine only."""
    from db.location import database_path
    from db.session import database_url, open_existing
    from orchestrator.explore.server import explore
    from orchestrator.views.terminal import console

    where = database_url(url)
    open_existing(where).dispose()  # there, and of this version
    out = console()
    explore(
        where,
        database_path(where),
        port=port,
        open_browser=not no_browser,
        say=lambda text: out.print(text, soft_wrap=True),
    )
