"""JUnit's XML: well-formed whatever names hold, and true to the verdicts."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from orchestrator.report.material import Material
from orchestrator.report.render_junit import render_junit
from orchestrator.statistics.comparability import Reason


def suite(material: Material, *named: str) -> ElementTree.Element:
    return ElementTree.fromstring(render_junit(material, is_failure=lambda one: one.verdict in named))


def with_verdict(material: Material, verdict: str, **values: object) -> Material:
    one = replace(material.overall[0], verdict=verdict, **values)
    return replace(material, result=replace(material.result, comparisons=(one,)))


@pytest.mark.parametrize(
    ("verdict", "named", "children"),
    [
        ("supported", (), ["system-out"]),
        ("no_difference", (), ["system-out"]),
        ("could_be_drift", (), ["skipped", "system-out"]),
        ("underpowered", (), ["skipped", "system-out"]),
        ("not_engaged", (), ["skipped", "system-out"]),
        ("could_be_drift", ("could_be_drift",), ["failure", "system-out"]),
        ("supported", ("supported",), ["failure", "system-out"]),
    ],
)
def test_a_comparison_is_a_test(material: Material, verdict: str, named: tuple[str, ...], children: list[str]) -> None:
    found = suite(with_verdict(material, verdict), *named)
    (case,) = found.findall("testcase")
    assert [child.tag for child in case] == children
    counts = {"tests": 1, "failures": children.count("failure"), "skipped": children.count("skipped"), "errors": 0}
    assert {name: int(found.attrib[name]) for name in counts} == counts
    assert material.run.run_id in ElementTree.tostring(found, encoding="unicode")


@pytest.mark.parametrize("name", ['<a> & "b"', "]]>", "\x00\x1b[2J\ud800", "a\nb"])
def test_names_and_reasons_of_unknown_origin_keep_it_well_formed(material: Material, name: str) -> None:
    hostile = with_verdict(material, "confounded", treatment=name, reasons=(Reason(code="c", text=name),))
    (case,) = suite(hostile, "confounded").findall("testcase")
    assert "\x1b" not in ElementTree.tostring(case, encoding="unicode")
    assert case.find("failure") is not None
