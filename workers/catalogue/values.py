"""Values in a server's answers: at paths in JSON, as counts, and in the text of its metrics. Pure."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

_SAMPLE = re.compile(
    r"""\s*(?P<name>[A-Za-z_:][\w:]*)
        \s*(?:\{(?:[^"{}]|"(?:[^"\\]|\\.)*")*\})?  # labels, whose values may hold braces and escaped quotes
        \s*(?<=[\s}])(?P<value>[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|NaN|[iI]nf))
        (?:\s.*)?$""",  # a timestamp, an exemplar
    re.VERBOSE | re.ASCII,
)


def lookup(body: Any, path: str, *, model: str = "") -> Any:
    """The value at a path such as `a.b[id={model}].c`; None where it does not lead anywhere.

    `[key=text]` takes the element of a list whose key is that text, `[]` the only element. A path may name a key that
    holds dots whole, as metrics' names do.
    """
    if isinstance(body, Mapping) and path in body:
        return body[path]
    for step in re.findall(r"[^.\[\]]+(?:\[[^\]]*\])?", path):
        name, _, rest = step.partition("[")
        body = body.get(name) if isinstance(body, Mapping) else None
        if rest:
            body = _element(body, rest.removesuffix("]"), model)
        if body is None:
            return None
    return body


def parse_prometheus(text: str) -> dict[str, float]:
    """Metrics by name, summed over their labels. Timestamps and exemplars are ignored, and lines that are no samples.

    Format: Prometheus text exposition 0.0.4, and OpenMetrics 1.0 for exemplars.
    """
    found: dict[str, float] = {}
    for line in text.split("\n"):
        if matched := _SAMPLE.match(line):
            found[matched["name"]] = found.get(matched["name"], 0.0) + float(matched["value"])
    return found


def count_of(value: Any) -> int | None:
    """The value as a count; None for anything that is not a finite number, such as `true` or a text."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value)


def growth(before: Any, after: Any, path: str | None, model: str) -> int | None:
    """The growth of a counter; None if it is missing. A counter that appears with its first use started at 0."""
    if path is None or (new := count_of(lookup(after, path, model=model))) is None:
        return None
    old = lookup(before, path, model=model)
    return new - (count_of(old) or 0)


def _element(body: Any, selector: str, model: str) -> Any:
    if not isinstance(body, Sequence) or isinstance(body, str):
        return None
    if not selector:
        return body[0] if len(body) == 1 else None
    key, _, wanted = selector.partition("=")
    wanted = wanted.replace("{model}", model)
    return next((each for each in body if isinstance(each, Mapping) and str(each.get(key)) == wanted), None)
