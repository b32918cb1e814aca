"""The metrics that an audit or a history compares, each declared once: columns of `generation`. Imports nothing."""

_DECLARED = (  # name, words, whether less is faster; the first is the default
    ("end_to_end_tps", "end-to-end rate (tokens/s)", False),
    ("decode_tps", "decode rate (tokens/s)", False),
    ("prefill_tps", "prefill rate (tokens/s)", False),
    ("ttft_s", "time to first token (s)", True),
)
METRICS = tuple(name for name, _, _ in _DECLARED)
METRIC_WORDS = {name: words for name, words, _ in _DECLARED}
LOWER_IS_FASTER = frozenset(name for name, _, lower in _DECLARED if lower)
