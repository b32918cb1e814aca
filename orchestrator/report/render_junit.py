"""A judgement as JUnit's XML, which CI services show as tests. Pure.

A comparison is a test: passed if it is supported or makes no difference, failed if `--fail-on` names it, else skipped,
because it decides nothing.
"""

from collections.abc import Callable, Sequence
from xml.etree import ElementTree

from orchestrator.audit import Comparison
from orchestrator.report.material import Material
from orchestrator.report.verdict import sentence, verdict_sentence
from orchestrator.report.words import decimals, shown_line, span
from orchestrator.vocabulary import VERDICTS

_DECIDED = ("supported", "no_difference")


def render_junit(material: Material, *, is_failure: Callable[[Comparison], bool]) -> str:
    """Write one test per comparison over all prompts, and one per later turn.

    Args:
        is_failure: whether `--fail-on` names the comparison.
    """
    shown = [one for one in material.result.comparisons if one.over_all or one.turn is not None]
    failed = [one for one in shown if is_failure(one)]
    skipped = [one for one in shown if one.verdict not in _DECIDED and one not in failed]
    suite = ElementTree.Element(
        "testsuite",
        name=shown_line(material.run.experiment),
        tests=str(len(shown)),
        failures=str(len(failed)),
        skipped=str(len(skipped)),
        errors="0",
        timestamp=f"{material.run.created_at:%Y-%m-%dT%H:%M:%S}",
        hostname=shown_line(material.run.host),
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in (("run", material.run.run_id), ("verdict", verdict_sentence(material))):
        ElementTree.SubElement(properties, "property", name=name, value=shown_line(value))
    for one in shown:
        _add(suite, one, material.run.experiment, failed=failed, skipped=skipped)
    ElementTree.indent(suite)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(suite, encoding="unicode")}\n'


def _add(
    suite: ElementTree.Element,
    one: Comparison,
    experiment: str,
    *,
    failed: Sequence[Comparison],
    skipped: Sequence[Comparison],
) -> None:
    name = f"{one.treatment} against {one.control}, {one.scope.words}"
    case = ElementTree.SubElement(suite, "testcase", name=shown_line(name), classname=shown_line(experiment))
    words = f"{VERDICTS[one.verdict].words}: {shown_line(sentence(one))}"
    figures = f"{one.metric}: {decimals(one.ratio)} ({span(one.ci_low, one.ci_high, digits=3)}), {one.rounds} rounds"
    because = "\n".join(shown_line(reason.text) for reason in one.reasons)
    if one in failed:
        ElementTree.SubElement(case, "failure", message=words, type=one.verdict).text = f"{figures}\n{because}"
    elif one in skipped:
        ElementTree.SubElement(case, "skipped", message=words)
    ElementTree.SubElement(case, "system-out").text = f"{words}\n{figures}\n{because}"
