"""Outputs that owners of Macs published, each read by the parsers that would read it on their machine."""

import re
import tomllib

import pytest

from tests.workers.machine.captures import CAPTURED, READ, Reader
from workers.machine import macos
from workers.machine.system import Unreadable

# A repository with a thread or a file, an article with its number, or a page.
PLACE = r"[\w.-]+/[\w.-]+(?: issue \d+|, )|Qiita, article [0-9a-f]{20}|www\.\S+/\S+\.html"
WITHOUT: dict[str, tuple[Reader, str]] = {
    "pmset_therm_m1_pro.captured.txt": (macos.parse_speed_limit, "Apple silicon never does"),
    "pmset_therm_m.captured.txt": (macos.parse_speed_limit, "Apple silicon never does"),
}


@pytest.mark.parametrize("name", READ)
def test_a_published_output_is_read(name: str) -> None:
    read, expected = READ[name]
    assert read((CAPTURED / name).read_text(encoding="utf-8")) == expected


@pytest.mark.parametrize("name", WITHOUT)
def test_a_published_output_without_the_value_gives_the_reason(name: str) -> None:
    read, reason = WITHOUT[name]
    with pytest.raises(Unreadable, match=reason):
        read((CAPTURED / name).read_text(encoding="utf-8"))


def test_every_published_output_is_read_and_names_its_source() -> None:
    files = {path.name for path in CAPTURED.glob("*.captured.*")}
    sources = tomllib.loads((CAPTURED / "SOURCES.toml").read_text(encoding="utf-8"))
    assert files == READ.keys() | WITHOUT.keys() == sources.keys()
    assert all(set(each) == {"command", "source", "mac", "macos"} for each in sources.values())
    unnamed = [name for name, each in sources.items() if not re.match(PLACE, each["source"])]
    assert not unnamed, "a published output without its place is *.public.txt"


def test_no_published_output_holds_a_person_or_a_machine() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in CAPTURED.glob("*.captured.*"))
    assert not re.search(r"/Users/|/home/|[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-|([0-9a-f]{2}:){5}|@", text)
    assert "Serial" not in text
