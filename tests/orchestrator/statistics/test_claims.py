from dataclasses import replace
from typing import Any

import pytest

from orchestrator.audit import AuditResult, Comparison
from orchestrator.configuration.groups import Parts
from orchestrator.statistics.claims import ArmFacts, Claim, beside, claim_of, contrast
from tests.orchestrator.statistics.comparisons import comparison

PLAIN = ArmFacts(
    engine="mlx_lm", speculates=False, bits=8, block_size=None, draft=None, checkpoint="m", temperature=0.0
)
DRAFTED = replace(PLAIN, engine="mlx_lm_draft", speculates=True, block_size=8, draft="d")


def claim(**changes: Any) -> Claim:
    base = Claim(
        name="c",
        statement="s",
        factors=("speculation",),
        metric="end_to_end_tps",
        low=2.35,
        high=2.55,
        prompt_class=None,
        turn=None,
        source="somebody",
        conditions={"hardware": "Apple M4 Max", "bits": "8"},
    )
    return replace(base, **changes)


def result(*comparisons: Comparison, drift: float | None = None) -> AuditResult:
    values: dict[str, Any] = dict.fromkeys(AuditResult.__dataclass_fields__)
    values |= {"control": "a", "comparisons": comparisons, "drift": drift}
    return AuditResult(**values)


def one_of(found: tuple[Any, ...]) -> Any:
    (pair,) = found
    return pair


@pytest.mark.parametrize(
    ("treatment", "control", "factors"),
    [
        (DRAFTED, PLAIN, {"speculation"}),
        (replace(PLAIN, bits=4), PLAIN, {"bits"}),
        (replace(DRAFTED, bits=4), PLAIN, {"bits", "speculation"}),
        (replace(DRAFTED, block_size=16), DRAFTED, {"block_size"}),
        (replace(DRAFTED, draft="e"), DRAFTED, {"draft"}),
        (replace(DRAFTED, engine="dflash"), DRAFTED, {"engine"}),
        (PLAIN, PLAIN, set()),
    ],
)
def test_a_contrast_is_what_differs(treatment: ArmFacts, control: ArmFacts, factors: set[str]) -> None:
    assert contrast(treatment, control) == factors


def test_a_result_stands_beside_a_claim_with_every_differing_condition() -> None:
    measured = comparison(ratio=2.4, ci_low=2.3, ci_high=2.5)
    pair = one_of(
        beside(result(measured), [claim()], arms={"a": PLAIN, "b": DRAFTED}, conditions={"hardware": "Apple M5 Pro"})
    )
    assert (pair.ratio, pair.stands) == (2.4, "agrees")
    assert pair.differs == ("hardware: Apple M4 Max against Apple M5 Pro",)


@pytest.mark.parametrize(
    ("low", "high", "stands"), [(1.0, 1.2, "below"), (3.0, 3.2, "above"), (None, None, "undecided")]
)
def test_how_the_interval_lies_to_the_claim(low: float | None, high: float | None, stands: str) -> None:
    measured = comparison(ratio=1.1, ci_low=low, ci_high=high)
    pair = one_of(beside(result(measured), [claim()], arms={"a": PLAIN, "b": DRAFTED}, conditions={}))
    assert pair.stands == stands


def test_a_comparison_the_other_way_is_turned_round() -> None:
    measured = comparison(ratio=0.4, ci_low=0.38, ci_high=0.42)
    pair = one_of(beside(result(measured), [claim()], arms={"a": DRAFTED, "b": PLAIN}, conditions={}))
    assert pair.ratio == pytest.approx(2.5)
    assert (pair.ci_low, pair.ci_high) == (pytest.approx(1 / 0.42), pytest.approx(1 / 0.38))


def test_other_contrasts_metrics_and_classes_are_left_alone() -> None:
    arms = {"a": PLAIN, "b": replace(PLAIN, bits=4)}
    assert beside(result(comparison()), [claim()], arms=arms, conditions={}) == ()
    arms = {"a": PLAIN, "b": DRAFTED}
    assert beside(result(comparison(metric="ttft_s")), [claim()], arms=arms, conditions={}) == ()
    assert beside(result(comparison(prompt_class="code")), [claim()], arms=arms, conditions={}) == ()


def test_levels_are_a_condition() -> None:
    wider = claim(factors=("block_size",), low=0.83, high=0.83, conditions={"block_size": "8 -> 16"})
    arms = {"a": replace(DRAFTED, block_size=4), "b": DRAFTED}
    pair = one_of(beside(result(comparison()), [wider], arms=arms, conditions={}))
    assert pair.differs == ("block_size: 8 -> 16 against 4 -> 8",)


def test_drift_is_set_beside_the_control_runs() -> None:
    drift = claim(factors=("drift",), low=0.66, high=0.66)
    found = one_of(beside(result(drift=-0.06), [drift], arms={"a": PLAIN}, conditions={"hardware": "Apple M4 Max"}))
    assert found.ratio == pytest.approx(0.94)
    assert found.differs == ()  # the control's 8 bits are known, as the claim's
    assert beside(result(drift=None), [drift], arms={"a": PLAIN}, conditions={}) == ()


def test_the_shipped_claims_are_whole() -> None:
    parts = Parts()
    names = parts.options("claim")
    parts.load([("claim", name) for name in names])
    claims = [claim_of(parts.values(("claim", name))) for name in names]
    assert len(claims) >= 16
    known = {"speculation", "bits", "block_size", "draft", "engine", "drift"}
    for each in claims:
        assert each.statement
        assert set(each.factors) <= known
        assert each.low is not None or each.high is not None
        assert "???" not in each.source


@pytest.mark.parametrize(
    ("claimed", "measured", "comparable"),
    [
        ({"hardware": "Apple M4 Max, 40 GPU cores, 128 GB"}, {"hardware": "Apple M4 Max, 32 GPU cores, 36 GB"}, True),
        ({"hardware": "Apple M4 Max"}, {"hardware": "Apple M4"}, False),
        ({"hardware": "Apple M4 Max"}, {}, False),
        ({"checkpoint": "Qwen3.8-27B"}, {"hardware": "Apple M4 Max"}, False),  # the arms' checkpoint is m
        ({"workload": "another"}, {"hardware": "Apple M4 Max"}, True),
    ],
)
def test_a_claim_is_comparable_where_chip_and_model_are_the_same(
    claimed: dict[str, str], measured: dict[str, str], comparable: bool
) -> None:
    found = result(comparison(treatment="b", control="a", metric="end_to_end_tps"))
    arms = {"a": PLAIN, "b": DRAFTED}
    pair = one_of(beside(found, [claim(conditions=claimed)], arms=arms, conditions=measured))
    assert pair.comparable is comparable
