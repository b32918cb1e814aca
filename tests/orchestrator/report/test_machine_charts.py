"""Charts that a simulated run has nothing for: ceilings and passes by width, from values."""

from dataclasses import replace
from typing import Any

import altair as alt
import pytest

from orchestrator.findings.values import Ceiling, Figure, PassCurve, WidthCurve, WidthPoint
from orchestrator.report.charts.theme import NARROW, WIDE, Layout
from orchestrator.report.document import Section
from orchestrator.report.drawing import svg_alone
from orchestrator.report.material import Material
from orchestrator.report.sections.ceiling import ceiling_section
from orchestrator.report.sections.speculation import widths_section


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


def with_findings(material: Material, **values: Any) -> Material:
    return replace(material, findings=replace(material.findings, **values))


def test_a_share_that_is_unknown_is_no_share_of_0(with_values: Material) -> None:
    """The arm that comes nearest is one whose share is known, and without any the title claims none."""
    known = ceiling("plain", reached=120.0, allowed=219.0)
    unknown = replace(known, arm="width 4", share=Figure(value=None, source="its passes were not counted"))
    section = ceiling_section(with_findings(with_values, ceilings=(unknown, known)))
    assert isinstance(section, Section)
    assert section.pictures[0].title.startswith("plain reaches 55")
    assert "width 4: share unknown: its passes were not counted." in section.lines
    section = ceiling_section(with_findings(with_values, ceilings=(unknown,)))
    assert isinstance(section, Section)
    assert "unknown" in section.pictures[0].title
    assert "0" not in section.pictures[0].title


@pytest.fixture
def with_values(material: Material) -> Material:
    ceilings = (ceiling("plain", reached=120.0, allowed=219.0), ceiling("width 4", reached=60.0, allowed=219.0))
    return replace(material, findings=replace(material.findings, ceilings=ceilings, pass_curves=CURVES))


@pytest.mark.parametrize("layout", [WIDE, NARROW])
def test_ceilings_are_drawn_with_the_share_reached(with_values: Material, layout: Layout) -> None:
    section = ceiling_section(with_values)
    assert isinstance(section, Section)
    (picture,) = section.pictures
    assert picture.title == "plain reaches 55\u00a0% of what the memory's bandwidth allows"
    made = picture.draw(layout)
    alt.Root.validate(made.spec)
    assert "55\u00a0% of 219" in svg_alone(made)


def test_an_unknown_ceiling_says_why(with_values: Material) -> None:
    unknown = (ceiling("plain", reached=120.0, allowed=None),)
    found = ceiling_section(with_findings(with_values, ceilings=unknown))
    assert not isinstance(found, Section)
    assert found.reason == "no bandwidth is known"


@pytest.mark.parametrize("layout", [WIDE, NARROW])
def test_passes_are_drawn_by_width(with_values: Material, layout: Layout) -> None:
    section = widths_section(with_values)
    assert isinstance(section, Section)
    picture = next(picture for picture in section.pictures if picture.key == "passes")
    assert picture.title.startswith("A pass of 8 tokens through four bits takes 5.20 times")
    made = picture.draw(layout)
    alt.Root.validate(made.spec)
    assert "plain weights (target)" in svg_alone(made)


def width_curve(arms: str, prompt_class: str | None, best: float = 2.0) -> WidthCurve:
    points = tuple(
        WidthPoint(
            width=width,
            accept_length=1 + 0.6 * (width - 1),
            verify_cost=1 + 0.1 * (width - 1),
            draft_cost=0.0,
            round_cost=1 + 0.1 * (width - 1),
            predicted=(1 + 0.6 * (width - 1)) / (1 + 0.1 * (width - 1)),
            interpolated=False,
            arm=None,
            measured_accept_length=None,
            measured=None,
        )
        for width in (1, 2, 4)
    )
    return WidthCurve(
        arms=arms, engine="dflash", checkpoint="c", draft="d", prompt_class=prompt_class, points=points,
        best=figure(best), at_edge=False, best_measured=2, source="timed",
    )  # fmt: skip


@pytest.mark.parametrize("layout", [WIDE, NARROW])
def test_of_several_kinds_of_arms_each_has_one_curve_with_its_name(material: Material, layout: Layout) -> None:
    curves = tuple(width_curve(arms, kind) for arms in ("draft kept", "draft lost") for kind in (None, "code"))
    section = widths_section(with_findings(material, width_curves=curves))
    assert isinstance(section, Section)
    picture = next(picture for picture in section.pictures if picture.key == "widths")
    assert picture.title == "The predicted best width is 2 for every arm"
    drawn_text = svg_alone(picture.draw(layout))
    assert "draft kept" in drawn_text
    assert "draft lost" in drawn_text
    assert "code" not in drawn_text
    assert [line for line in section.lines if "best width" in line] == [
        f"{arms} on c, all prompts, code: predicted best width 2 (1.45\u00d7); of those that ran, 2 was the fastest."
        for arms in ("draft kept", "draft lost")
    ]


def test_of_one_kind_of_arms_each_kind_of_prompts_has_a_curve(material: Material) -> None:
    curves = tuple(width_curve("draft", kind, best) for kind, best in ((None, 2.0), ("code", 4.0)))
    section = widths_section(with_findings(material, width_curves=curves))
    assert isinstance(section, Section)
    picture = next(picture for picture in section.pictures if picture.key == "widths")
    assert picture.title == "The best width depends on the prompts: 2 for all prompts, 4 for code"
