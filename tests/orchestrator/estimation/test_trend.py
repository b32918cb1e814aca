"""The trend follows drift of any shape, sees no label, and no single trial bends it."""

import numpy as np
import pytest

from orchestrator.estimation.inversion import Floats
from orchestrator.estimation.trend import Seen, drift_at


def singles(values: Floats) -> Seen:
    places = np.arange(len(values), dtype=np.float64)[:, None]
    return Seen(
        values=values, places=places, levels=np.zeros((len(values), 0)), arms=np.zeros(len(values), dtype=np.intp)
    )


def pairs(values: Floats) -> Seen:
    places = np.arange(len(values), dtype=np.float64).reshape(-1, 2)
    return Seen(
        values=values.reshape(-1, 2).mean(axis=1),
        places=places,
        levels=np.zeros((len(values) // 2, 0)),
        arms=np.zeros(len(values) // 2, dtype=np.intp),
    )


PLACES = np.arange(40, dtype=np.float64)


@pytest.mark.parametrize("seen", [singles, pairs])
@pytest.mark.parametrize(
    "drift",
    [-0.01 * PLACES, -0.3 * (1 - np.exp(-PLACES / 8)), 0.05 * np.sin(PLACES / 6)],
    ids=["linear", "saturating", "wave"],
)
def test_smooth_drift_is_followed(seen: type[Seen], drift: Floats) -> None:
    noise = 0.003 * np.random.default_rng(0).standard_normal(40)
    error = drift_at(seen(drift + noise), PLACES) - drift  # type: ignore[call-arg]
    assert np.std(error[2:-2]) < 0.006


@pytest.mark.parametrize("seen", [singles, pairs])
@pytest.mark.parametrize("where", [8, 13, 20, 33])
def test_a_step_is_followed_to_the_trial(seen: type[Seen], where: int) -> None:
    drift = np.where(PLACES >= where, -0.2, 0.0)
    noise = 0.005 * np.random.default_rng(where).standard_normal(40)
    found = drift_at(seen(drift + noise), PLACES)  # type: ignore[call-arg]
    assert found[where] - found[where - 1] == pytest.approx(-0.2, abs=0.03)
    assert abs(found[where + 2] - found[where]) < 0.03


def test_one_stall_bends_nothing() -> None:
    noise = 0.003 * np.random.default_rng(1).standard_normal(40)
    stalled = noise - np.where(PLACES == 17, 0.7, 0.0)
    assert np.abs(drift_at(singles(stalled), PLACES) - drift_at(singles(noise), PLACES)).max() < 0.02


def test_levels_and_the_order_of_the_values_do_not_matter() -> None:
    rng = np.random.default_rng(2)
    values, places = 0.01 * rng.standard_normal(40), PLACES[:, None]
    arms = rng.integers(0, 2, 40).astype(np.intp)
    levels = arms[:, None].astype(np.float64)
    plain = drift_at(Seen(values=values, places=places, levels=levels, arms=arms), PLACES)
    raised = drift_at(Seen(values=values + 2.0 * arms, places=places, levels=levels, arms=arms), PLACES)
    assert raised == pytest.approx(plain, abs=1e-9)
    order = rng.permutation(40)
    shuffled = Seen(values=values[order], places=places[order], levels=levels[order], arms=arms[order])
    assert drift_at(shuffled, PLACES) == pytest.approx(plain, abs=1e-9)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_few_values_are_no_error(count: int) -> None:
    assert np.isfinite(drift_at(singles(np.linspace(0.0, 0.1, count)), np.arange(3.0))).all()


def test_a_noisy_arm_bends_the_trend_less() -> None:
    rng = np.random.default_rng(3)
    arms = np.tile([0, 0, 1], 30).astype(np.intp)
    values = np.where(arms == 1, 0.1, 0.005) * rng.standard_normal(90)
    places = np.arange(90.0)
    levels = arms[:, None].astype(np.float64)
    known = Seen(values=values, places=places[:, None], levels=levels, arms=arms)
    unknown = Seen(values=values, places=places[:, None], levels=levels, arms=np.zeros(90, dtype=np.intp))
    assert np.std(drift_at(known, places)) < 0.8 * np.std(drift_at(unknown, places))
