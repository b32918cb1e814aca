"""`interlace engine`."""

import click

from orchestrator.commands import completing


@click.group("engine")
def command() -> None:
    """Engines and their settings: list, show."""


@command.command("list")
def list_() -> None:
    """List the engines that `engine=` takes, those of other packages included."""
    from orchestrator.configuration.engines import engine_kinds, unusable_engines
    from orchestrator.views.terminal import console, table

    out, rows = console(), table("engine", "from", "description")
    for kind in engine_kinds().values():
        rows.add_row(kind.name, kind.package or "interlace", kind.meaning)
    out.print(rows)
    for name, why in unusable_engines().items():
        out.print(f"engine {name} cannot be used: {why}")


@command.command("show")
@click.argument("name", shell_complete=completing.engines)
def show(name: str) -> None:
    """Show an engine's settings: what each takes, its default, its meaning and the engine's own word."""
    from orchestrator.configuration.engines import engine_kinds, unusable_engines
    from orchestrator.configuration.overrides import suggest
    from orchestrator.configuration.setting_rows import setting_rows
    from orchestrator.errors import InputError
    from orchestrator.views.terminal import console

    kinds = engine_kinds()
    if name in unusable_engines() and name not in kinds:
        raise InputError(f"engine {name} cannot be used: {unusable_engines()[name]}")
    if name not in kinds:
        raise InputError(f"no engine is named {name!r}; {suggest(name, list(kinds))}")
    kind, out = kinds[name], console()
    out.print(f"{kind.meaning}\n")
    rows = setting_rows(kind.schema, without=frozenset({"name"}))
    for row in sorted(rows, key=lambda row: row.key in ("python", "environment")):  # those of every engine last
        out.print(f"engine.{row.key}={row.default}")
        out.print(f"    {row.meaning}")
        out.print(f"    takes {row.takes}")
