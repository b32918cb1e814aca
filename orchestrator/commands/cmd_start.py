"""`interlace start`."""

from pathlib import Path

import click

from orchestrator.commands import completing, options


@click.command("start")
@click.option("--question", help="What you want to know: bits, draft, setting, engine, version, servers, quickstart.")
@click.option(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    shell_complete=completing.checkpoints,
    help="A name, a hub id, a folder or a GGUF file. Repeatable.",
)
@click.option("--engine", "engines", multiple=True, shell_complete=completing.engines, help="An engine. Repeatable.")
@click.option("--setting", default="", metavar="KEY=A,B", help="For setting: as engine.block_size=2,4,8.")
@click.option(
    "--environment",
    "environments",
    multiple=True,
    help="For version: a release, as mlx-lm==0.31.3 or latest. Repeatable; one is compared with current.",
)
@click.option(
    "--python", "pythons", multiple=True, help="For version, instead: an environment's interpreter. Repeatable."
)
@click.option("--model", default="", help="For servers: the model's name at the servers.")
@click.option("--time", help="How long it may take: quick, evening. Default: quick.")
@click.option("--save", metavar="DIR/NAME", help="Keep the plan as the experiment sweep=NAME in the folder DIR.")
@options.config_dir
def command(
    question: str | None,
    checkpoints: tuple[str, ...],
    engines: tuple[str, ...],
    setting: str,
    environments: tuple[str, ...],
    pythons: tuple[str, ...],
    model: str,
    time: str | None,
    save: str | None,
    config_dir: Path | None,
) -> None:
    """Find a first plan by a few questions; it ends in the command line to keep.

    Shows what is here: memory, models on the disk, servers that answer. Each question can be answered by its option
    instead. Nothing is run.
    """
    from orchestrator.commands.guided_start import Given, start
    from orchestrator.configuration.first_plan import Answers

    answers = Answers(
        checkpoints=checkpoints,
        engines=engines,
        setting=setting,
        environments=environments,
        pythons=pythons,
        model=model,
    )
    start(Given(question=question, answers=answers, time=time, save=save, config_dir=config_dir))
