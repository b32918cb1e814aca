"""A document's values as JSON: all of them, not its words."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from orchestrator.jsonable import bounded
from orchestrator.report.material import Material
from orchestrator.report.warnings import warnings


def render_json(values: Mapping[str, Any]) -> str:
    """Return one JSON object; numbers that are not finite are null."""
    return json.dumps(bounded(dict(values)), indent=1, allow_nan=False) + "\n"


def audit_values(material: Material) -> dict[str, Any]:
    """The values of an audit."""
    body = {"run_id": material.run.run_id} | asdict(material.result) | {"findings": asdict(material.findings)}
    return body | {"caveats": [f"{word.lower()}: {text}" for word, text in warnings(material)]}
