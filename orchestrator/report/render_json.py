"""An audit as JSON: all its values, without its sentences."""

import json
from dataclasses import asdict

from orchestrator.jsonable import bounded
from orchestrator.report.material import Material
from orchestrator.report.warnings import warnings


def render_json(material: Material) -> str:
    """Return one JSON object; numbers that are not finite are null."""
    body = {"run_id": material.run.run_id} | asdict(material.result) | {"findings": asdict(material.findings)}
    body |= {"caveats": [f"{word.lower()}: {text}" for word, text in warnings(material)]}
    return json.dumps(bounded(body), indent=1, allow_nan=False) + "\n"
