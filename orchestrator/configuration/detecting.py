"""Planning by effect: the rounds that a "supported" verdict on it needs, and the effects that given rounds support."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator.errors import InputError
from orchestrator.planning.simulation_cache import simulated
from orchestrator.schedule import square_rounds, whole_squares

if TYPE_CHECKING:
    from orchestrator.statistics.drift import Setting as Noise

POWER = 0.8
ALONE = "one arm without an A/A control compares nothing: name a second arm, or set design.aa=true"
MOST_ENTRIES = 60  # per round; planning more by simulation would take too long for an interactive command

# A host's noise and drift, by the URL of a database with its runs; None: none measured yet.
NoiseOf = Callable[[str | None], "Noise | None"]


def with_rounds_to_detect(
    values: Mapping[str, Any], *, arms: int, noise: Callable[[], "Noise | None"]
) -> tuple[dict[str, Any], list[str]]:
    """The design's values with the rounds that `detect` asks for, which is no part of the plan itself.

    Raises:
        InputError: not a valid effect, rounds are set as well, or no affordable number of rounds supports it.
    """
    chosen = dict(values)
    text = chosen.pop("detect")
    if text is None:
        return chosen, []
    if chosen["rounds"] is not None:
        raise InputError(
            f"design.detect={text} and design.rounds={chosen['rounds']}: set one of them;"
            " design.rounds=null leaves the choice to detect"
        )
    entries = arms + chosen["aa"]
    effect = effect_of(text)
    refuse_one_entry(entries, what=f"design.detect={text}")
    setting, basis = _basis(noise())
    found = partial(_rounds, setting, arms=entries, effect=effect, aa=chosen["aa"], alpha=chosen["alpha"])
    rounds = found(margin=chosen["margin"])
    if rounds is None and effect <= chosen["margin"] and found(margin=0.0) is not None:
        raise InputError(
            f"design.detect={text}: is within design.margin={chosen['margin']:g}, so its verdict would be"
            f' "no difference"; set design.margin={effect / 2:g} or less, or take a larger effect'
        )
    if rounds is None:
        from orchestrator.statistics.power import MOST_ROUNDS

        raise InputError(f"design.detect={text}: needs more than {MOST_ROUNDS} rounds ({basis}); take a larger effect")
    if chosen.get("order") == "williams":
        rounds = whole_squares(rounds, square=square_rounds(entries), alpha=chosen["alpha"])
    return chosen | {"rounds": rounds}, [
        f'design.detect={text}: {rounds} rounds for the verdict "supported" in {POWER:.0%} of runs, {basis}'
    ]


def refuse_one_entry(entries: int, *, what: str) -> None:
    """Raises:
    InputError: a round has one entry, which is compared with nothing; the message names `what` asked.
    """
    if entries < 2:
        raise InputError(f"{what}: {ALONE}")


def detects(*, arms: int, aa: bool, rounds: int, alpha: float, margin: float, noise: "Noise | None") -> str:
    """The smallest effect that the planned rounds support, in words.

    Args:
        arms: entries of a round, the control's second one included where `aa`.
    """
    if arms < 2:
        return f"nothing: {ALONE}"
    if arms > MOST_ENTRIES:
        return f"not simulated for {arms} entries per round"
    setting, basis = _basis(noise)
    effect = _effect(setting, arms=arms, aa=aa, rounds=rounds, alpha=alpha, margin=margin)
    size = "no effect up to twofold" if effect is None else f"effects of {effect:.1%} and more"
    return f'{size} (verdict "supported" in {POWER:.0%} of runs, {basis})'


def _rounds(setting: "Noise", **design: Any) -> int | None:
    """`power.rounds_for`, simulated once."""

    def simulate() -> int | None:
        from orchestrator.statistics.power import rounds_for

        return rounds_for(setting, power=POWER, **design)

    found = simulated("rounds", _inputs(setting, design), simulate)
    return None if found is None else int(found)


def _effect(setting: "Noise", **design: Any) -> float | None:
    """The effect of `power.smallest_effect`, simulated once."""

    def simulate() -> float | None:
        from orchestrator.statistics.power import smallest_effect

        return smallest_effect(setting, power=POWER, **design).effect

    return simulated("effect", _inputs(setting, design), simulate)


def _inputs(setting: "Noise", design: Mapping[str, Any]) -> dict[str, Any]:
    return {"power": POWER, "setting": asdict(setting), **design}


def effect_of(text: str) -> float:
    """A relative effect from its text: 2% or 0.02.

    Raises:
        InputError: not a number, or not from 0.1 % to 100 %.
    """
    return percentage(text, what="design.detect", low=0.001, high=1)


def percentage(text: str, *, what: str, low: float, high: float) -> float:
    """A share from its text: 2% or 0.02.

    Raises:
        InputError: not a number, or outside the bounds; the message names `what`.
    """
    try:
        value = float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise InputError(f"{what}={text}: give a number from {100 * low:g}% to {100 * high:g}%, such as 2%")
    return value


def _basis(noise: "Noise | None") -> tuple["Noise", str]:
    from orchestrator.statistics.drift import ASSUMED

    setting = noise or ASSUMED
    where = "as in this host's last run" if noise else "assumed: no run on this host yet"
    return setting, f"noise {setting.noise:.1%}, drift {setting.size:+.0%}, {where}"
