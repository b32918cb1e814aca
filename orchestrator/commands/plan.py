"""`interlace plan` and `interlace simulate`: before anything runs."""

import sys
from collections.abc import Sequence
from dataclasses import replace

from orchestrator.commands.opening import optional_path
from orchestrator.errors import InputError
from orchestrator.plan import Plan, dump

HEAT_RUNS = 200  # of a cooldown, at most: each looks for carry-over too


def show_plan(overrides: Sequence[str], *, config_dir: str | None, as_json: bool) -> None:
    """`interlace plan`."""
    from orchestrator.configuration.compose import make_plan
    from orchestrator.views.machine_lines import machine_lines, noise_here

    composed = make_plan(overrides, config_dir=optional_path(config_dir), noise_of=noise_here)
    if as_json:
        sys.stdout.write(dump(composed.plan) + "\n")
        return
    from db.session import database_url
    from orchestrator.schedule import build_schedule
    from orchestrator.views.plan_view import print_plan
    from orchestrator.views.terminal import console

    schedule = build_schedule(composed.plan)
    lines = machine_lines(composed.plan, schedule, url=database_url(composed.db_url))
    print_plan(composed.plan, schedule, console(), extra=lines)


def simulate_design(
    overrides: Sequence[str],
    *,
    config_dir: str | None,
    profiles: Sequence[str],
    effect: str,
    noise: str,
    drift: str | None,
    runs: int,
    heat: Sequence[str] = (),
    decay: float = 0.8,
) -> None:
    """`interlace simulate`: the plan's design on simulated machines."""
    from orchestrator.configuration.compose import make_plan
    from orchestrator.configuration.detecting import percentage, refuse_one_entry
    from orchestrator.statistics.drift import PROFILES
    from orchestrator.statistics.judge_design import judge_design
    from orchestrator.views.machine_lines import noise_here
    from orchestrator.views.plan_view import print_judgements
    from orchestrator.views.terminal import console

    plan = make_plan(overrides, config_dir=optional_path(config_dir), noise_of=noise_here).plan
    refuse_one_entry(len(plan.arms) + plan.design.aa, what="simulate")
    if heat:
        _simulate_heat(plan, heat, decay=decay, noise=percentage(noise, what="--noise", low=0, high=1), runs=runs)
        return
    true_effect = percentage(effect, what="--effect", low=-0.9, high=10)
    found = judge_design(
        profiles or PROFILES,
        entries=len(plan.arms) + plan.design.aa,
        rounds=plan.design.rounds,
        alpha=plan.design.alpha,
        effect=true_effect,
        noise=percentage(noise, what="--noise", low=0, high=1),
        size=None if drift is None else percentage(drift, what="--drift", low=-0.9, high=1),
        runs=runs,
        seed=plan.design.seed,
    )
    print_judgements(found, plan=plan, effect=true_effect, runs=runs, out=console())


def _simulate_heat(plan: Plan, heat: Sequence[str], *, decay: float, noise: float, runs: int) -> None:
    from orchestrator.statistics.drift import standard
    from orchestrator.statistics.heat_design import judge_heat
    from orchestrator.views.heat_view import print_cooldowns
    from orchestrator.views.terminal import console

    if not 0 <= decay < 1:
        raise InputError(f"--decay={decay:g}: type a number from 0 to below 1, such as 0.8")
    runs = min(runs, HEAT_RUNS)
    entries = len(plan.arms) + plan.design.aa
    setting = replace(standard("linear", entries * plan.design.rounds), noise=noise)
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
    )
    print_cooldowns(found, plan=plan, decay=decay, runs=runs, out=console())


def _heats(plan: Plan, given: Sequence[str]) -> dict[str, float]:
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
