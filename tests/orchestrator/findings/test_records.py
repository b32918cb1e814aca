"""Which arm is the plain one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from orchestrator.findings.records import ArmRecord, plain_arm_of
from tests.orchestrator import plans
from tests.orchestrator.findings.making import arm, drafting
from tests.orchestrator.meanings import Told, run

IN_PROCESS: dict[str, Any] = {"engine": "mlx_lm", "stamps_of": "token"}
SERVED: dict[str, Any] = {"engine": "mlx_lm_server", "stamps_of": "chunk"}
SERVED_DRAFT: dict[str, Any] = {"engine": "mlx_lm_server_draft", "stamps_of": "chunk"}
SAMPLED: dict[str, Any] = {"temperature": 0.6, "sampling": {"top_p": 0.95, "top_k": 20}}


def plain(spec: ArmRecord, *others: ArmRecord) -> str | None:
    found = plain_arm_of(spec, (*others, spec))
    return None if found is None else found.name


@pytest.mark.parametrize("control", ["inside", "server"])
@pytest.mark.parametrize(("spec", "expected"), [(drafting(**SERVED_DRAFT), "server"), (drafting(), "inside")])
def test_a_server_is_held_against_a_server(control: str, spec: ArmRecord, expected: str) -> None:
    """Whichever of the two is the control: steps that nobody stamped are no steps, and a server's time is not all
    decoding."""
    inside = arm("inside", is_control=control == "inside", **IN_PROCESS)
    server = arm("server", is_control=control == "server", **SERVED)
    assert plain(spec, inside, server) == plain(spec, server, inside) == expected


def test_of_servers_the_nearest_engine_counts_then_the_control() -> None:
    other = arm("other", is_control=True, engine="openai_http", stamps_of="chunk")
    near, far = arm("near", **SERVED), arm("far", engine="mlx_lm", stamps_of="chunk")
    assert plain(drafting(**SERVED_DRAFT), other, far, near) == "near"
    control = arm("control", is_control=True, **SERVED)
    assert plain(drafting(**SERVED_DRAFT), near, control) == "control"


def test_the_only_plain_arm_there_is_will_do() -> None:
    assert plain(drafting(**SERVED_DRAFT), arm("inside", **IN_PROCESS)) == "inside"


@pytest.mark.parametrize("weights", [None, "other"])
def test_weights_that_are_not_known_to_be_the_same_are_others(weights: str | None) -> None:
    assert plain(drafting(weights=weights, checkpoint=None), arm(checkpoint=None)) is None
    assert plain(drafting(weights=None, checkpoint=None), arm(weights=None, checkpoint=None)) is None


def test_another_sampler_is_no_plain_arm() -> None:
    assert plain(drafting(**SAMPLED), arm(temperature=0.6)) is None
    assert plain(drafting(**SAMPLED), arm(temperature=0.6), arm("alike", **SAMPLED)) == "alike"


@pytest.mark.parametrize("changes", [{"engine": "verify_cost"}, {"speculates": True}])
def test_what_does_not_decode_plainly_is_none(changes: dict[str, Any]) -> None:
    assert plain(drafting(), arm(**changes)) is None


def test_a_run_reports_whose_stamps_are_a_servers(tmp_path: Path) -> None:
    arms = (plans.arm("plain"), plans.arm("served"), plans.arm("spec", acceptance=0.6, block_size=4))
    told = run(plans.plan(*arms, rounds=2), tmp_path)
    (cost,) = told.findings.verify_costs
    assert cost.plain_arm == "plain"
    with told.database.begin() as connection:
        connection.execute(
            sa.text(
                "UPDATE generation SET stamps_of = 'chunk' WHERE trial_id IN (SELECT trial.id FROM trial"
                " JOIN arm ON arm.id = trial.arm_id WHERE arm.name IN ('served', 'spec'))"
            )
        )
    (cost,) = Told(told.database, told.plan, told.run_id).findings.verify_costs
    assert cost.plain_arm == "served"


def test_a_run_reports_all_of_its_arms_samplers(tmp_path: Path) -> None:
    sampled = {"name": "sampled", "temperature": 0.6, "top_p": 1.0, "top_k": 0}
    free = replace(plans.arm("free"), sampling=sampled)
    tight = replace(plans.arm("tight"), sampling=sampled | {"name": "tight", "top_p": 0.1, "top_k": 1})
    assert run(plans.plan(free, tight, rounds=2), tmp_path).findings.sampling.note == (
        "only arms with equal samplers are comparable, and these differ in top_k, top_p:"
        " free at temperature 0.6; tight at temperature 0.6, top_k 1, top_p 0.1"
    )
