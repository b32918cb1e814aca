"""The arms round by round."""

import math
from collections.abc import Iterable, Sequence

from orchestrator.report.charts.ratios import RoundPanel, by_round
from orchestrator.report.document import Absent, Picture, Section
from orchestrator.report.material import Material, metric_words, palette_of, rounds_of, rounds_words
from orchestrator.report.sections.effect_sizes import NOT_RANDOMISED
from orchestrator.report.verdict import in_a_headline
from orchestrator.report.words import (
    counted,
)
from orchestrator.schedule import AA_LABEL
from orchestrator.statistics.observations import round_values
from orchestrator.vocabulary import METRICS

MOST_ROUNDS = 80  # drawn one by one in a panel
MOST_ROUND_PANELS = 12


def rounds_section(material: Material) -> Section | Absent:
    """Build the section of each arm's ratio in each round."""
    if not material.run.randomised:
        return Absent(title="Round by round", reason=NOT_RANDOMISED)
    panels = list(_round_panels(material))
    if not panels:
        return Absent(title="Round by round", reason="no round holds both an arm and the control")
    shown = panels[:MOST_ROUND_PANELS]
    detail = (
        f"Ratio of {metric_words(material)} within each round, {rounds_words(material)}, log"
        " scale. Both trials of a round share the machine's state. Dashed: the run's ratio; band: its interval."
    )
    if any(len(panel.ratios) < panel_rounds for panel, panel_rounds in ((p, rounds_of(material)) for p in shown)):
        detail += " If there are too many rounds, neighbouring ones are drawn as their median."
    if len(panels) > len(shown):
        detail += f" The first {len(shown)} of {len(panels)} panels."
    palette = palette_of(material)
    picture = Picture(
        key="rounds",
        title=_rounds_title(material),
        detail=detail,
        draw=lambda layout: by_round(shown, palette=palette, layout=layout),
    )
    return Section(key="rounds", title="Round by round", pictures=(picture,))


def _round_panels(material: Material) -> Iterable[RoundPanel]:
    values: dict[str, dict[int, float]] = {}
    for each in round_values(material.trials, metric=material.result.metric):
        values.setdefault(each.label, {})[each.round] = each.value
    control = values.get(material.result.control, {})
    found = {one.treatment: (one.ratio, one.ci_low, one.ci_high) for one in material.overall}
    for floor in material.result.floors:
        if floor.scope.words == "over all":
            effect = floor.effect
            found = {AA_LABEL: (effect.ratio, _finite(effect.ci_low), _finite(effect.ci_high))} | found
    for label, (ratio, low, high) in found.items():
        own = values.get(label, {})
        ratios = [(number_ + 1, own[number_] / control[number_]) for number_ in sorted(own) if number_ in control]
        if ratios:
            yield RoundPanel(
                label=label,
                note=_won(ratios, material.result.metric, label),
                ratios=tuple(_thin(ratios)),
                low=low,
                high=high,
                middle=ratio,
            )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) and value > 0 else None


def _thin(ratios: Sequence[tuple[int, float]]) -> Iterable[tuple[float, float]]:
    """Thin the points to at most `MOST_ROUNDS`: neighbours are replaced by their median."""
    step = -(-len(ratios) // MOST_ROUNDS)
    for start in range(0, len(ratios), step):
        some = sorted(ratio for _, ratio in ratios[start : start + step])
        yield ratios[start][0] + (step - 1) / 2, some[len(some) // 2]


def _won(ratios: Sequence[tuple[int, float]], metric: str, label: str) -> str:
    lower = METRICS[metric].lower_is_faster
    won = sum((ratio < 1) if lower else (ratio > 1) for _, ratio in ratios)
    words = f"faster in {won} of {counted(len(ratios), 'round')}"
    return f"{words}: as chance alone would give" if label == AA_LABEL else words


def _rounds_title(material: Material) -> str:
    whole = [one for one in material.overall if one.rounds and one.wins in (0, one.rounds)]
    if whole and len(whole) == len(material.overall):
        return "Every arm has the same direction in every round"
    if whole:
        return f"{', '.join(in_a_headline(one.treatment) for one in whole[:3])}: the same direction in every round"
    return "No arm has the same direction in every round"
