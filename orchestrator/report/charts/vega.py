"""Vega-Lite as plain values: https://vega.github.io/vega-lite/docs/. Pure.

The tests check every chart against the schema of Vega-Lite.
"""

from typing import Any

Spec = dict[str, Any]  # JSON of Vega-Lite: a chart, or a part of one


def mark(kind: str, rows: str, *filters: str | Spec, **properties: Any) -> Spec:
    """Return one layer: a mark for every row that passes the filters.

    Args:
        kind: rule, point, text, ...
        rows: the name of the data set.
        filters: expressions of `datum`, or predicates.
        properties: a dictionary is a channel, such as `quantitative` makes; other values hold for all marks.
    """
    channels = {name: value for name, value in properties.items() if isinstance(value, dict)}
    looks = {name: value for name, value in properties.items() if name not in channels}
    return {
        "data": {"name": rows},
        "transform": [{"filter": each} for each in filters],
        "mark": {"type": kind, **looks},
        "encoding": channels,
    }


def quantitative(field: str, **properties: Any) -> Spec:
    """Return a channel of numbers. For another field write `channel | {"field": other}`."""
    return {"field": field, "type": "quantitative", **properties}


def nominal(field: str, **properties: Any) -> Spec:
    """Return a channel of names."""
    return {"field": field, "type": "nominal", **properties}
