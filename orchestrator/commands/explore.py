"""`interlace explore`."""


def explore_database(*, url: str | None, port: int | None, open_browser: bool) -> None:
    """`interlace explore`: the database in the browser until Ctrl-C."""
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
        open_browser=open_browser,
        say=lambda text: out.print(text, soft_wrap=True),
    )
