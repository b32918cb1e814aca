"""Keeping secrets out of plans, which are stored, exported and shown. Pure.

A worker inherits this process's environment, so a key, token or password belongs there and nowhere else. One that a
configuration takes from there is left out of the plan; one that stands in it literally is refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from db.redaction import ENVIRONMENT, REDACTED, looks_secret
from orchestrator.errors import InputError
from orchestrator.plan import Arm

SHORTEST_MASKED = 4  # characters: less is found everywhere, and is no secret


def without_secrets(
    arms: Sequence[Arm], environ: Mapping[str, str]
) -> tuple[tuple[Arm, ...], tuple[str, ...], tuple[str, ...]]:
    """(arms without secrets in their environment, notes, the values that were left out).

    Raises:
        InputError: a secret that this process's environment does not hold.
    """
    left_out: dict[str, str] = {}
    cleaned = tuple(_cleaned(arm, environ, left_out) for arm in arms)
    notes = tuple(
        f"engine.environment.{name}: not in the plan, for it looks like a secret; workers inherit it"
        for name in left_out
    )
    return cleaned, notes, tuple(value for value in left_out.values() if value)


def masked(line: str, values: Sequence[str]) -> str:
    """A line without these values."""
    for value in values:
        if len(value) >= SHORTEST_MASKED:
            line = line.replace(value, REDACTED)
    return line


def _cleaned(arm: Arm, environ: Mapping[str, str], left_out: dict[str, str]) -> Arm:
    variables = arm.engine.get(ENVIRONMENT) or {}
    secret = {name: str(value) for name, value in variables.items() if looks_secret(name)}
    if not secret:
        return arm
    for name, value in secret.items():
        if environ.get(name) != value:
            raise InputError(
                f"engine {arm.engine['name']}: engine.environment.{name} looks like a secret, and a plan is stored;"
                f" leave it out and export {name}: workers inherit it"
            )
    left_out |= secret
    kept = {name: value for name, value in variables.items() if name not in secret}
    return replace(arm, engine={**arm.engine, ENVIRONMENT: kept})
