"""Other people's files at scale: `python benchmarks/hostile_files.py --files 10000`.

Imports mutated exports of a small run, one after the other, into a database with a run of its own, and prints a table:
how many were refused in one clear line, how many were taken, what went wrong, the longest command and the largest
memory of a process. What is taken is shown by every command, for a share of the files, each file in a process of its
own. The kinds of mutation:

    columns   each column, each wrong type     json    one value inside a JSON column, the plan rehashed
    numbers   a value of the column's type     rows    rows that are missing
    database  bytes of the database            archive bytes of the file
    results   one value in another tool's JSON bytes   bytes of another tool's file

Exit code 1: a traceback, a message of several lines, a command over 10 s of CPU, over 500 MB, or an unsound database.
"""

import argparse
import functools
import json
import os
import pickle
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from db.models import Base
from db.transfer.tables import STAYS
from tests.mutated import (
    Desk,
    Genuine,
    Outcome,
    change_json,
    change_numbers,
    drop_rows,
    every_column,
    flip,
    make_genuine,
    mutate_json,
    set_value,
)

LONGEST_S, MOST_BYTES = 10.0, 500_000_000
_TABLES = [table for table in Base.metadata.sorted_tables if table.name not in STAYS]
_JSON = [(table.name, str(each.name)) for table in _TABLES for each in table.columns if "JSON" in str(each.type)]
_NUMBERS = [
    (table.name, str(each.name))
    for table in _TABLES
    for each in table.columns
    if any(word in str(each.type) for word in ("BIGINT", "DOUBLE", "BOOLEAN"))
]
_RESULTS = sorted((Path(__file__).resolve().parents[1] / "tests" / "fixtures" / "foreign").glob("*.json*"))
Made = tuple[str, str, Callable[[], bytes]]


def files(genuine: Genuine, scratch: Path, chance: random.Random) -> Iterator[Made]:
    """(kind, the file's name, the file's bytes), without end."""
    exports, results = _exports(genuine, scratch, chance), _results(chance)
    while True:
        for _ in range(8):
            kind, make = next(exports)
            yield kind, "their.interlace", make
        yield next(results)


def _exports(genuine: Genuine, scratch: Path, chance: random.Random) -> Iterator[tuple[str, Callable[[], bytes]]]:
    whole = genuine.packed(genuine.content)
    columns = list(every_column())
    while True:
        chance.shuffle(columns)
        for place in columns:
            yield "columns", lambda place=place: genuine.changed(set_value(*place), scratch)
            for _ in range(2):
                where = ("run", "plan") if chance.random() < 0.3 else chance.choice(_JSON)
                yield "json", lambda where=where: genuine.changed(change_json(*where, chance), scratch)
                yield "database", lambda: genuine.packed(flip(genuine.content, chance))
            yield "numbers", lambda: genuine.changed(change_numbers(*chance.choice(_NUMBERS), chance), scratch)
            yield "rows", lambda: genuine.changed(drop_rows(chance.choice(_TABLES).name, chance), scratch)
            yield "archive", lambda: flip(whole, chance)


def _results(chance: random.Random) -> Iterator[Made]:
    """Files of other tools, of which one value or some bytes were changed."""
    while True:
        file = chance.choice(_RESULTS)
        yield "bytes", file.name, lambda file=file: flip(file.read_bytes(), chance)
        for _ in range(3):
            file = chance.choice(_RESULTS)
            yield "results", file.name, lambda file=file: _changed_result(file.read_text(), chance)


def _changed_result(text: str, chance: random.Random) -> bytes:
    """The same file with one or two values changed; a file of lines has one line changed."""
    try:
        json.loads(text)
        lines = [text]
    except ValueError:
        lines = text.splitlines()
    place = chance.randrange(len(lines))
    for _ in range(chance.choice([1, 1, 2])):
        with suppress(ValueError):  # a file that another tool left cut off
            lines[place] = mutate_json(lines[place], chance)
    return "\n".join(lines).encode()


def main() -> int:
    asked = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="hostile-"))
    os.environ["INTERLACE_DB"] = str(folder / "ours.db")
    os.chdir(folder)
    chance = random.Random(asked.seed)
    genuine = make_genuine(folder)
    desk = Desk(genuine, folder)
    tried, taken, shown, problems = Counter[str](), Counter[str](), 0, []
    slowest_s, ends_at = 0.0, time.monotonic() + asked.seconds
    for kind, name, make in files(genuine, folder / "scratch.db", chance):
        if sum(tried.values()) >= asked.files or time.monotonic() > ends_at:
            break
        packed = make()
        thorough = chance.random() < asked.shown
        attempt = functools.partial(desk.attempt, packed, thorough=thorough, name=name)
        found = _apart(attempt) if thorough else attempt()
        tried[kind] += 1
        taken[kind] += found.taken
        shown += found.taken and thorough
        slowest_s = max(slowest_s, found.slowest_s)
        if found.problems or found.slowest_s > LONGEST_S:
            kept = folder / f"problem-{len(problems)}-{name}"
            kept.write_bytes(packed)
            problems.append(f"{kept} ({kind}, {found.slowest_s:.1f} s): {'; '.join(found.problems)}")
            sys.stdout.write(f"{problems[-1]}\n")
            sys.stdout.flush()
    peak_bytes = _peak_bytes()
    sys.stdout.write(f"{'kind':10}{'files':>8}{'refused':>9}{'taken':>7}\n")
    for kind in (*tried, "all"):
        files_of, taken_of = (sum(each.values()) if kind == "all" else each[kind] for each in (tried, taken))
        sys.stdout.write(f"{kind:10}{files_of:8}{files_of - taken_of:9}{taken_of:7}\n")
    sys.stdout.write(
        f"shown by every command: {shown}; problems: {len(problems)}; longest command {slowest_s:.1f} s of CPU;"
        f" largest memory {peak_bytes / 1e6:.0f} MB\n"
    )
    return 1 if problems or peak_bytes > MOST_BYTES else 0


def _apart(attempt: Callable[[], Outcome]) -> Outcome:
    """The outcome of an attempt in a process of its own, as commands are: no memory of one file counts for the next."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        with suppress(BaseException), os.fdopen(writing, "wb") as told:
            told.write(pickle.dumps(attempt()))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        answer = told.read()
    os.waitpid(pid, 0)
    if not answer:
        return Outcome(taken=True, problems=("the process ended without an answer",), slowest_s=0.0)
    outcome: Outcome = pickle.loads(answer)  # from the child, nothing of the file's
    return outcome


def _peak_bytes() -> int:
    """The largest memory of this process and of those that showed a file."""
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return peak if sys.platform == "darwin" else peak * 1024


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=3_600.0, help="stop after this time")
    parser.add_argument("--shown", type=float, default=0.05, help="share of the files whose run every command shows")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
