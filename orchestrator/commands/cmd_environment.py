"""`interlace environment`."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from orchestrator.environments.store import Built


@click.group("environment")
def command() -> None:
    """Environments that arms declare: list, show, remove."""


@command.command("list")
def list_() -> None:
    """List the environments in the cache, with their sizes.

    `alone` is what removing one frees: files that no other environment and no cache shares by a hard link.
    """
    from orchestrator.environments.store import built, folder, size_of
    from orchestrator.views.terminal import console, table

    out, found = console(), built()
    if not found:
        out.print(f"no environment is built in {folder()}; `interlace run environment=mlx-lm==VERSION` builds one")
        return
    rows = table("key", "environment", "Python", "packages", "size", "alone", right=("packages", "size", "alone"))
    for each in found:
        size = size_of(each)
        rows.add_row(
            each.key,
            each.lock.environment,
            each.lock.python,
            str(len(each.lock.packages)),
            _megabytes(size.total_bytes),
            _megabytes(size.own_bytes),
        )
    out.print(rows)


@command.command("show")
@click.argument("name")
def show(name: str) -> None:
    """Show the exact packages of an environment. NAME is its name or the beginning of its key."""
    from orchestrator.environments.store import size_of
    from orchestrator.views.terminal import console, table

    out = console()
    for each in _chosen(name):
        size = size_of(each)
        out.print(f"environment {each.lock.environment}, key {each.key}, Python {each.lock.python}")
        out.print(f"{each.folder}: {_megabytes(size.total_bytes)}, {_megabytes(size.own_bytes)} of it alone")
        out.print(f"moved along: {', '.join(each.lock.moved) or 'nothing'}")
        rows = table("package", "version", "from", "sha256")
        for package in each.lock.packages:
            origin = package.source or package.file or ""
            rows.add_row(package.name, package.version or "", origin, (package.sha256 or "")[:12])
        out.print(rows)


@command.command("remove")
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help="Remove every environment in the cache.")
def remove(name: str | None, *, everything: bool) -> None:
    """Delete an environment from the cache. NAME is its name or the beginning of its key.

    A run that needs it later builds it again from its lock.
    """
    from orchestrator.environments import store
    from orchestrator.views.terminal import console

    if (name is None) != everything:
        raise click.UsageError("name one environment, or give --all")
    found = store.built() if name is None else _chosen(name)
    for each in found:
        size = store.size_of(each)
        store.remove(each)
        console().print(f"removed {each.lock.environment} ({each.key}), {_megabytes(size.own_bytes)} freed")


def _chosen(name: str) -> "list[Built]":
    from orchestrator.configuration.overrides import suggest
    from orchestrator.environments.store import built, named
    from orchestrator.errors import InputError

    if found := named(name):
        return found
    known = list(dict.fromkeys(each.lock.environment for each in built()))
    raise InputError(f"no environment in the cache is named {name!r}; {suggest(name, known)}")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
