"""Check that a tag, the package's version and the changelog agree, and print the release's notes.

    python .ci/check_release.py v0.2.0 > notes.md

Standard library only, so that it runs before anything is installed.
"""

import re
import sys
import tomllib
from datetime import date
from pathlib import Path

_HEADING = re.compile(r"^## (?P<version>\S+)(?: \((?P<state>[^)]*)\))?[ \t]*$", re.MULTILINE)
_VERSION = re.compile(r"v\d+\.\d+\.\d+((a|b|rc)\d+)?")


class ReleaseError(Exception):
    """The tag must not become a release. The message says why and what to change."""


def release_notes(tag: str, *, version: str, changelog: str) -> str:
    """The changelog's section of the version that a tag names.

    Args:
        tag: `v` and a version, such as v0.2.0.
        version: the package's own, from pyproject.toml.
        changelog: CHANGELOG.md; a section begins with `## VERSION (YYYY-MM-DD)`, the newest first.

    Raises:
        ReleaseError: they disagree, or the section has no date or no entry.
    """
    if not _VERSION.fullmatch(tag):
        raise ReleaseError(f"tag {tag}: is not a valid release tag; use v and a version, such as v0.2.0")
    if tag != f"v{version}":
        raise ReleaseError(f"tag {tag}: pyproject.toml says version {version}; change one of them")
    headings = list(_HEADING.finditer(changelog))
    if not headings or headings[0]["version"] != version:
        newest = f"{headings[0]['version']} is" if headings else "no version is"
        raise ReleaseError(f"CHANGELOG.md: {newest} at the top; begin with `## {version} (YYYY-MM-DD)`")
    _require_date(headings[0]["state"])
    end = headings[1].start() if len(headings) > 1 else len(changelog)
    notes = changelog[headings[0].end() : end].strip()
    if not re.search(r"^- \S", notes, re.MULTILINE):
        raise ReleaseError(f"CHANGELOG.md: the section of {version} has no entry; list what a user can do now")
    return notes


def _require_date(state: str | None) -> None:
    try:
        date.fromisoformat(state or "")
    except ValueError:
        raise ReleaseError(
            f"CHANGELOG.md: the newest section says ({state or ''}); give the day of the release as (YYYY-MM-DD)"
        ) from None


def main(arguments: list[str]) -> int:
    """Print the notes; 1 and a line on standard error if the tag must not be released."""
    if len(arguments) != 1:
        sys.stderr.write("usage: check_release.py TAG\n")
        return 2
    root = Path(__file__).parent.parent
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    try:
        notes = release_notes(arguments[0], version=version, changelog=changelog)
    except ReleaseError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{notes}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
