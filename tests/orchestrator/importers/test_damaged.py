"""Damaged files of other tools: read and told, or refused in one line; never anything else."""

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import InputError
from orchestrator.importers.foreign_plan import make_plan
from orchestrator.importers.source import Choices, read_results

from .samples import FILES, body

ODD: list[Any] = [None, True, -5, 3.7, 2**62, 1e308, "", "x", "\0", [], [1], {}, {"a": 1}, "9999-12-31T23:59:59-14:00"]
MUTATIONS = 15  # of each sample


def read(folder: Path, value: Any) -> None:
    """Read a file of this content and plan it."""
    file = folder / "damaged.json"
    file.write_text(json.dumps(value))
    source, results = read_results(file, Choices())
    make_plan(results, experiment="e", source=source.name, interlace_version="0")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value[:4]) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    value = copy.deepcopy(value)
    place = value
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = new
    return value


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_any_value_in_any_place_is_read_or_refused_in_one_line(file: Path, tmp_path: Path) -> None:
    sample = body(file.name)
    drawn = random.Random(file.name)
    for path in drawn.choices(list(places(sample)), k=MUTATIONS):
        try:
            read(tmp_path, changed(sample, path, drawn.choice(ODD)))
        except InputError as error:
            assert "\n" not in str(error)  # noqa: PT017  # either end is right


@pytest.mark.parametrize(
    ("name", "path", "value", "words"),
    [
        ("guidellm.json", ("benchmarks", 0, "requests", "successful", 0, "cached_tokens"), -5, "cached_tokens is -5"),
        ("llama_bench.json", (0, "n_prompt"), -512, "prompt_tokens is -512"),
        ("llama_bench.json", (0, "n_gen"), 10**14, "is 1e\\+14, which no count, time or rate is"),
        (
            "guidellm_old.json",
            ("benchmarks", 0, "requests", "successful", 0, "output_tokens"),
            64 * 10**6,
            "completion_tokens is 64000000 where 64 were requested|decode_tps is 3.*, which no count, time or rate is",
        ),
        ("llama_bench.json", (0, "gpu_info"), {"a": 1}, "no error"),
        ("mlx_chronos.json", ("engine", "version"), [1], "engine_version is '\\[1\\]', a list"),
        ("vllm_bench.json", ("spec_decode_accepted_tokens",), 10**9, "accepted is 1000000000, more than drafted"),
        ("vllm_bench.json", ("spec_decode_draft_tokens",), -1, "drafted is -1"),
    ],
)
def test_what_cannot_be_is_named(tmp_path: Path, name: str, path: tuple[Any, ...], value: Any, words: str) -> None:
    sample = body(name)
    if name.startswith("vllm"):
        sample |= {"spec_decode_num_drafts": 10, "spec_decode_draft_tokens": 30, "spec_decode_accepted_tokens": 9}
    if words == "no error":
        read(tmp_path, changed(sample, path, value))
        return
    with pytest.raises(InputError, match=words) as refused:
        read(tmp_path, changed(sample, path, value))
    assert "damaged.json: " in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_is_no_file_is_not_read() -> None:
    with pytest.raises(InputError, match="is not a regular file"):
        read_results(Path("/dev/zero"), Choices())
