"""Datasette's plugin that writes cells; needs Datasette, so that `serving` imports it last."""

from datasette import hookimpl

from orchestrator.explore.site import shown_cell


def _render(value: object) -> str | None:
    return shown_cell(value)


render_cell = hookimpl(_render)
