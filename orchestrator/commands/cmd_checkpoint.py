"""`interlace checkpoint`."""

from pathlib import Path

import click

from orchestrator.commands import completing, options
from workers.settings import DTYPE_BYTES


@click.group("checkpoint")
def command() -> None:
    """Model weights: list, fetch, import, inspect, make."""


@command.command("list")
@options.config_dir
def list_(config_dir: Path | None) -> None:
    """List the checkpoints that can be named, the models in the hub's cache, and the servers that answer now."""
    from orchestrator.commands.checkpoint_list import list_checkpoints

    list_checkpoints(config_dir=config_dir)


@command.command("fetch")
@click.argument(
    "names", metavar="NAME|OWNER/MODEL[@REVISION]...", nargs=-1, required=True, shell_complete=completing.checkpoints
)
@options.config_dir
@click.option("--anyway", is_flag=True, help="Also while a run is measured on this machine, which this disturbs.")
@click.option("--quiet", is_flag=True, help="No progress.")
def fetch(names: tuple[str, ...], config_dir: Path | None, *, anyway: bool, quiet: bool) -> None:
    """Fetch checkpoints from the hub: their newest commit, unless a revision is named.

    What has come stays when it is interrupted, and the next fetch goes on there. `run`, `queue add` and `work` fetch
    by themselves what is not on this machine.
    """
    from orchestrator.commands.checkpoint_fetch import fetch_checkpoints

    fetch_checkpoints(names, config_dir=config_dir, anyway=anyway, quiet=quiet)


@command.command("import")
@click.argument("source", metavar="smollm2|smollm2-f32|FILE.gguf")
@click.option("--name", help="GGUF: the checkpoint's name. Default: the file's.")
@click.option("--bits", type=click.Choice(["4", "8"]), help="GGUF: bits to quantise to. Default: unquantised.")
def import_(source: str, name: str | None, bits: str | None) -> None:
    """Import a model: `smollm2` (a small real one, one download; -f32: unquantised), or a GGUF file."""
    from orchestrator.commands.checkpoint_actions import import_checkpoint

    import_checkpoint(source, name=name, bits=None if bits is None else int(bits))


@command.command("make")
@click.argument("source", metavar="CHECKPOINT|FOLDER")
@click.option("--name", help="The new checkpoint's name. Default: the source's, with the bits.")
@click.option("--bits", type=click.IntRange(2, 8), help="Bits to quantise to.")
@click.option("--group-size", type=click.Choice(["32", "64", "128"]), default="64", show_default=True)
@click.option("--dtype", type=click.Choice(list(DTYPE_BYTES)), help="Data type of activations and scales.")
@options.config_dir
def make(
    source: str, name: str | None, bits: int | None, group_size: str, dtype: str | None, config_dir: Path | None
) -> None:
    """Make a checkpoint from an unquantised one, with other bits, groups or dtype."""
    from orchestrator.commands.checkpoint_actions import make_checkpoint

    make_checkpoint(source, name=name, bits=bits, group_size=int(group_size), dtype=dtype, config_dir=config_dir)


@command.command("inspect")
@click.argument("name", shell_complete=completing.checkpoints)
@options.config_dir
def inspect(name: str, config_dir: Path | None) -> None:
    """Print a checkpoint's shape, bytes and digest. NAME is an option, a hub id, or a folder."""
    from orchestrator.commands.checkpoint_actions import inspect_checkpoint

    inspect_checkpoint(name, config_dir=config_dir)
