"""The words that several places use, each declared once. Pure, and free of imports that take time."""

from db.vocabulary import DEFAULT_METRIC, METRICS, QUERY_FORMATS, VERDICTS, Metric, Verdict

__all__ = ["DEFAULT_METRIC", "IMPORT_FORMATS", "METRICS", "QUERY_FORMATS", "VERDICTS", "Metric", "Verdict", "mark"]


def mark(verdict: str, direction: str | None) -> tuple[str, str]:
    """Return the sign and the tone of a verdict; those of a supported one say which way it points."""
    if verdict == "supported" and direction is not None:
        return ("\u25b2", "good") if direction == "faster" else ("\u25bc", "bad")
    return VERDICTS[verdict].sign, VERDICTS[verdict].tone


# Files of other tools that `db import` reads, each by a module of its own in `orchestrator.importers`.
IMPORT_FORMATS = ("llama-bench", "mlx-chronos", "dflash-mlx", "guidellm", "vllm-bench", "llama-benchy")

DIRECTIONS = ("slower", "faster")  # of a supported comparison
