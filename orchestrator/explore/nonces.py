"""Datasette's pages under a policy that allows only the scripts and styles of its templates.

Its templates hold scripts and styles in the page itself. Each of these gets the request's nonce, and attributes `style`
go: both in the templates' source, before any data is filled in, so that what a model wrote never gets a nonce.
"""

import re
from typing import Any

from jinja2.ext import Extension

VARIABLE = "csp_nonce"  # of the templates, and of the request's scope
_INLINE = re.compile(r"<(script|style)(?=[\s>{])")
_STYLE_ATTRIBUTE = re.compile(r'\sstyle="(?:\{\{.*?\}\}|[^"{])*"')


class Nonces(Extension):
    """The change of the templates."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        """A template's source with nonces and without styles in attributes."""
        bare = _STYLE_ATTRIBUTE.sub("", source)
        return _INLINE.sub(rf'<\1 nonce="{{{{ {VARIABLE} }}}}"', bare)


def variables(request: Any) -> dict[str, str]:
    """The templates' variable for one request."""
    return {VARIABLE: request.scope.get(VARIABLE, "") if request is not None else ""}
