"""Prints a document in the form that `--format` names. Loads rich."""

import sys
from collections.abc import Mapping
from typing import Any

from orchestrator.report.document import Document
from orchestrator.report.render_json import render_json
from orchestrator.report.render_markdown import render_markdown
from orchestrator.report.render_terminal import print_document
from orchestrator.views.terminal import console


def show(document: Document, values: Mapping[str, Any], style: str) -> None:
    """Print the document, or as JSON the values that it was made of."""
    if style == "json":
        sys.stdout.write(render_json(values))
    elif style == "markdown":
        sys.stdout.write(render_markdown(document, images=None))
    else:
        print_document(document, console())
