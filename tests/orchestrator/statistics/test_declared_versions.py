"""Versions that arms declare are compared; those that moved along are named; others confound."""

import json

import pandas as pd

from orchestrator.audit import audit
from orchestrator.statistics.comparability import PYTHON

from ..flat import FlatRun, changed

RUN = FlatRun(effects={"old": 1.0, "new": 1.2}, rounds=12)
DECLARED = {"old": {"mlx-lm": "0.31.0"}, "new": {"mlx-lm": "0.31.3"}}


def frame(**of_new: object) -> pd.DataFrame:
    rows = RUN.frame()
    return changed(rows, rows["arm"] == "new", **of_new)


def packages(**versions: str) -> str:
    named = {name.replace("_", "-"): version for name, version in versions.items()}
    return json.dumps({"mlx": "0.32.0", "mlx-lm": "0.32.0", "numpy": "2.4.6"} | named)


def verdict(rows: pd.DataFrame, declared: dict[str, dict[str, str]]) -> tuple[str, set[str], set[str]]:
    """The verdict over all, its reasons' codes, and the codes of the notes."""
    found = audit(rows, control="old", metric="end_to_end_tps", declared=declared)
    comparison = next(each for each in found.comparisons if each.prompt_class is None)
    codes = {reason.code for reason in comparison.reasons}
    return comparison.verdict, codes, {reason.code for reason in getattr(comparison, "notes", ())}


def test_a_declared_version_is_a_factor() -> None:
    rows = frame(mlx_lm_version="0.31.3", engine_version="0.31.3", packages=packages(mlx_lm="0.31.3"))
    assert verdict(rows, {})[0] == "confounded"
    assert verdict(rows, DECLARED)[0] == "supported"


def test_what_moved_along_is_named_and_does_not_confound() -> None:
    rows = frame(
        mlx_lm_version="0.31.3",
        engine_version="0.31.3",
        mlx_version="0.33.0",
        packages=packages(mlx_lm="0.31.3", mlx="0.33.0", numpy="2.3.0"),
    )
    word, codes, notes = verdict(rows, DECLARED)
    assert word == "supported"
    assert {"mlx_version_moved", "packages_moved"} <= codes | notes


def test_a_version_that_differs_between_arms_that_declare_the_same_confounds() -> None:
    rows = frame(mlx_version="0.33.0", packages=packages(mlx="0.33.0"))
    same = {"old": {"mlx-lm": "0.32.0"}, "new": {"mlx-lm": "0.32.0"}}
    assert verdict(rows, same)[0] == "confounded"


def test_other_differences_confound_whatever_is_declared() -> None:
    assert verdict(frame(os_build="25B2"), DECLARED)[0] == "confounded"
    assert verdict(frame(power_mode="low"), DECLARED)[0] == "confounded"


def test_python_may_be_declared() -> None:
    rows = frame(python="3.12.1")
    assert verdict(rows, {})[0] == "confounded"
    assert verdict(rows, {"new": {PYTHON: "3.12.1"}})[0] == "supported"


def test_an_engines_version_with_its_package_in_front_is_declared_too() -> None:
    rows = frame(engine_version="mlx-dspark 0.21.0", packages=packages(mlx_dspark="0.21.0"))
    control = rows["arm"] == "old"
    rows = changed(rows, control, engine_version="mlx-dspark 0.20.3", packages=packages(mlx_dspark="0.20.3"))
    assert verdict(rows, {})[0] == "confounded"
    assert verdict(rows, {"new": {"mlx-dspark": "0.21.0"}})[0] == "supported"
