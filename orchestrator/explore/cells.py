"""Datasette's plugin that writes cells and gives pages their nonce. It needs Datasette: `server` imports it last."""

from typing import Any

from datasette import hookimpl

from orchestrator.explore.nonces import variables
from orchestrator.explore.site import shown_cell


def _render(value: object) -> str | None:
    return shown_cell(value)


def _variables(request: Any) -> dict[str, str]:
    return variables(request)


render_cell = hookimpl(_render)
extra_template_vars = hookimpl(_variables)
