"""docs/method.md shows what was measured, with the method of today, and every figure of known truth keeps its bound."""

import json
from itertools import islice

import pytest

from benchmarks import judge_tables
from benchmarks.method_tables import PAGE, RESULTS, rendered, replaced, tables
from benchmarks.truth import Figure
from orchestrator.audit import METHOD_VERSION

MEASURED = json.loads(RESULTS.read_text(encoding="utf-8"))


def test_the_page_shows_the_figures_that_were_measured() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert rendered(page, MEASURED) == page


def test_the_figures_are_of_todays_method() -> None:
    assert MEASURED["method_version"] == METHOD_VERSION, "run: make method-tables"


@pytest.mark.parametrize("profile", MEASURED["no_effect"]["random order, interlace"])
def test_the_method_errs_as_rarely_as_its_level_under_every_drift(profile: str) -> None:
    assert MEASURED["no_effect"]["random order, interlace"][profile] <= 0.065  # three standard errors above 0.05
    assert MEASURED["verdicts"]["0%"][profile] <= 0.02


def test_every_known_truth_was_found() -> None:
    figures = [Figure(**figure) for figure in MEASURED["truth"]]
    assert [str(figure) for figure in figures if not figure.holds] == []


def test_a_page_without_a_place_for_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match=f"0 places for the table {next(iter(tables(MEASURED)))}"):
        rendered("# The method", MEASURED)


JUDGE = json.loads(judge_tables.RESULTS.read_text(encoding="utf-8"))


def test_the_judges_page_shows_the_figures_that_were_measured() -> None:
    page = judge_tables.PAGE.read_text(encoding="utf-8")
    assert replaced(page, judge_tables.tables(JUDGE), judge_tables.PAGE) == page


@pytest.mark.parametrize("check", judge_tables.CHECKS)
def test_every_figure_of_the_judge_is_of_todays_method_and_keeps_its_bound(check: str) -> None:
    result = JUDGE[check]
    assert result["method_version"] == METHOD_VERSION, "run: make judge-tables"
    figures = [Figure(**figure) for figure in result["figures"]]
    assert figures
    assert [str(figure) for figure in figures if not figure.holds] == []


@pytest.mark.parametrize("rounds", [8, 20])
def test_the_page_states_what_the_guard_against_heat_can_do_on_a_steep_walk(rounds: int) -> None:
    of = {(each["case"], each["measured"]): round(each["value"] + 1e-9, 2) for each in JUDGE["walk"]["figures"]}
    effect = f"{rounds} rounds, effect 5%, heat 0%"
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    sentence = page[page.index("walks by 4 % per trial") : page.index("Coarse values")]
    for figure in (of[effect, "stands"], of[effect, "interval clear of 1"]):
        assert f"{figure:.2f}" in sentence
    assert f"{of[f'{rounds} rounds, effect 0%, heat 25%', 'stands']:.2f}" in sentence


@pytest.mark.parametrize("check", ["evenings", "early", "missing"])
def test_the_measuring_works_at_small_size(check: str) -> None:
    assert len(list(islice(judge_tables.CHECKS[check](2), 3))) == 3
