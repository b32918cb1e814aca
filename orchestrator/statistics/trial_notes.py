"""Notes on an arm's trials: left out, replayed, or counted although they ran early. Pure."""

import pandas as pd

from orchestrator.statistics.comparability import Reason


def left_out(measured: pd.DataFrame, arm: str) -> tuple[Reason, ...]:
    """Report how many of the arm's trials are not used, and why."""
    with_its_round = (measured["status"] == "done") & measured["excluded_reason"].isna() & measured["y"].notna()
    unused = measured[(measured["label"] == arm) & ~measured["usable"] & ~with_its_round].drop_duplicates("sequence")
    if unused.empty:
        return ()
    status = unused["status"].replace("done", "without the metric")  # its flags say why
    why = unused["excluded_reason"].astype(object).where(unused["excluded_reason"].notna(), status)
    why = unused["error_kind"].astype(object).where(unused["error_kind"].notna(), why)
    counts = ", ".join(f"{count} {name}" for name, count in why.value_counts().items())
    noun = "trial" if len(unused) == 1 else "trials"
    return (Reason(code="left_out", text=f"{arm}: {len(unused)} {noun} left out ({counts})"),)


def replays(trials: pd.DataFrame) -> tuple[Reason, ...]:
    """Report how often rounds were run again, and why, although the replayed attempts no longer count."""
    rows = trials[(trials["kind"] == "measured") & trials["round"].notna()]
    replaced = rows[rows["attempt"] < rows.groupby("round")["attempt"].transform("max")]
    left_out = replaced.dropna(subset=["excluded_reason"])
    if left_out.empty:
        return ()
    causes = left_out["excluded_reason"].astype(str).str.removeprefix("round_replayed: ").drop_duplicates()
    count = len(left_out[["round", "attempt"]].drop_duplicates())
    times = "once" if count == 1 else f"{count} times"
    return (Reason(code="replayed", text=f"a round was replayed {times} ({'; '.join(causes)})"),)


def hot_starts(measured: pd.DataFrame, arm: str) -> tuple[Reason, ...]:
    """Report the arm's trials that count although their gate timed out before its condition was met."""
    hot = (measured["gate_state"] == "hot_start").fillna(value=False).astype(bool)  # NULL: from before there were gates
    rows = measured[(measured["label"] == arm) & measured["usable"] & hot]
    count = rows["sequence"].nunique()
    if not count:
        return ()
    words = "trial ran before the machine was quiet, and counts"
    if count > 1:
        words = "trials ran before the machine was quiet, and count"
    return (Reason(code="hot_start", text=f"{arm}: {count} {words}"),)


def was_replayed(trials: pd.DataFrame) -> bool:
    rows = trials[(trials["kind"] == "measured") & trials["round"].notna()]
    return bool((rows["attempt"] > 0).fillna(value=False).any())
