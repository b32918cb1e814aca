"""Remarks and tags that people add to a run. A remark changes nothing that was measured."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Engine, text

from db.errors import RequestError
from db.session import plain_read, transaction

MOST_CHARACTERS = 1_000
MOST_TAGS = 20


class RemarkError(RequestError):
    """A remark or tags that cannot be stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """The remark and the tags of one run."""

    remark: str | None
    tags: tuple[str, ...]  # sorted

    def __str__(self) -> str:
        said = [*(f"#{tag}" for tag in self.tags), *([self.remark] if self.remark else [])]
        return " ".join(said)


NOTHING = Remark(remark=None, tags=())


def remarks(engine: Engine) -> dict[str, Remark]:
    """The remarks and tags by run; a run without any is left out."""
    sql = "SELECT id, remark, tags FROM run WHERE remark IS NOT NULL OR tags IS NOT NULL"
    with plain_read(engine) as connection:
        return {key: read_remark(remark, tags) for key, remark, tags in connection.execute(text(sql))}


def read_remark(remark: str | None, tags: str | None) -> Remark:
    """A run's two columns as a value."""
    return Remark(remark=remark, tags=tuple(sorted(json.loads(tags))) if tags else ())


def set_remark(engine: Engine, run_id: str, words: str) -> None:
    """Store a remark instead of an earlier one; empty words remove it.

    Raises:
        RemarkError: it is too long, or holds what a terminal obeys.
    """
    said = words.strip()
    if len(said) > MOST_CHARACTERS:
        raise RemarkError(f"a note of {len(said)} characters is too long; write at most {MOST_CHARACTERS}")
    if not said.isprintable():
        raise RemarkError("a note is one line of letters that can be printed; write it without line breaks")
    with transaction(engine) as session:
        session.execute(text("UPDATE run SET remark = :said WHERE id = :id"), {"said": said or None, "id": run_id})


def change_tags(engine: Engine, run_id: str, *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> Remark:
    """Add and remove tags; what is said about the run then.

    Raises:
        RemarkError: a tag has other letters than letters, digits and `._:/+-`, or there would be too many.
    """
    added = [tag.removeprefix("#") for tag in add]
    for tag in added:
        if not (0 < len(tag) <= 40 and all(letter.isalnum() or letter in "._:/+-" for letter in tag)):
            raise RemarkError(f"{tag!r} is not a valid tag: write up to 40 letters, digits and . _ : / + -")
    with transaction(engine) as session:
        select = text("SELECT remark, tags FROM run WHERE id = :id")
        found = read_remark(*session.execute(select, {"id": run_id}).one())
        tags = sorted({*found.tags, *added} - {tag.removeprefix("#") for tag in remove})
        if len(tags) > MOST_TAGS:
            raise RemarkError(f"a run has at most {MOST_TAGS} tags; take one away with --remove TAG")
        update = text("UPDATE run SET tags = :tags WHERE id = :id")
        session.execute(update, {"tags": json.dumps(tags, separators=(",", ":")) if tags else None, "id": run_id})
    return Remark(remark=found.remark, tags=tuple(tags))
