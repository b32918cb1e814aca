"""Two runs to compare."""

from dataclasses import replace
from typing import Any

from orchestrator.audit import Comparison


def comparison(treatment: str = "b", **changes: Any) -> Comparison:
    base = Comparison(
        treatment=treatment,
        control="a",
        prompt_class=None,
        turn=None,
        metric="end_to_end_tps",
        verdict="supported",
        direction="faster",
        ratio=1.2,
        ci_low=1.18,
        ci_high=1.22,
        p_value=0.01,
        family_p=None,
        rounds=8,
        wins=8,
        aa_ratio=1.0,
        aa_low=0.99,
        aa_high=1.01,
        engaged_share=None,
        included=None,
        reasons=(),
    )
    return replace(base, **changes)
