"""Fetching as a phase of its own, as it is typed: before a run, before a queue waits, before a night begins.

The commands talk to a local hub with the real client. The checkpoint that it serves is a real one, of random weights.
"""

import json
import os
import pty
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.orchestrator.shells import INTERLACE, Shell, one_line
from tests.workers.fake_hub import PIECE, FakeHub, Fault, sha
from tests.workers.weights.hubs import TINY, hub_here
from workers.weights import hub_download
from workers.weights.dummies import SHAPES, save
from workers.weights.hub_sizes import ask_sizes

MODEL = "me/tiny"
YAML = "source: hub\nhub_id: {}\nrevision: null\n"
RUN = ["engine=mlx_lm", "sampling=greedy,sampled", "workload=quick", "workload.max_tokens=2", "gate=none"]
DESIGN = ["design.rounds=6", "design.probe=false", "design.warmups=0", "design.bracket=false", "design.aa=false"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    save(SHAPES["tiny"], folder)
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: dict[str, bytes]) -> Iterator[FakeHub]:
    monkeypatch.setattr(hub_download, "POLL_S", 0.01)
    with hub_here(monkeypatch, tmp_path / "cache", {MODEL: model}) as found:
        yield found


@pytest.fixture
def shell(tmp_path: Path, hub: FakeHub) -> Shell:
    for name, hub_id in (("mine", MODEL), ("gone", "me/gone")):
        (tmp_path / "lab" / "checkpoint").mkdir(parents=True, exist_ok=True)
        (tmp_path / "lab" / "checkpoint" / f"{name}.yaml").write_text(YAML.format(hub_id))
    return Shell(tmp_path)


def run_of(name: str) -> list[str]:
    return ["--config-dir", "lab", f"checkpoint={name}", *RUN, *DESIGN]


def joined(text: str) -> str:
    return " ".join(text.split())


def commits(shell: Shell) -> set[object]:
    plans = [json.loads(str(row["plan"])) for row in shell.ask("SELECT plan FROM run")]
    return {plan["arms"][0]["checkpoint"]["revision"] for plan in plans}


@pytest.mark.parametrize("name", ["mine", MODEL])
def test_a_plan_of_an_unlisted_model_has_memory_and_duration_from_the_hub(
    shell: Shell, model: dict[str, bytes], name: str
) -> None:
    planned = [f"checkpoint={name}", *run_of(name)[3:]]
    before = joined(shell("plan", "--config-dir", "lab", *planned).stdout)
    assert re.match(r"downloads [\d.]+ MB; needs 1\.2 GB of [\d.]+ GB; takes about \d+ s", before), before[:200]
    assert "unknown" not in before
    assert not list(shell.folder.glob("cache/models--*/snapshots/*/*"))  # nothing that would pass for a model
    shell("checkpoint", "fetch", MODEL, "--quiet")
    after = joined(shell("plan", "--config-dir", "lab", *planned).stdout)
    memory = re.compile("memory +all arms.*?duration")
    assert memory.findall(before) == memory.findall(after)  # the hub's figures are those of the files


def test_a_model_that_is_too_large_is_refused_before_it_is_fetched(shell: Shell, hub: FakeHub) -> None:
    hub.sizes["model.safetensors"] = 900 * 10**9
    said = shell("run", *run_of(MODEL), code=4).stderr
    assert re.search(r"needs 900\.\d GB .* a checkpoint with at most [\d.]+ GB of weights", joined(said))
    assert "model.safetensors" not in hub.sent


@pytest.mark.parametrize(
    ("config", "read"),
    [
        (b"[]", None),
        (b'{"num_hidden_layers": -1, "num_attention_heads": 1, "hidden_size": 8}', None),
        (b"{" * 100_000, None),
        (b'{"num_experts": 8, "num_experts_per_tok": 2}', None),  # and the headers are not valid
        (b'{"model_type": "llama"}', 102_400),
    ],
)
def test_what_the_hub_does_not_state_well_is_unknown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, config: bytes, read: int | None
) -> None:
    with hub_here(monkeypatch, tmp_path / "c", {MODEL: TINY | {"config.json": config}}):
        found = ask_sizes(MODEL, None, limit_s=5.0)
    assert found is not None
    assert (found.weights_bytes, found.bytes_read_per_token, found.kv_bytes_per_token) == (102_400, read, None)


def test_a_mixture_on_the_hub_reads_what_its_headers_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    tensors = {"lm_head.weight": 8, "model.layers.0.mlp.experts.0.w": 4000, "model.layers.0.self_attn.q": 100}
    save_file({name: np.zeros(size, dtype=np.int8) for name, size in tensors.items()}, weights)
    config = json.dumps({"text_config": {"num_experts": 8, "num_experts_per_tok": 2, "tie_word_embeddings": False}})
    files = {"config.json": config.encode(), weights.name: weights.read_bytes(), "tokenizer.json": b"{}"}
    with hub_here(monkeypatch, tmp_path / "c", {MODEL: files}):
        found = ask_sizes(MODEL, None, limit_s=5.0)
    assert found is not None
    assert found.bytes_read_per_token == 8 + 1000 + 100


def test_checkpoint_fetch_brings_a_model_by_its_name_or_its_id(shell: Shell, hub: FakeHub) -> None:
    said = shell("checkpoint", "fetch", "mine", "--config-dir", "lab").stdout
    assert "downloads" in said
    assert f"{MODEL}: " in said
    assert "at commit aaaaaaaaaaaa in" in said.replace("\n", " ")
    before = dict(hub.sent)
    assert "downloads" not in shell("checkpoint", "fetch", f"{MODEL}@main", "--quiet").stdout
    assert hub.sent == before


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gone", "me/gone does not exist, or is private"),
        ("me/gone", "me/gone does not exist, or is private"),
        ("me/tiny@nowhere", "has no revision nowhere"),
        ("smollm2-8bit", "interlace checkpoint import smollm2"),
        ("dummy-tiny", "no weights to fetch"),
        ("mien", "did you mean mine?"),
    ],
)
def test_what_cannot_be_fetched_is_one_line(shell: Shell, name: str, words: str) -> None:
    assert words in one_line(shell("checkpoint", "fetch", name, "--config-dir", "lab", code=2))


def test_a_missing_model_ends_a_run_before_anything_is_stored(shell: Shell) -> None:
    line = one_line(shell("run", *run_of("gone"), code=2))
    assert "checkpoint gone" in line
    assert "me/gone" in line
    assert not shell.db.exists()


def test_a_hub_that_cannot_be_reached_refuses_a_run(
    shell: Shell, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    line = one_line(shell("run", *run_of("mine"), code=4))
    assert "HF_HUB_OFFLINE" in line
    assert not shell.db.exists()


def test_no_room_refuses_a_run(shell: Shell, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.planning.residency.run_budget_bytes", lambda: None)  # as much memory as one wants
    hub.sizes["model.safetensors"] = 10**17
    assert "are to be fetched" in one_line(shell("run", *run_of("mine"), code=4))
    assert "model.safetensors" not in hub.sent


@pytest.mark.slow
def test_a_run_fetches_first_and_its_plan_holds_the_commit(shell: Shell, hub: FakeHub) -> None:
    done = shell("run", *run_of("mine"))
    assert done.stdout.index("fetching me/tiny") < done.stdout.index("rounds")
    assert commits(shell) == {"a" * 40}
    assert shell.count("SELECT 1 FROM checkpoint WHERE revision = '" + "a" * 40 + "'") == 1
    hub.commits[MODEL] = "b" * 40  # the hub moves on; what is here is used
    before = len(hub.requests)
    shell("plan", *run_of("mine"))
    assert len(hub.requests) == before


@pytest.mark.nightly
def test_a_download_that_outlasts_the_deadline_of_a_load_does_not_end_the_run(shell: Shell, hub: FakeHub) -> None:
    """A hub at 0.02 MB/s, and a load that may take 20 s: the download takes longer, and is a phase of its own."""
    size = len(hub.repos[MODEL]["model.safetensors"])
    hub.faults.append(Fault("model.safetensors", pause_s=24 * PIECE / size))
    shell("run", *run_of("mine"), "design.deadlines.load_s=20", "--quiet")
    assert shell.ask("SELECT status FROM run") == [{"status": "done"}]


def test_queue_add_fetches_unless_this_machine_measures(
    shell: Shell, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.queue.machine_lock.machine_holder", lambda: "process 7 (interlace work)")
    said = shell("queue", "add", *run_of("mine")).stdout
    assert "not fetched now: this machine is measuring" in said
    assert "model.safetensors" not in hub.sent
    assert commits(shell) == {"a" * 40}
    monkeypatch.undo()


def test_queue_add_fetches(shell: Shell, hub: FakeHub) -> None:
    shell("queue", "add", *run_of("mine"))
    assert set(hub.sent) >= {"model.safetensors", "config.json"}
    assert commits(shell) == {"a" * 40}


def test_fetching_while_a_run_is_measured_needs_a_word(
    shell: Shell, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.commands.checkpoint_fetch.machine_holder", lambda: "process 7")
    assert "--anyway" in one_line(shell("checkpoint", "fetch", MODEL, code=4))
    assert hub.sent == {}
    shell("checkpoint", "fetch", MODEL, "--anyway", "--quiet")
    assert hub.sent


@pytest.mark.slow
def test_a_night_parks_a_run_whose_model_vanished_and_goes_on(shell: Shell, hub: FakeHub, tmp_path: Path) -> None:
    hub.repos["me/gone"], hub.commits["me/gone"] = hub.repos[MODEL], "c" * 40
    for name in ("gone", "mine"):
        shell("queue", "add", *run_of(name))
    subprocess.run(["rm", "-rf", str(tmp_path / "cache" / "models--me--gone")], check=True)
    del hub.repos["me/gone"]
    said = shell("work", "--no-preflight", code=3).stdout.replace("\n", " ")
    assert "its weights cannot be fetched" in said
    assert "me/gone" in said
    states = {row["state"]: str(row["note"]) for row in shell.ask("SELECT state, note FROM queue_entry")}
    assert set(states) == {"failed", "done"}
    assert "does not exist, or is private" in states["failed"]


@pytest.mark.slow
def test_a_killed_fetch_goes_on_where_it_was_killed(shell: Shell, hub: FakeHub, tmp_path: Path) -> None:
    shell.env = shell.env | hub_variables()
    weights = hub.repos[MODEL]["model.safetensors"]
    for number in (signal.SIGKILL, signal.SIGINT):
        held = threading.Event()
        hub.faults[:] = [Fault("model.safetensors", hold=held, hold_at=3 * PIECE, times=1)]
        before = partial_bytes(tmp_path, weights)
        process = shell.start("checkpoint", "fetch", MODEL)
        while partial_bytes(tmp_path, weights) == before and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(60) == (130 if number == signal.SIGINT else -number)
        held.set()
    came = partial_bytes(tmp_path, weights)
    assert came > 3 * PIECE
    hub.faults.clear()
    shell.process("checkpoint", "fetch", MODEL)
    ranges = [request.headers.get("Range") for request in hub.asked("GET", "model.safetensors")]
    assert ranges[0] is None
    assert ranges[-1] == f"bytes={came}-"


def partial_bytes(folder: Path, content: bytes) -> int:
    """Return what there is of an unfinished file."""
    file = folder / "cache" / "models--me--tiny" / "blobs" / f"{sha(content)}.incomplete"
    return file.stat().st_size if file.exists() else 0


def hub_variables() -> dict[str, str]:
    return {name: os.environ[name] for name in ("HF_ENDPOINT", "HF_HUB_CACHE", "HF_TOKEN_PATH")}


@pytest.mark.slow
def test_on_a_terminal_a_bar_shows_rate_and_time_left(shell: Shell, hub: FakeHub) -> None:
    hub.faults.append(Fault("model.safetensors", pause_s=0.05))
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*INTERLACE, "checkpoint", "fetch", MODEL],
        stdout=slave,
        stderr=slave,
        env=shell.env | hub_variables() | {"TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(slave)
    shown = b""
    with suppress(OSError):  # the end of a terminal whose last writer is gone
        while piece := os.read(master, 65536):
            shown += piece
    os.close(master)
    assert process.wait(60) == 0
    assert b"B/s" in shown
    assert b"left" in shown
