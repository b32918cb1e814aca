"""The effect of heat on a design, and the cooldown that removes it, on the terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from orchestrator.plan import Plan
from orchestrator.views.terminal import table

if TYPE_CHECKING:
    from orchestrator.statistics.heat_design import HeatJudgement


def print_cooldowns(
    found: Sequence["HeatJudgement"], *, plan: Plan, decay: float, effect: float, runs: int, out: Console
) -> None:
    """Print a line for each cooldown, and the shortest that is enough."""
    design, last = plan.design, found[-1]
    out.print(Text(f"{design.rounds} rounds in {design.order} order, {runs} simulated runs per cooldown"))
    out.print(Text("SIMULATED: properties of the design, nothing was measured", style="bold red"))
    columns = ("cooldown", "bias", "wrong", "flagged", "supported", f"finds {effect:+.1%}")
    made = table(*columns, right=columns)
    for one in found:
        made.add_row(
            f"{one.cooldown:g} trials",
            f"{one.bias:+.2%}",
            f"{one.wrong:.1%}",
            f"{one.flagged:.1%}",
            f"{one.supported:.1%}",
            f"{one.power:.1%}",
        )
    out.print(made)
    out.print(
        Text(
            f"no arm has an effect of its own; after each trial's length a share of {decay:g} of the heat is left."
            f" bias: of {last.treatment}; wrong: its interval excludes 1; flagged: the audit finds the heat;"
            " supported: the verdict on any treatment, which is wrong;"
            f' finds {effect:+.1%}: the verdict "supported" if {last.treatment} had that effect'
        )
    )
    if last.is_enough(alpha=design.alpha, margin=design.margin, runs=runs):
        what = (
            "no cooldown is needed"
            if not last.cooldown
            else f"a cooldown of {last.cooldown:g} trials' lengths is enough"
        )
        rest = "" if not last.cooldown else ": set gate.cooldown_s to that many times the seconds of a trial"
        out.print(Text(f"{what}{rest}"))
    else:
        out.print(Text(f"not even a cooldown of {last.cooldown:g} trials' lengths is enough: interleave by workload"))
