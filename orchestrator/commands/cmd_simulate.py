"""`interlace simulate`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.commands import options
from orchestrator.errors import InputError
from workers.machine.drift import PROFILES

if TYPE_CHECKING:
    from orchestrator.plan import Plan
    from orchestrator.statistics.drift import Setting

HEAT_RUNS = 200  # of a cooldown, at most: each looks for carry-over too


@click.command("simulate")
@options.plan_arguments
@click.option("--profile", "profiles", multiple=True, type=click.Choice(PROFILES), help="Repeatable. Default: all.")
@click.option("--effect", default="5%", show_default=True, help="The true effect of one treatment; others have none.")
@click.option("--noise", default="1%", show_default=True, help="Scale of the trials' own noise.")
@click.option("--drift", metavar="SIZE", help="Drift over the run, such as -34%. Default: each profile's own size.")
@click.option(
    "--runs", default=1000, show_default=True, type=click.IntRange(50, 20000), help="Simulated runs per cell."
)
@click.option(
    "--heat",
    metavar="ARM=SIZE",
    multiple=True,
    help="How much slower the next trial would be after many trials of this arm in a row, as B=5%. Repeatable."
    " Simulates longer and longer cooldowns, up to the first that is enough.",
)
@click.option(
    "--decay",
    default=0.8,
    show_default=True,
    help="With --heat: the share of the heat that is left after one trial's length, from 0 to below 1.",
)
def command(
    overrides: tuple[str, ...],
    config_dir: Path | None,
    profiles: tuple[str, ...],
    effect: str,
    noise: str,
    drift: str | None,
    runs: int,
    heat: tuple[str, ...],
    decay: float,
) -> None:
    """Try your design on a simulated machine: false positives, power, width.

    Arms, rounds, order, level and margin are those of the plan that OVERRIDES describe. Several treatments are judged
    as the audit judges them, as one family.
    """
    from orchestrator.configuration.compose import make_plan
    from orchestrator.configuration.detecting import percentage, refuse_one_entry
    from orchestrator.statistics.judge_design import judge_design
    from orchestrator.views.machine_lines import noise_here
    from orchestrator.views.plan_view import print_judgements
    from orchestrator.views.terminal import console

    plan = make_plan(overrides, config_dir=config_dir, noise_of=noise_here).plan
    refuse_one_entry(len(plan.arms) + plan.design.aa, what="simulate")
    true_effect = percentage(effect, what="--effect", low=-0.9, high=10)
    own_noise = percentage(noise, what="--noise", low=0, high=1)
    size = None if drift is None else percentage(drift, what="--drift", low=-0.9, high=1)
    if heat:
        _simulate_heat(
            plan,
            heat,
            decay=decay,
            setting=_one_setting(plan, profiles, size, own_noise),
            effect=true_effect,
            runs=runs,
        )
        return
    found = judge_design(
        profiles or PROFILES,
        entries=len(plan.arms) + plan.design.aa,
        aa=plan.design.aa,
        rounds=plan.design.rounds,
        alpha=plan.design.alpha,
        margin=plan.design.margin,
        effect=true_effect,
        noise=own_noise,
        size=size,
        runs=runs,
        seed=plan.design.seed,
    )
    print_judgements(found, plan=plan, effect=true_effect, out=console())


def _one_setting(plan: "Plan", profiles: Sequence[str], size: float | None, noise: float) -> "Setting":
    """The machine on which heat is simulated, by default with a linear drift.

    Raises:
        InputError: several profiles.
    """
    from orchestrator.statistics.drift import standard

    if len(profiles) > 1:
        raise InputError(f"--heat takes one --profile, not {len(profiles)}: type one, or leave it out for linear")
    entries = len(plan.arms) + plan.design.aa
    setting = standard(profiles[0] if profiles else "linear", entries * plan.design.rounds)
    return replace(setting, noise=noise, size=setting.size if size is None else size)


def _simulate_heat(
    plan: "Plan", heat: Sequence[str], *, decay: float, setting: "Setting", effect: float, runs: int
) -> None:
    from orchestrator.statistics.heat_design import judge_heat
    from orchestrator.views.heat_view import print_cooldowns
    from orchestrator.views.terminal import console

    if not 0 <= decay < 1:
        raise InputError(f"--decay={decay:g}: type a number from 0 to below 1, such as 0.8")
    runs = min(runs, HEAT_RUNS)
    heats = _heats(plan, heat)
    found = judge_heat(
        setting,
        heat=heats,
        control=plan.control,
        aa=plan.design.aa,
        decay=decay,
        order=plan.design.order,
        rounds=plan.design.rounds,
        alpha=plan.design.alpha,
        margin=plan.design.margin,
        runs=runs,
        seed=plan.design.seed,
        effect=effect,
    )
    print_cooldowns(found, plan=plan, decay=decay, effect=effect, runs=runs, out=console())


def _heats(plan: "Plan", given: Sequence[str]) -> dict[str, float]:
    """Each arm's heat; arms are named as in the plan, or by their letters there.

    Raises:
        InputError: not ARM=SIZE, no such arm, no such size, or only one arm.
    """
    from orchestrator.configuration.detecting import percentage
    from orchestrator.views.plan_view import letters

    if len(plan.arms) < 2:
        raise InputError("--heat compares two arms: add one, such as engine.block_size=2,4")
    by_letter = {letter: name for name, letter in letters(plan).items()}
    heats = {arm.name: 0.0 for arm in plan.arms}
    for text in given:
        arm, _, size = text.rpartition("=")
        name = by_letter.get(arm, arm)
        if name not in heats:
            known = ", ".join(f"{letter} ({name})" for letter, name in by_letter.items() if name in heats)
            raise InputError(f"--heat={text}: type ARM=SIZE, such as B=5%; the arms are {known}")
        heats[name] = percentage(size, what=f"--heat {arm}", low=0, high=0.9)
    return heats
