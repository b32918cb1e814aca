"""A tag becomes a release only if the version and the changelog agree with it."""

import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent.parent / ".ci" / "check_release.py"
CHANGELOG = """# Changelog

## 0.2.0 (2026-12-24)

- First line.
- Second line.

## 0.1.0 (2026-11-30)

- Older.
"""


@pytest.fixture(scope="module")
def check() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_the_notes_are_the_newest_section(check: dict[str, Any]) -> None:
    notes = check["release_notes"]("v0.2.0", version="0.2.0", changelog=CHANGELOG)
    assert notes == "- First line.\n- Second line."


@pytest.mark.parametrize(
    ("tag", "version", "changelog", "said"),
    [
        ("0.2.0", "0.2.0", CHANGELOG, "use v and a version"),
        ("v0.2", "0.2", CHANGELOG, "use v and a version"),
        ("v0.3.0", "0.2.0", CHANGELOG, "pyproject.toml says version 0.2.0"),
        ("v0.3.0", "0.3.0", CHANGELOG, "0.2.0 is at the top"),
        ("v0.1.0", "0.1.0", CHANGELOG, "0.2.0 is at the top"),
        ("v0.2.0", "0.2.0", "# Changelog\n", "no version is at the top"),
        ("v0.2.0", "0.2.0", CHANGELOG.replace("2026-12-24", "unreleased"), "give the day"),
        ("v0.2.0", "0.2.0", CHANGELOG.replace(" (2026-12-24)", ""), "give the day"),
        ("v0.2.0", "0.2.0", "## 0.2.0 (2026-12-24)\n\nSoon.\n\n## 0.1.0 (2026-11-30)\n\n- Older.\n", "has no entry"),
    ],
)
def test_what_disagrees_is_no_release(check: dict[str, Any], tag: str, version: str, changelog: str, said: str) -> None:
    with pytest.raises(check["ReleaseError"], match=said):
        check["release_notes"](tag, version=version, changelog=changelog)


def test_the_changelog_of_today_is_unreleased_or_fits(check: dict[str, Any]) -> None:
    """The newest section is the one that the version names, so that a tag needs nothing but its date."""
    import tomllib

    version = tomllib.loads((SCRIPT.parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    changelog = (SCRIPT.parent.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    dated = changelog.replace("(unreleased)", "(2026-12-24)", 1)
    assert check["release_notes"](f"v{version}", version=version, changelog=dated)


@pytest.mark.parametrize(("arguments", "code"), [([], 2), (["v0.0.1"], 1)])
def test_a_refusal_is_a_line_and_a_status(
    check: dict[str, Any], arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check["main"](arguments) == code
    said = capsys.readouterr()
    assert not said.out
    assert said.err.count("\n") == 1
