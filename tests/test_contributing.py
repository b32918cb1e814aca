"""CONTRIBUTING.md and SECURITY.md name what is there, and every recipe names its contract test."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
RECIPES = ("An engine", "A preset of the evidence catalogue", "A stored query", "A metric", "An importer")


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "SECURITY.md"])
def test_links_lead_to_files(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#]+)", text)
    assert targets
    for target in targets:
        assert (ROOT / target).exists(), target


def test_files_and_folders_that_are_named_exist() -> None:
    named = re.findall(r"`((?:conf|orchestrator|workers|db|migrations|tests|benchmarks)/[\w./-]*)`", TEXT)
    assert len(named) > 15
    for path in named:
        if "NAME" not in path:
            assert (ROOT / path).exists(), path


def test_make_targets_that_are_named_exist() -> None:
    for line in re.findall(r"make ((?:[a-z-]+ ?)+)", TEXT):
        words = line.split()
        assert words[0] in TARGETS, line
    assert {"setup", "test-fast", "lint", "types", "migrations", "docs", "test", "check", "lock"} <= TARGETS


def test_the_entry_points_group_is_the_one_that_is_read() -> None:
    from workers.engines.base import ENTRY_POINTS

    (block,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    assert ENTRY_POINTS in tomllib.loads(block)["project"]["entry-points"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_is_there_with_its_contract(recipe: str) -> None:
    section = TEXT.split(f"## {recipe}\n")[1].split("\n## ")[0]
    assert "contract" in section or "test holds" in section
