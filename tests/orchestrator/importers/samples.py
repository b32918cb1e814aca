"""The samples of tests/fixtures/foreign: numbers of our own in the tools' shapes.

`vllm_bench_2025_05.json` has the keys of a log of llm-d's benchmarks of 2025-05-30 (benchmark_serving.py with
`--metadata`): `request_goodput:` with a colon, metadata as texts between the keys, no `failed`, no `endpoint_type`.
`llama_bench_2024_08.json` has the fields of llama.cpp's examples/llama-bench/llama-bench.cpp at commit 921baa4b: one
boolean per backend instead of `backends`, `rpc` as a text, no `devices`. `guidellm_0_3.json` and the requests of
`guidellm_0_5.json` were written by the classes of guidellm 0.3.1 and 0.5.0 and shortened; `guidellm_0_1.json` has the
fields of guidellm 0.1.0's core/result.py.
"""

import json
from pathlib import Path
from typing import Any

from orchestrator.importers.foreign_run import ForeignResults, ForeignTrial
from orchestrator.importers.formats import choose_format
from orchestrator.importers.json_values import decode

FOLDER = Path(__file__).parents[2] / "fixtures" / "foreign"
FILES = sorted(FOLDER.iterdir())


def body(name: str) -> Any:
    """The JSON of a sample, to be changed at will."""
    return decode((FOLDER / name).read_bytes(), name=name).body


def read(name: str) -> ForeignResults:
    return read_body(body(name))


def read_body(value: Any) -> ForeignResults:
    plain = json.loads(json.dumps(value))
    return choose_format(plain, "auto", name="sample").read(plain)


def of_arm(results: ForeignResults, arm: str) -> list[ForeignTrial]:
    return [trial for trial in results.trials if trial.arm == arm]


def said(results: ForeignResults, words: str) -> bool:
    return any(words in note for note in results.notes)
