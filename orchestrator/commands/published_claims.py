"""Published claims by their names, as `audit --against` and `report` set them beside results."""

from orchestrator.errors import InputError
from orchestrator.statistics.claims import Claim, claim_of

ALL = "claims"


def named_claims(names: str = ALL) -> tuple[Claim, ...]:
    """The claims with these names, separated by commas; by default all.

    Raises:
        InputError: there is no such claim.
    """
    from orchestrator.configuration.groups import Parts  # hydra: few audits need it

    parts = Parts()
    known = parts.options("claim")
    wanted = known if names == ALL else names.split(",")
    if unknown := [name for name in wanted if name not in known]:
        raise InputError(f"--against {unknown[0]}: no such claim; type `claims` for all, or some of {', '.join(known)}")
    parts.load([("claim", name) for name in wanted])
    return tuple(claim_of(parts.values(("claim", name))) for name in wanted)
