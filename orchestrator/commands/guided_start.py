"""`interlace start`: what is here, what do you want to know, and the command line that answers it."""

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
from omegaconf import OmegaConf
from rich.text import Text

from db.escaping import shown_line
from db.session import database_url
from orchestrator.commands.checkpoint_list import attached_engines, engines_of
from orchestrator.configuration.compose import make_plan
from orchestrator.configuration.first_plan import NEEDS, QUESTIONS, TIMES, Answers, overrides_for
from orchestrator.configuration.groups import Parts
from orchestrator.configuration.overrides import suggest
from orchestrator.errors import InputError
from orchestrator.planning.fit import gb
from orchestrator.planning.residency import found_here, run_budget_bytes
from orchestrator.schedule import build_schedule
from orchestrator.views.fetch_view import size_words
from orchestrator.views.machine_lines import noise_here, on_this_machine
from orchestrator.views.terminal import console
from workers.http.answering import Answering, answering
from workers.weights.hub import cached_models

_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The answers that the options give."""

    question: str | None
    answers: Answers
    time: str | None
    save: str | None
    config_dir: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Here:
    """The checkpoints, servers and packages of this machine."""

    models: Mapping[str, int]  # by the name that `checkpoint=` takes: bytes
    servers: Mapping[str, Answering]  # by engine


def start(given: Given) -> None:
    """Ask what the options leave open, on a terminal; print the plan's first line and the command to keep.

    Raises:
        InputError: something is open and there is no terminal, or an answer makes no plan.
    """
    asks = sys.stdin.isatty() and sys.stdout.isatty()
    parts = Parts(given.config_dir)
    here = _look(parts)
    _show(here)
    question = _chosen(given.question, "question", QUESTIONS, asks=asks)
    answers = _completed(question, given.answers, here) if asks else given.answers
    unasked = None if asks and question != "quickstart" else "quick"
    time = _chosen(given.time or unasked, "time", _times(), asks=asks)
    lines = overrides_for(question, answers, time=time)
    composed = make_plan(lines, config_dir=given.config_dir, noise_of=noise_here, ask_hub=True)
    schedule = build_schedule(composed.plan)
    found = on_this_machine(composed.plan, schedule, url=database_url(composed.db_url))
    out = console()
    out.print()
    out.print(Text(found.headline, style="bold"))
    save = given.save
    if save is None and asks and question != "quickstart":
        save = click.prompt("keep it as an experiment? DIR/NAME, or Enter for no", default="", show_default=False)
    command = (
        _command(lines, given.config_dir) if not save else _saved(save, lines, QUESTIONS[question], given.config_dir)
    )
    out.print("run it with:")
    sys.stdout.write(f"  {command}\n")


def _times() -> dict[str, str]:
    return {name: words for name, (words, _) in TIMES.items()}


# ---- what is here ----


def _look(parts: Parts) -> _Here:
    names = parts.options("checkpoint")
    parts.load([("checkpoint", name) for name in names])
    models = {}
    hub_ids = set()
    for name in names:
        config = parts.values(("checkpoint", name))
        if config["source"] in ("simulated", "dummy", "unknown") or (info := found_here(config)) is None:
            continue
        models[name] = info.weights_bytes
        hub_ids.add(config["hub_id"])
    cached = [each for each in cached_models() if each.complete and each.hub_id not in hub_ids]
    models |= {each.hub_id: each.size_bytes for each in cached}
    attached = attached_engines(parts)
    found = answering(each.url for each in attached)
    servers = {engine: server for server in found.values() for engine in engines_of(server, attached)}
    return _Here(models=models, servers=servers)


def _show(here: _Here) -> None:
    out = console()
    budget = run_budget_bytes()
    out.print(Text(f"memory    {gb(budget)} that a run may count on"))
    listed = [f"{name} ({size_words(size)})" for name, size in list(here.models.items())[:_SHOWN]]
    more = f" and {len(here.models) - _SHOWN} more" if len(here.models) > _SHOWN else ""
    none = "none; `interlace checkpoint import smollm2` brings a small one"
    out.print(Text(f"models    {', '.join(listed) + more if listed else none}"))
    servers = [f"{name} ({', '.join(each.models[:3]) or 'lists no model'})" for name, each in here.servers.items()]
    out.print(Text(shown_line(f"servers   {', '.join(servers) or 'none answers at its usual address'}")))


# ---- questions ----


def _chosen(given: str | None, flag: str, choices: Mapping[str, str], *, asks: bool) -> str:
    """One of several: as given, else asked for by its number or name."""
    if given is not None:
        if given not in choices:
            raise InputError(f"start --{flag} {given}: {suggest(given, list(choices))}")
        return given
    if not asks:
        raise InputError(f"start: there is no terminal to ask on; add --{flag} {'|'.join(choices)}")
    out, names = console(), list(choices)
    out.print()
    for number, name in enumerate(names, start=1):
        out.print(Text(f"  {number}  {choices[name]} ({name})"))
    return _asked(f"{flag}?", lambda text: _one_of(text, names))


def _one_of(text: str, names: Sequence[str]) -> str:
    if text.isdecimal() and 1 <= int(text) <= len(names):
        return names[int(text) - 1]
    if text in names:
        return text
    raise InputError(f"{text}: {suggest(text, names)}")


def _asked(question: str, read: Callable[[str], str]) -> str:
    """Ask until the answer can be read."""
    while True:
        try:
            return read(str(click.prompt(question)).strip())
        except InputError as error:
            console().print(Text(shown_line(str(error))))


def _completed(question: str, answers: Answers, here: _Here) -> Answers:
    """The answers, with those that are missing asked for."""
    for flag, count in NEEDS[question]:
        if flag == "checkpoint" and len(answers.checkpoints) < count:
            answers = replace(answers, checkpoints=_several(_model_question(count, here), count))
        elif flag == "engine" and len(answers.engines) < count:
            default = ",".join(here.servers) if question == "servers" else None
            answers = replace(answers, engines=_several(_engine_question(question, count), count, default=default))
        elif flag == "setting" and not answers.setting:
            answers = replace(answers, setting=str(click.prompt("setting and its values, as engine.block_size=2,4,8")))
        elif flag == "environment" and not (answers.environments or answers.pythons):
            asked = "releases, with commas between them (as mlx-lm==0.31.3, latest; one is compared with what is here)"
            answers = replace(answers, environments=_several(asked, count))
        elif flag == "model" and not answers.model:
            answers = replace(
                answers, model=str(click.prompt("the model's name at the servers", default=_common(here)))
            )
    return answers


def _model_question(count: int, here: _Here) -> str:
    examples = ", ".join(list(here.models)[:3]) or "qwen3-8b-4bit"
    many = "models, with commas between them" if count > 1 else "model"
    return f"{many} (a name as {examples}; OWNER/MODEL of the hub; a folder)"


def _engine_question(question: str, count: int) -> str:
    kinds = (
        "ollama, lm_studio, llama_cpp, vllm, omlx_attached" if question == "servers" else "mlx_lm, mlx_lm_server, omlx"
    )
    return f"engine{'s, with commas between them' if count > 1 else ''} (as {kinds})"


def _several(question: str, count: int, *, default: str | None = None) -> tuple[str, ...]:
    while True:
        text = str(click.prompt(question, default=default or None))
        values = tuple(value.strip() for value in text.split(",") if value.strip())
        if len(values) >= count:
            return values
        console().print(f"at least {count} are needed, with a comma between them")


def _common(here: _Here) -> str | None:
    """A model that all servers list, to propose it."""
    lists = [set(server.models) for server in here.servers.values()]
    shared = sorted(set.intersection(*lists)) if lists else []
    return shared[0] if shared else None


# ---- the command to keep ----


def _command(lines: Sequence[str], config_dir: Path | None) -> str:
    where = [] if config_dir is None else ["--config-dir", str(config_dir)]
    return shlex.join(["interlace", "run", *where, *lines])


def _saved(save: str, lines: Sequence[str], description: str, config_dir: Path | None) -> str:
    """Write a sweep's file; return the command that runs it.

    Raises:
        InputError: no folder and name, not the folder whose options the lines may name, or the file is there or cannot
            be written.
    """
    target = Path(save).expanduser()
    if not target.name or target.name != target.stem or target.parent == target:
        raise InputError(f"--save {save}: write DIR/NAME, such as lab/mine")
    if config_dir is not None and config_dir.expanduser().resolve() != target.parent.resolve():
        raise InputError(f"--save {save}: with --config-dir {config_dir} write {config_dir / target.name}")
    file = target.parent / "sweep" / f"{target.name}.yaml"
    content = {"defaults": ["/schema/sweep@_here_", "_self_"], "description": description, "overrides": list(lines)}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as stream:
            stream.write(OmegaConf.to_yaml(content))
    except FileExistsError as error:
        raise InputError(f"--save {save}: {file} is there already; choose another name") from error
    except OSError as error:
        raise InputError(f"--save {save}: {file} cannot be written ({error.strerror})") from error
    sys.stdout.write(f"saved as {file}\n")
    return shlex.join(["interlace", "run", "--config-dir", str(target.parent), f"sweep={target.name}"])
