"""Charts that a simulated run has nothing for: ceilings and passes by width, from values."""

from dataclasses import replace

import altair as alt
import pytest

from orchestrator.analysis.findings import Ceiling, Figure, PassCurve
from orchestrator.report.charts.theme import NARROW, WIDE, Layout
from orchestrator.report.drawing import drawn, svg_alone
from orchestrator.report.material import Material
from orchestrator.report.parts import Section
from orchestrator.report.sections.meaning import ceiling_section, widths_section


def figure(value: float | None, source: str = "measured") -> Figure:
    return Figure(value=value, source=source)


def ceiling(arm: str, *, reached: float, allowed: float | None) -> Ceiling:
    return Ceiling(
        arm=arm,
        speculates=False,
        weights_bytes=figure(9e7),
        draft_bytes=figure(0.0),
        kv_bytes=figure(1e6),
        context_tokens=100.0,
        bytes_per_pass=figure(9.1e7),
        bandwidth_bytes_per_s=figure(2e10),
        ceiling_passes_per_s=figure(allowed, "no bandwidth is known"),
        ceiling_tps=figure(allowed),
        measured_passes_per_s=reached,
        measured_tps=reached,
        share=figure(None if allowed is None else reached / allowed),
        note=None,
    )


CURVES = tuple(
    PassCurve(
        checkpoint=name,
        role="target",
        seconds=((1, 0.01), (8, 0.01 * slope)),
        cost=((1, 1.0), (2, 1 + (slope - 1) / 7), (8, slope)),
        source="timed after the run",
    )
    for name, slope in (("four bits", 5.2), ("plain weights", 1.4))
)


@pytest.fixture
def with_values(material: Material) -> Material:
    ceilings = (ceiling("plain", reached=120.0, allowed=219.0), ceiling("width 4", reached=60.0, allowed=219.0))
    return replace(material, findings=replace(material.findings, ceilings=ceilings, pass_curves=CURVES))


@pytest.mark.parametrize("layout", [WIDE, NARROW])
def test_ceilings_are_drawn_with_the_share_reached(with_values: Material, layout: Layout) -> None:
    section = ceiling_section(with_values, with_values.findings)
    assert isinstance(section, Section)
    (picture,) = section.pictures
    assert picture.title == "plain reaches 55\u00a0% of what the memory's bandwidth allows"
    made = drawn(picture, layout)
    alt.Chart.from_dict(made.spec, validate=True)
    assert "55\u00a0% of 219" in svg_alone(made)


def test_an_unknown_ceiling_says_why(with_values: Material) -> None:
    unknown = (ceiling("plain", reached=120.0, allowed=None),)
    found = ceiling_section(with_values, replace(with_values.findings, ceilings=unknown))
    assert not isinstance(found, Section)
    assert found.reason == "no bandwidth is known"


def test_passes_are_drawn_by_width(with_values: Material) -> None:
    section = widths_section(with_values, with_values.findings)
    assert isinstance(section, Section)
    picture = next(picture for picture in section.pictures if picture.key == "passes")
    assert picture.title.startswith("A pass of 8 tokens through four bits takes 5.20 times")
    made = drawn(picture, WIDE)
    alt.Chart.from_dict(made.spec, validate=True)
    assert "plain weights (target)" in svg_alone(made)
