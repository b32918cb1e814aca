"""The words that several places use, each declared once. Pure, and free of imports that take time."""

from dataclasses import dataclass

from db.metrics import LOWER_IS_FASTER, METRIC_WORDS, METRICS

__all__ = ["IMPORT_FORMATS", "LOWER_IS_FASTER", "METRICS", "METRIC_WORDS", "VERDICTS", "Verdict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One of the judgements of a comparison; what each needs stands in `orchestrator.audit`."""

    name: str  # as stored and typed
    words: str
    sign: str  # colour is never the only sign
    tone: str  # its colour: see the palettes of the terminal and of the report
    usable: bool  # whether the ratio is what it says it is


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

# Files of other tools that `db import` reads, each by a module of its own in `orchestrator.importers`.
IMPORT_FORMATS = ("llama-bench", "mlx-chronos", "dflash-mlx", "guidellm", "vllm-bench", "llama-benchy")
