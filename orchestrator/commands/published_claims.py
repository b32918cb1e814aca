"""Published claims by their names, as `audit --against` and `report` set them beside results.

All of them are shipped, and a test holds each against its schema. So they are read as plain YAML: composing sixteen
files by Hydra takes a third of what a report does.
"""

from importlib.resources import files
from pathlib import Path
from typing import Any

from orchestrator.errors import InputError
from orchestrator.statistics.claims import Claim, claim_of
from orchestrator.vocabulary import DEFAULT_METRIC

ALL = "claims"
_DEFAULTS: dict[str, Any] = {
    "factors": [],
    "metric": DEFAULT_METRIC,
    "low": None,
    "high": None,
    "prompt_class": None,
    "turn": None,
    "conditions": {},
}


def named_claims(names: str = ALL) -> tuple[Claim, ...]:
    """The claims with these names, separated by commas; by default all.

    Raises:
        InputError: there is no such claim.
    """
    shipped = {path.stem: path for path in sorted(Path(str(files("conf")), "claim").glob("*.yaml"))}
    wanted = list(shipped) if names == ALL else names.split(",")
    if unknown := [name for name in wanted if name not in shipped]:
        listed = ", ".join(shipped)
        raise InputError(f"--against {unknown[0]}: no such claim; type `claims` for all, or some of {listed}")
    return tuple(_read(shipped[name]) for name in wanted)


def _read(path: Path) -> Claim:
    import yaml  # type: ignore[import-untyped]  # no types without an extra package

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's takes a tenth of the time, if it is there
    return claim_of({"name": path.stem} | _DEFAULTS | yaml.load(path.read_text(encoding="utf-8"), Loader=loader))
