"""Claims are read as plain YAML, and say what their composed configurations say."""

import pytest

from orchestrator.commands.published_claims import named_claims
from orchestrator.configuration.groups import Parts
from orchestrator.errors import InputError
from orchestrator.statistics.claims import claim_of


def test_every_shipped_claim_is_what_its_configuration_composes() -> None:
    parts = Parts()
    names = parts.options("claim")
    parts.load([("claim", name) for name in names])
    assert named_claims() == tuple(claim_of(parts.values(("claim", name))) for name in names)


def test_claims_are_chosen_by_name() -> None:
    first, second = (claim.name for claim in named_claims()[:2])
    assert [claim.name for claim in named_claims(f"{second},{first}")] == [second, first]
    with pytest.raises(InputError, match=rf"--against nonsense: no such claim; .*{first}"):
        named_claims(f"{first},nonsense")
