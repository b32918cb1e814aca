"""Charts as SVG and PNG: for a page, which has its own colours, and as separate pictures.

vl-convert draws without a browser, with all network addresses forbidden. Its output is parsed as XML, and only shapes,
text and their looks are kept: no scripts, no links, no styles, no descriptions of marks.
"""

import re
import xml.etree.ElementTree as ET
from typing import Any

import vl_convert

from orchestrator.report.charts.theme import COLOURS, Drawing
from orchestrator.report.words import shown_line

SVG = "http://www.w3.org/2000/svg"
_PREFIX = f"{{{SVG}}}"
_ELEMENTS = frozenset("svg g path line rect text tspan circle defs clipPath".split())
_ATTRIBUTES = frozenset(
    (
        "d transform x y x1 x2 y1 y2 dx dy r cx cy width height viewBox id clip-path opacity fill fill-opacity stroke"
        " stroke-width stroke-dasharray stroke-linecap stroke-linejoin stroke-opacity text-anchor font-size font-weight"
        " font-style"
    ).split()
)
_NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
_NAMES = {colour.light: name for name, colour in COLOURS.items()}
PIXELS_A_PX = 2.0


def cleaned(value: Any) -> Any:
    """Return the value with all its texts made visible: a control character is not valid XML."""
    if isinstance(value, str):
        return shown_line(value)
    if isinstance(value, dict):
        return {key: cleaned(each) for key, each in value.items()}
    return [cleaned(each) for each in value] if isinstance(value, list | tuple) else value


def svg_for_page(drawing: Drawing, *, name: str, label: str) -> str:
    """Return an `<svg>` element whose colours are the page's variables.

    Args:
        name: unique on the page; used for its clip paths.
        label: describes the picture to readers who do not see it.
    """
    root = _cleaned(_drawn(drawing))
    for element in root.iter():
        for key in ("fill", "stroke"):
            if (found := _NAMES.get(element.get(key, ""))) is not None:
                element.set(key, f"var(--{found})")
        for key in ("id", "clip-path"):
            if (value := element.get(key)) is not None:
                element.set(key, value.replace("#", f"#{name}-") if key == "clip-path" else f"{name}-{value}")
    root.set("role", "img")
    root.set("aria-label", shown_line(label))
    return _written(root)


def svg_alone(drawing: Drawing) -> str:
    """Return a picture on white, as a file's text."""
    root = _cleaned(_drawn(drawing))
    root.set("font-family", "Helvetica Neue, Helvetica, Arial, sans-serif")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + _written(root) + "\n"


def png_alone(drawing: Drawing) -> bytes:
    """Return the same picture as PNG, at twice its resolution in px."""
    made: bytes = vl_convert.vegalite_to_png(cleaned(drawing.spec), scale=PIXELS_A_PX, allowed_base_urls=[])
    return made


def _drawn(drawing: Drawing) -> ET.Element:
    return ET.fromstring(vl_convert.vegalite_to_svg(cleaned(drawing.spec), allowed_base_urls=[]))


def _cleaned(element: ET.Element) -> ET.Element:
    """Return the element with only its shapes, and coordinates to a tenth of a px."""
    kept = ET.Element(element.tag.removeprefix(_PREFIX))
    kept.text, kept.tail = element.text, None
    for key, value in element.attrib.items():
        if key in _ATTRIBUTES:
            kept.set(key, _NUMBER.sub(_rounded, value) if key in ("d", "transform", "x", "y", "x2", "y2") else value)
    for child in element:
        if child.tag.removeprefix(_PREFIX) in _ELEMENTS and _visible(child):
            kept.extend(_opened(_cleaned(child)))
    return kept


def _opened(element: ET.Element) -> list[ET.Element]:
    """Replace a group without its own looks by its children, and drop a group without children."""
    if element.tag != "g":
        return [element]
    looks = {key: value for key, value in element.attrib.items() if (key, value) != ("transform", "translate(0,0)")}
    if not looks or not len(element):
        return list(element)
    element.attrib = looks
    return [element]


def _visible(element: ET.Element) -> bool:
    if element.get("display") == "none":
        return False
    if element.tag == f"{_PREFIX}path":
        return bool(element.get("d")) and not (
            element.get("class") == "background" and element.get("fill") is None and element.get("stroke") is None
        )
    return True


def _rounded(match: re.Match[str]) -> str:
    number = float(match[0])
    return f"{number:.2f}".rstrip("0").rstrip(".") if abs(number) < 10 else f"{number:.1f}".removesuffix(".0")


def _written(root: ET.Element) -> str:
    root.set("xmlns", SVG)
    return ET.tostring(root, encoding="unicode")
