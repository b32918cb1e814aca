"""The charts: valid specifications, clean drawings, files."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import altair as alt
import pytest

from orchestrator.errors import InputError
from orchestrator.report.charts.theme import COLOURS, NARROW, WIDE, Layout, Palette, drawing, ratio_reach, ratio_ticks
from orchestrator.report.charts.timeline import MOST_TOGETHER, timeline
from orchestrator.report.charts.vega import mark, nominal
from orchestrator.report.course import Course, Spot
from orchestrator.report.document import Document
from orchestrator.report.drawing import svg_alone, svg_for_page
from orchestrator.report.writing import check_targets, write_images


@pytest.mark.slow
@pytest.mark.parametrize("layout", [WIDE, NARROW])
def test_every_chart_is_valid_vega_lite(report: Document, layout: Layout) -> None:
    """Return the pictures of every kind that this run has; ceilings and passes have separate tests."""
    for picture in report.pictures:
        alt.Root.validate(picture.draw(layout).spec)


@pytest.mark.slow
@pytest.mark.parametrize("layout", [WIDE, NARROW])
def test_each_of_many_treatments_has_a_panel(layout: Layout) -> None:
    arms = tuple(f"arm {number}" for number in range(MOST_TOGETHER + 1))
    spots = [
        Spot(at=float(at), label=arm, kind="measured", state="used", relative=1.1, thermal=at % 4, wait_s=1.0)
        for at, arm in enumerate(("plain", *arms))
    ]
    course = Course(
        spots=tuple(spots), drift=((0.0, 1.0), (7.0, 0.9)), pauses=((3.0, 3600.0),), by_time=True,
        thermal_reason=None, drawn_together=1,
    )  # fmt: skip
    palette = Palette(control="plain", arms=arms)
    made = timeline(course, palette=palette, ratios={"arm 0": 1.1}, lower_is_faster=False, layout=layout)
    alt.Root.validate(made.spec)
    texts = list(ET.fromstring(svg_alone(made).encode()).itertext())
    assert [text for text in texts if text in arms] == list(arms)
    assert texts.count("paused 60 min") == len(arms)


def test_reports_are_drawn_without_altair() -> None:
    """It is for tests, and not installed where reports are made."""
    modules = ("loading", "building", "render_markdown", "render_html", "writing")  # what the command imports
    lines = [f"import orchestrator.report.{name}" for name in modules]
    subprocess.run([sys.executable, "-c", "\n".join(("import sys; sys.modules['altair'] = None", *lines))], check=True)


def test_a_drawing_has_no_words_for_each_mark_and_no_styles(page: str) -> None:
    drawings = re.findall(r"<svg .*?</svg>", page, flags=re.S)
    assert len(drawings) > 8
    for text in drawings:
        root = ET.fromstring(text)
        names = {key for element in root.iter() for key in element.attrib if element is not root}
        assert not names & {"aria-label", "aria-roledescription", "role", "class", "style", "href"}
        assert root.get("role") == "img"


def test_the_page_names_colours_and_a_picture_that_stands_alone_has_them(report: Document) -> None:
    made = report.pictures[0].draw(WIDE)
    on_page, alone = svg_for_page(made, name="a", label="b"), svg_alone(made)
    assert "var(--control)" in on_page
    assert "#" not in on_page.replace("url(#", "")
    assert "var(" not in alone
    assert COLOURS["control"].light in alone


def test_every_colour_can_be_found_by_its_light_value() -> None:
    assert len({colour.light for colour in COLOURS.values()}) == len(COLOURS)


@pytest.mark.parametrize(
    "name", [name for name in COLOURS if name.startswith("arm") or name in ("ink", "muted", "control")]
)
def test_lines_and_words_stand_out_from_the_paper(name: str) -> None:
    """WCAG 2: 4.5 for text."""
    for side in ("light", "dark"):
        pair = [luminance(getattr(COLOURS[each], side)) for each in (name, "paper")]
        assert (max(pair) + 0.05) / (min(pair) + 0.05) >= 4.5, (name, side)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_arms_of_one_colour_differ_in_shape() -> None:
    palette = Palette(control="c", arms=tuple(f"arm {number}" for number in range(30)))
    looks = {(palette.colour(arm), palette.shape(arm)) for arm in palette.arms}
    assert len(looks) == 30


@pytest.mark.parametrize(("low", "high"), [(0.98, 1.03), (0.5, 2.1), (0.08, 1.2), (0.9, 14.0), (1e-3, 1e3)])
def test_ticks_are_few_inside_and_hold_one(low: float, high: float) -> None:
    ticks = ratio_ticks(low, high)
    assert 2 <= len(ticks) <= 7
    assert all(low <= tick <= high for tick in ticks)
    assert any(abs(tick - 1) < 1e-9 for tick in ticks)


def test_an_axis_of_ratios_holds_its_values_and_one() -> None:
    low, high = ratio_reach([1.2, 1.3])
    assert low < 1 < 1.3 < high


def test_hostile_words_in_a_chart_are_text() -> None:
    rows = {"rows": [{"x": "</svg><script>alert(1)</script>\x1b\x00\u202e"}]}
    made = drawing(mark("text", "rows", text=nominal("x")), WIDE, rows)
    root = ET.fromstring(svg_for_page(made, name="a", label="b"))
    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {"svg", "g", "text", "path", "rect"}
    (text,) = (element.text for element in root.iter("{http://www.w3.org/2000/svg}text"))
    assert text == "</svg><script>alert(1)</script>␛␀⟨U+202E⟩"


def test_images_are_written_for_each_chart(report: Document, tmp_path: Path) -> None:
    one = Document(
        title="t",
        about=(),
        warnings=(),
        verdict="v",
        lines=(),
        sections=tuple(s for s in report.sections if s.key == "ratios"),
    )
    assert write_images(one, tmp_path / "new" / "folder") == 2
    assert (tmp_path / "new/folder/ratios.png").read_bytes().startswith(b"\x89PNG")
    assert "clear of" in "".join(ET.parse(tmp_path / "new/folder/ratios.svg").getroot().itertext())


def test_a_folder_is_not_written_over(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a folder is there; name a file, such as .*report\.html"):
        check_targets(tmp_path, None, None)
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InputError, match="a file is there; name a folder"):
        check_targets(tmp_path / "a.html", file, None)
