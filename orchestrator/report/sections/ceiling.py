"""The speed that the memory's bandwidth allows, and the share of it that was reached."""

from collections.abc import Sequence

from orchestrator.findings.values import Ceiling
from orchestrator.report.charts.machine import roofline
from orchestrator.report.document import Absent, Grid, Picture, Section
from orchestrator.report.material import Material, palette_of
from orchestrator.report.verdict import in_a_headline
from orchestrator.report.words import MISSING, counted, ended, number, percent, size


def ceiling_section(material: Material) -> Section | Absent:
    """Build the section on the bandwidth's limit and the share that was reached."""
    title, found = "How near to the ceiling", material.findings.ceilings
    known = [one for one in found if one.ceiling_passes_per_s.value and one.measured_passes_per_s]
    if not known:
        reasons = list(dict.fromkeys(one.ceiling_passes_per_s.source for one in found))
        return Absent(title=title, reason="; ".join(reasons) or "no arm has a ceiling")
    palette, bandwidth = palette_of(material), known[0].bandwidth_bytes_per_s
    picture = Picture(
        key="ceiling",
        title=_title(known),
        detail=(
            f"Passes per second reached (bar) and allowed (mark): {_bandwidth(known[0])} over the bytes that a pass"
            f" reads; {counted(material.findings.rounds, 'round')}."
        ),
        draw=lambda layout: roofline(known, palette=palette, layout=layout),
    )
    lead = f"Bandwidth over the bytes that a pass reads: {_bandwidth(known[0])}." if bandwidth.value else None
    return Section(
        key="ceiling", title=title, lead=lead, pictures=(picture,), grids=(_grid(found),), lines=_lines(found)
    )


def _title(known: Sequence[Ceiling]) -> str:
    """Name the arm that comes nearest to the limit, of those whose share is known."""
    shares = {one.arm: one.share.value for one in known if one.share.value is not None}
    if not shares:
        return "The memory's bandwidth sets a ceiling; the share reached is unknown"
    best = max(shares, key=lambda arm: shares[arm])
    return f"{in_a_headline(best)} reaches {percent(shares[best])} of what the memory's bandwidth allows"


def _bandwidth(one: Ceiling) -> str:
    found = one.bandwidth_bytes_per_s
    return f"{size(found.value)}/s ({found.source})"


def _lines(found: Sequence[Ceiling]) -> tuple[str, ...]:
    """Return why figures are missing, with arms grouped by reason, then each arm's note."""
    reasons: dict[str, list[str]] = {}
    for one in found:
        for what, figure in (("no ceiling", one.ceiling_passes_per_s), ("share unknown", one.share)):
            if figure.value is None:
                reasons.setdefault(f"{what}: {figure.source}", []).append(one.arm)
                break
    lines = [f"{', '.join(arms)}: {reason}" for reason, arms in reasons.items()]
    return tuple(ended(line) for line in (*lines, *(f"{one.arm}: {one.note}" for one in found if one.note)))


def _grid(found: Sequence[Ceiling]) -> Grid:
    rows = tuple(
        (
            one.arm,
            size(one.weights_bytes.value),
            size(one.draft_bytes.value) if one.draft_bytes.value else MISSING,
            size(one.kv_bytes.value),
            number(one.measured_passes_per_s),
            number(one.ceiling_passes_per_s.value),
            percent(one.share.value),
            number(one.measured_tps),
            number(one.ceiling_tps.value),
        )
        for one in found
    )
    columns = ("arm", "weights", "draft", "cache", "passes/s", "at most", "reached", "tokens/s", "at most")
    return Grid(columns=columns, rows=rows, numeric=frozenset(range(1, len(columns)))).without_empty()
