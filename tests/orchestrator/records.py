"""Worker records for tests: a plausible generation, changed where a test needs it."""

from dataclasses import replace
from typing import Any

from workers.protocol import Evidence, Generation

PLAIN = Evidence(
    mechanism="plain", requested=False, engaged=False, useful=False, source="test", text="no draft model loaded"
)
ENGAGED = Evidence(
    mechanism="draft_model",
    requested=True,
    engaged=True,
    useful=True,
    source="test",
    text="drafted 6, accepted 4",
    drafted=6,
    accepted=4,
)


def generation(**changes: Any) -> Generation:
    """Ten prompt tokens in 1 s, then 4 tokens 0.5 s apart."""
    base = Generation(
        request_id="r",
        turn=0,
        started_at="2026-01-01T00:00:00+00:00",
        prompt_tokens=10,
        cached_tokens=0,
        token_ids=[1, 2, 3, 4],
        stamps_us=[1_000_000, 1_500_000, 2_000_000, 2_500_000],
        text="text",
        finish_reason="length",
        steps=None,
        evidence=[PLAIN],
        prompt_sha256="0" * 64,
        engine_prefill_tps=None,
        engine_decode_tps=None,
        peak_memory_bytes=None,
    )
    return replace(base, **changes)
