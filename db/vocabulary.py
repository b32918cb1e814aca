"""The words that rows may hold and several places use, each declared once. Pure; imports nothing that takes time."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A speed that an audit or a history compares."""

    name: str  # a column of `generation`
    words: str
    lower_is_faster: bool = False


METRICS = {
    one.name: one
    for one in (
        Metric(name="end_to_end_tps", words="end-to-end rate (tokens/s)"),
        Metric(name="decode_tps", words="decode rate (tokens/s)"),
        Metric(name="prefill_tps", words="prefill rate (tokens/s)"),
        Metric(name="ttft_s", words="time to first token (s)", lower_is_faster=True),
    )
}
DEFAULT_METRIC = next(iter(METRICS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One of the judgements of a comparison; `orchestrator.audit` lists what each requires."""

    name: str  # as stored and typed
    words: str
    sign: str  # colour is never the only sign
    tone: str  # its colour: see the palettes of the terminal and of the report
    usable: bool  # whether the ratio can be taken at face value


VERDICTS = {
    one.name: one
    for one in (
        Verdict(name="supported", words="supported", sign="✔", tone="good", usable=True),
        Verdict(name="no_difference", words="no difference", sign="=", tone="calm", usable=True),
        Verdict(name="could_be_drift", words="could be drift", sign="≈", tone="doubt", usable=True),
        Verdict(name="not_engaged", words="not engaged", sign="✕", tone="bad", usable=False),
        Verdict(name="confounded", words="confounded", sign="⚠", tone="odd", usable=False),
        Verdict(name="underpowered", words="underpowered", sign="…", tone="muted", usable=False),
    )
}

EntryState = Literal["waiting", "done", "failed", "cancelled"]  # of a run's place in the queue

# The forms in which a query's rows are printed or written.
QUERY_FORMATS = ("table", "csv", "json", "markdown", "parquet")
