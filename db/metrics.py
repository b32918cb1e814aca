"""The metrics that an audit or a history compares: columns of `generation`. Imports nothing."""

METRICS = ("end_to_end_tps", "decode_tps", "prefill_tps", "ttft_s")
