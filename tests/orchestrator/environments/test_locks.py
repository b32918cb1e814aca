"""A lock is read back as it was written, and a hostile one is refused before anything is made of it."""

import ast
from dataclasses import asdict, replace
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

import workers
from orchestrator.configuration.compose import make_plan
from orchestrator.environments.provision import ready
from orchestrator.errors import RefusedError
from orchestrator.plan import Lock, LockedPackage, Plan, dump, load
from orchestrator.statistics.factors import two_factors
from workers.environment import DISTRIBUTIONS, WORKER_PACKAGES

PACKAGE = LockedPackage(
    name="mlx-lm",
    version="0.31.3",
    file="mlx_lm-0.31.3-py3-none-any.whl",
    sha256="a" * 64,
    tag="py3-none-any",
    named=True,
)


def plan_with(package: LockedPackage, **of_lock: Any) -> Plan:
    plan = make_plan(["environment=mlx-lm==0.31.3"]).plan
    lock = Lock(environment="mlx-lm 0.31.3", python="3.11.7", packages=(package,))
    return replace(plan, locks=(replace(lock, **of_lock),))


def test_a_plan_with_a_lock_comes_back_as_it_was() -> None:
    plan = plan_with(PACKAGE)
    assert load(dump(plan)) == plan
    assert plan.lock_of(plan.arms[0]) == plan.locks[0]


def test_a_plan_from_before_there_were_environments_is_read() -> None:
    plan = make_plan(["checkpoint=smollm2-4bit"]).plan
    body = asdict(plan)
    del body["locks"]
    for arm in body["arms"]:
        del arm["environment"]
    import json

    old = load(json.dumps(body))
    assert old == plan
    assert old.arms[0].config_sha256 == plan.arms[0].config_sha256


@pytest.mark.parametrize(
    "hostile",
    [
        {"name": "-r /etc/passwd"},
        {"name": "mlx-lm\n--index-url http://example.org"},
        {"version": "1 --hash=sha256:0"},
        {"version": "1\n-e /tmp"},
        {"sha256": "no"},
        {"sha256": None},
        {"version": None},
        {"file": "../../x.whl"},
        {"source": "relative/path"},
        {"source": "git+https://example.org/x --global-option=y"},
        {"source": "git+https://example.org/${TOKEN}"},
        {"source": "/tmp/x\n-r y"},
    ],
)
def test_a_lock_that_says_more_than_a_package_is_refused(hostile: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="lock of environment"):
        load(dump(plan_with(replace(PACKAGE, **hostile))))


def test_a_source_with_its_commit_is_fine() -> None:
    package = LockedPackage(name="mlx-lm", version=None, source="git+https://example.org/x@" + "a" * 40)
    assert load(dump(plan_with(package))).locks[0].packages == (package,)
    tree = LockedPackage(name="mlx-lm", version=None, sha256="a" * 64, source="/home/me/my $1 tree; really")
    assert load(dump(plan_with(tree))).locks[0].packages == (tree,)


def test_an_environment_without_its_lock_does_not_run() -> None:
    with pytest.raises(RefusedError, match="has no lock"):
        ready(make_plan(["environment=mlx-lm==0.31.3"]).plan, print)


def test_the_name_and_what_is_named_do_not_change_what_is_installed() -> None:
    lock = plan_with(PACKAGE).locks[0]
    assert replace(lock, environment="x", packages=(replace(PACKAGE, named=False),)).sha256 == lock.sha256
    assert replace(lock, packages=(replace(PACKAGE, sha256="b" * 64),)).sha256 != lock.sha256


def test_release_and_block_size_form_a_table() -> None:
    lines = ["environment=mlx-lm==0.31.0,mlx-lm==0.31.3", "engine=mlx_lm_draft", "engine.draft=smollm2-4bit"]
    plan = make_plan([*lines, "engine.block_size=2,4"]).plan
    table = two_factors(plan.arms, control=plan.control)
    assert table is not None
    assert {table.first, table.second} == {"environment", "engine.block_size"}
    assert table.base in {("mlx-lm 0.31.0", "2"), ("2", "mlx-lm 0.31.0")}


def test_a_worker_imports_what_its_environment_holds() -> None:
    """Outside its engines: those name their own packages."""
    known = packages_distributions()
    held = {*WORKER_PACKAGES, *DISTRIBUTIONS, "huggingface_hub"}
    for path in Path(workers.__file__).parent.rglob("*.py"):
        for name in _imported(path) & known.keys():
            assert held & set(known[name]) or path.name == "contract.py", f"{path} imports {name}"


def _imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    found |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in found} - {"workers"}
