"""Warnings that qualify a run's figures: a word and a sentence each. Pure."""

from collections.abc import Iterator

from orchestrator.importers.plausibility import LEFT_OUT
from orchestrator.report.material import FINISHED, ArmRow, Material
from orchestrator.report.words import counted

Said = tuple[str, str]


def warnings(material: Material) -> tuple[Said, ...]:
    """Return the warnings in the order of their weight; a complete run of this program has none."""
    return (
        *_of_the_order(material),
        *_of_the_end(material),
        *_of_the_models(material),
        *(("Dropped", f"{arm.name} ({arm.state_reason or 'no reason stored'}).") for arm in _dropped(material)),
        *(
            (
                "Caches unknown",
                f"{name} reports no cached tokens, and the run repeats its prompts; times to the first token may be"
                " those of a warm cache (start the server without one to be sure).",
            )
            for name in material.caches_unknown
        ),
        *(("Decided otherwise", f"{revision}.") for revision in material.revisions),
    )


def _dropped(material: Material) -> list[ArmRow]:
    return [arm for arm in material.arms if arm.state != "active"]


def _of_the_models(material: Material) -> Iterator[Said]:
    """A server that answered with another model: each arm once, although it stands in several comparisons."""
    reasons = (reason for one in material.overall for reason in one.reasons)
    for text in dict.fromkeys(reason.text for reason in reasons if reason.code in ("other_model", "model_changed")):
        yield "Another model", f"{text}."


def _of_the_order(material: Material) -> Iterator[Said]:
    run = material.run
    if run.simulated:
        yield "Simulated", "A fake clock and no model: nothing here was measured."
    if not run.randomised:
        source = "" if run.source_name is None else f" in {run.source_name}"
        yield (
            "Not randomised",
            f"Results of {run.origin}{source}: their order was not drawn at random, so no test can distinguish an"
            " effect from drift. Verdicts need a run of interlace itself.",
        )
        for line in (run.note or "").splitlines():
            if line.startswith(LEFT_OUT):
                yield "Left out", line.removeprefix(LEFT_OUT).lstrip(": ")


def _of_the_end(material: Material) -> Iterator[Said]:
    run = material.run
    if run.status != FINISHED:
        done = max((one.rounds for one in material.overall), default=0)
        why = f" ({run.note})" if run.note else ""
        yield (
            "Unfinished",
            f"The run is {run.status}{why}: {done} of {counted(run.rounds, 'planned round')} complete. This"
            " report covers the trials stored so far.",
        )
