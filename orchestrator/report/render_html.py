"""A report as one HTML page: no script, nothing loaded from elsewhere, readable by day, by night and on a phone.

The template makes control and directional characters visible, then escapes all that it prints. The only ready markup
are the drawings of `orchestrator.report.drawing`, which hold shapes and text only. The page's policy lets a browser
apply this one style sheet and load nothing.
"""

import base64
import hashlib
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from orchestrator.report.charts.theme import COLOURS, NARROW, TONES, WIDE
from orchestrator.report.document import Document, Picture
from orchestrator.report.drawing import svg_for_page
from orchestrator.report.words import shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A picture in its two widths; the page shows one."""

    wide: Markup
    narrow: Markup


def render_page(report: Document) -> str:
    """Return the page's text."""
    environment = Environment(
        loader=PackageLoader("orchestrator.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finalized,
        trim_blocks=False,
    )
    css = style_sheet(environment)
    return environment.get_template("page.html.j2").render(
        report=report,
        css=Markup(css),  # our own file, without values in it
        policy=policy(css),
        drawings={picture.key: _drawn(picture) for picture in report.pictures},
    )


def finalized(value: Any) -> Any:
    """Make text safe to show; leave markup as it is."""
    return shown(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def policy(css: str) -> str:
    """Return the page's policy: a browser may apply the style sheet with this hash, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(css.encode("utf-8")).digest()).decode("ascii")
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"


def style_sheet(environment: Environment) -> str:
    """Return the variables of both colour schemes, then the rules. Printed pages are always light."""
    light = "".join(f"--{name}:{colour.light};" for name, colour in COLOURS.items())
    dark = "".join(f"--{name}:{colour.dark};" for name, colour in COLOURS.items())
    tones = "".join(f".tone-{tone}{{color:var(--{name})}}" for tone, name in TONES.items())
    rules = environment.get_template("page.css").render()
    return (
        f":root{{color-scheme:light dark;{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
        f"{tones}\n{rules}"
    )


def _drawn(picture: Picture) -> Drawn:
    sides = {
        name: Markup(svg_for_page(picture.draw(layout), name=f"{picture.key}-{name}", label=picture.title))
        for name, layout in (("wide", WIDE), ("narrow", NARROW))
    }
    return Drawn(**sides)
