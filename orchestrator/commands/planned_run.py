"""A run that is about to be stored: its plan composed, its weights fetched and found, and both put into the queue.

Loads what composing a plan needs.
"""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.text import Text

from db import queue
from db.engine import Database
from db.session import database_path, database_url, open_database
from orchestrator.configuration.compose import make_plan
from orchestrator.environments.provision import made
from orchestrator.errors import InputError
from orchestrator.plan import Plan
from orchestrator.planning.fetching import download_sizes, fetch_weights, pinned_by_hub, to_fetch
from orchestrator.planning.residency import is_simulated
from orchestrator.planning.weights import ArmWeights, fetch_line, find_weights, refuse_what_does_not_fit
from orchestrator.running.preflight import warn
from orchestrator.running.recorder import create_run
from orchestrator.schedule import build_schedule
from orchestrator.views.fetch_view import FetchTeller
from orchestrator.views.machine_lines import noise_here, on_this_machine
from orchestrator.views.plan_view import print_plan
from orchestrator.views.terminal import console
from workers.machine.host import read_host


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan that this machine can run: composed, its weights found, its memory need checked."""

    plan: Plan
    weights: Mapping[str, ArmWeights]
    url: str
    again: Callable[[], "Planned"]  # plans anew, with what is known once the weights are here

    @property
    def measured(self) -> bool:
        """Return whether the run measures anything: not all arms are simulated."""
        return not all(is_simulated(arm) for arm in self.plan.arms)


_EXAMPLES = """
  interlace {0} sweep=quickstart
      a first answer in minutes on any machine
  interlace {0} checkpoint=qwen3-8b-4bit,qwen3-8b-8bit
      4 against 8 bits
  interlace {0} checkpoint=mlx-community/Qwen3-8B-4bit engine=mlx_lm,prompt_lookup
      with and without a way of drafting; any model of the hub, or a folder
  interlace {0} engine=ollama,lm_studio engine.model=MODEL
      two servers that run already
  interlace start
      asks what you want to know, and prints the command
Names: interlace checkpoint list, interlace engine list. What would run: interlace plan ..."""


def refuse_bare(command: str, overrides: Sequence[str], *, config_dir: Path | None) -> None:
    """Refuse a command that names nothing to compare: the defaults alone would be hours of work for no answer.

    Raises:
        InputError: with examples.
    """
    if overrides or (config_dir is not None and (config_dir / "config.yaml").is_file()):
        return
    raise InputError(f"{command}: name what to compare; nothing was started. For example:{_EXAMPLES.format(command)}")


def compose_run(overrides: Sequence[str], *, config_dir: Path | None) -> Planned:
    """Compose and freeze a plan, and build the environments that it names; nothing is fetched or stored.

    Raises:
        InputError: the plan is not valid, or a checkpoint does not exist.
        RefusedError: it does not fit into this machine's memory, or an environment cannot be built.
    """
    composed = make_plan(overrides, config_dir=config_dir, noise_of=noise_here, ask_hub=True)
    weights = find_weights(composed.plan)
    refuse_what_does_not_fit(composed.plan)
    plan = made(composed.plan, warn)
    return Planned(
        plan=plan,
        weights=weights,
        url=database_url(composed.db_url),
        again=lambda: compose_run(overrides, config_dir=config_dir),
    )


def fetched_run(planned: Planned, *, quiet: bool) -> Planned:
    """Fetch the weights that this machine lacks, and plan anew with their sizes and commits.

    Raises:
        InputError: a checkpoint cannot be had: missing, private, gated, not a checkpoint.
        RefusedError: not now: no network, no room, a busy hub; or what came does not fit into memory.
    """
    if not to_fetch(planned.plan):
        return planned
    out = console()
    if not quiet:
        out.print(Text(f"fetching {fetch_line(download_sizes(planned.plan))}"))
    try:
        with FetchTeller(out, quiet=quiet) as teller:
            fetch_weights(planned.plan, tell=teller)
    except KeyboardInterrupt:
        out.print("interrupted while weights were fetched; what has come stays, and the same command goes on")
        raise
    return planned.again()


def pinned_run(planned: Planned) -> Planned:
    """The plan with the commits that the hub holds now: its weights are fetched later.

    Raises:
        InputError, RefusedError: see `fetched_run`.
    """
    return replace(planned, plan=pinned_by_hub(planned.plan))


def store_run(planned: Planned, *, quiet: bool) -> tuple[Database, str]:
    """Store the frozen plan as a run, and put it last into the queue; the run's id."""
    database = open_database(planned.url)
    if not quiet:
        schedule = build_schedule(planned.plan)
        here = on_this_machine(planned.plan, schedule, url=planned.url)
        print_plan(planned.plan, schedule, console(), first=here.headline, extra=here.lines)
    log_root = database_path(planned.url).parent / "logs"
    recorder = create_run(database, planned.plan, host=read_host(), weights=planned.weights, log_root=log_root)
    queue.add(database, recorder.run_id, now=dt.datetime.now(dt.UTC))
    return database, recorder.run_id
