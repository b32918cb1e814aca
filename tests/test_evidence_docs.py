"""docs/evidence.md says what the catalogue holds, and its example works."""

import re
from dataclasses import fields
from pathlib import Path

import yaml

from orchestrator.configuration.compose import make_plan
from workers.catalogue.binding import Usage, Window
from workers.catalogue.evidence import judge_request
from workers.catalogue.matches import Seen
from workers.catalogue.signs import MEANINGS, PLACES, Preset, Sign, names, read

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"```yaml\n(.*?)```", TEXT, flags=re.DOTALL)


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table after a line."""
    table = TEXT.partition(heading)[2].partition("\n|")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def coded(text: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", text))


def test_every_preset_is_in_the_table() -> None:
    assert {name for row in rows("## Presets") for name in coded(row[0])} == set(names())


def test_every_key_is_explained() -> None:
    preset = {name for row in rows("Keys of a file:") for name in coded(row[0])}
    assert preset == {field.name for field in fields(Preset)} - {"name", "signs"} | {"sign"}
    sign = {name for row in rows("Keys of a sign:") for name in coded(row[0])}
    assert sign == {field.name for field in fields(Sign)} - {"address"}
    assert set(PLACES) | set(MEANINGS) | {"address"} <= coded(TEXT)


def test_every_code_of_a_contradiction_is_explained() -> None:
    explained = {name for row in rows("## Contradictions") for name in coded(row[0])}
    (measures,) = (ROOT / "orchestrator").rglob("measures.py")
    sources = (measures, ROOT / "workers" / "counts.py", *(ROOT / "workers" / "engines").glob("server*.py"))
    sources += (measures.with_name("delivery.py"),)
    source = "".join(path.read_text() for path in sources)
    told = re.findall(r'(?:(?:found|flags)\.append\(|^ +yield )"(\w+)"', source, flags=re.MULTILINE)
    assert {*told, "no_done"} == explained


def test_the_example_plans_and_its_sign_is_read(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "my_server.yaml").write_text(EXAMPLE)
    composed = make_plan(["engine=my_server", "checkpoint=dummy-tiny", "workload=quick"], config_dir=tmp_path)
    (arm,) = composed.plan.arms
    assert arm.engine["mechanism"] == "draft_model"
    preset = read("mine", yaml.safe_load(EXAMPLE)["evidence"])
    found = judge_request(
        preset,
        Seen(lines=["wrote 13 tokens, drafted 8, accepted 5"], window=Window(usage=Usage(generated=13))),
        mechanism="draft_model",
    )
    assert (found.engaged, found.drafted, found.accepted) == (True, 8, 5)
    silent = judge_request(preset, Seen(lines=["served"]), mechanism="draft_model")
    assert silent.engaged is False
