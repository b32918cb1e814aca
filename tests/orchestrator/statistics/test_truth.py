"""Verdicts are true where the truth is known, at small size; benchmarks/truth.py has the figures."""

import pytest

from benchmarks.truth import CHECKS, Design, judged, main, simulate

RUNS = 12


@pytest.mark.parametrize("check", ["mixed", "stalls"])
def test_known_truths(check: str) -> None:
    figures = list(CHECKS[check](RUNS))
    # A coverage of 93 % leaves one run in twelve outside, by chance two or three.
    missed = [str(one) for one in figures if not one.holds and not (one.least <= 0.95 and one.value >= 0.7)]
    assert not missed


def test_a_noisy_arm_makes_few_errors_and_takes_no_power_from_a_quiet_one() -> None:
    noisy = {"other 1": 0.05, "other 2": 0.05}
    errors = [judged(simulate(Design(rounds=20, prompts=1, noise={"treatment": 0.05}), seed)) for seed in range(30)]
    assert sum(one.effect.p_value <= 0.05 for one in errors) <= 5
    design = Design(rounds=20, prompts=1, effects=[0.049], others=tuple(noisy), noise=noisy)
    assert sum(judged(simulate(design, seed), tuple(noisy)).verdict == "supported" for seed in range(10)) >= 8


def test_a_figure_outside_its_bound_fails_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="no such check"):
        main(["1", "nonsense"])
    assert main(["2", "stalls"]) in (0, 1)
    assert (
        "| stalls | 10% of 40 rounds at half speed | no difference | 0.000 | <= 0 | holds |" in capsys.readouterr().out
    )
