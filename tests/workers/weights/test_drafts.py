"""A draft that was made for another target is one line before anything loads, whatever the engine."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import InputError
from orchestrator.plan import Arm
from orchestrator.planning.weights import find_weights, wrong_draft
from tests.orchestrator.plans import SAMPLING, plan
from tests.workers import tiny, tiny_drafts
from workers.engines.dflash import Dflash
from workers.engines.dflash_server import DflashServer
from workers.engines.mlx_lm_server_draft import MlxLmServerDraft
from workers.engines.omlx_dflash import OmlxDflash
from workers.errors import EngineError, FaultKind
from workers.weights.drafts import BLOCK, MODEL, require_fit, tokenizer_difference

Checkpoint = dict[str, Any]
GREEDY: dict[str, Any] = {"name": "greedy", "temperature": 0.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("drafts")


@pytest.fixture(scope="module")
def target(folder: Path) -> Checkpoint:
    return tiny_drafts.build_target(folder / "target")


@pytest.fixture(scope="module")
def draft(folder: Path) -> Checkpoint:
    return tiny_drafts.build_draft(folder / "draft")


def changed(draft: Checkpoint, folder: Path, **values: Any) -> Checkpoint:
    """The same draft with another configuration; `target_layer_ids` lies within `dflash_config`."""
    import shutil

    shutil.copytree(draft["path"], folder)
    config = json.loads((folder / "config.json").read_text())
    for key, value in values.items():
        (config["dflash_config"] if key in config["dflash_config"] else config)[key] = value
    (folder / "config.json").write_text(json.dumps(config))
    return draft | {"name": folder.name, "path": str(folder)}


@pytest.mark.parametrize("version", [1, 2])
def test_a_draft_fits_its_own_target_and_a_hybrid_of_the_same_shape(
    target: Checkpoint, folder: Path, version: int
) -> None:
    made = tiny_drafts.build_draft(folder / f"v{version}", version=version)
    hybrid = tiny_drafts.build_hybrid(folder / f"hybrid{version}")
    for each in (target, hybrid):
        require_fit(Path(each["path"]), Path(made["path"]), kind=BLOCK)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"num_target_layers": 36}, r"it was made for 36 layers, target has 4"),
        ({"target_layer_ids": [1, 9, 18]}, r"it reads the output of layer 18, target has 4 layers"),
        ({"hidden_size": 2560}, r"its hidden size is 2560, that of target 64"),
        ({"vocab_size": 151936}, r"its vocabulary has 151936 tokens, that of target 320"),
        ({"mask_token_id": 151669}, r"its mask token is 151669, the vocabulary of target has 320"),
        ({"target_layer_ids": [0, 1]}, r"it takes 192 numbers of hidden state, 2 layers of target give 128"),
    ],
)
def test_each_difference_is_named(
    target: Checkpoint, draft: Checkpoint, tmp_path: Path, values: dict[str, Any], words: str
) -> None:
    other = changed(draft, tmp_path / "other", **values)
    with pytest.raises(EngineError, match=f"the draft other was made for another target than target: {words}") as no:
        require_fit(Path(target["path"]), Path(other["path"]), kind=BLOCK)
    assert no.value.kind is FaultKind.draft_mismatch
    assert no.value.remedy == "set engine.draft to a draft that was made for this target"


@pytest.mark.parametrize("backend", ["mlx-dspark", "dflash", "dflash-mlx"])
def test_in_process(target: Checkpoint, draft: Checkpoint, tmp_path: Path, backend: str) -> None:
    other = changed(draft, tmp_path / "other", target_layer_ids=[1, 9, 18])
    engine = Dflash(settings={"backend": backend}, checkpoint=target, draft=other, sampling=GREEDY)
    with pytest.raises(EngineError, match="it reads the output of layer 18"):
        engine.load()


@pytest.mark.parametrize(
    "make",
    [
        lambda **given: DflashServer(settings={}, **given),
        lambda **given: OmlxDflash(settings={"command": "true"}, **given),
    ],
    ids=["dflash_server", "omlx_dflash"],
)
def test_before_a_server_starts(
    target: Checkpoint, draft: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[..., Any]
) -> None:
    from workers.engines import dflash_server

    fitting = {"dflash-mlx": "0.1.8", "mlx-lm": "0.31.3", "mlx": "0.32.2"}
    monkeypatch.setattr(dflash_server, "require_installed", lambda *_, **__: fitting)
    other = changed(draft, tmp_path / "other", num_target_layers=36)
    with pytest.raises(EngineError, match="it was made for 36 layers"):
        make(checkpoint=target, draft=other, sampling=GREEDY).load()


def test_mlx_lm_server_takes_no_draft_with_another_tokenizer(tmp_path: Path) -> None:
    target, other = tiny.build(tmp_path / "target"), tiny.build(tmp_path / "other", seed=1)
    file = Path(other["path"]) / "tokenizer.json"
    body = json.loads(file.read_text())
    vocabulary = body["model"]["vocab"]
    first, second = list(vocabulary)[10:12]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    file.write_text(json.dumps(body))
    engine = MlxLmServerDraft(settings={}, checkpoint=target, draft=other, sampling=GREEDY)
    with pytest.raises(EngineError, match=r"the tokenizer of the draft other is not that of target: token ") as no:
        engine.load()
    assert no.value.kind is FaultKind.tokenizer_mismatch


def test_the_kind_of_draft_that_an_engine_needs(target: Checkpoint, draft: Checkpoint) -> None:
    with pytest.raises(EngineError, match="is a DFlash draft, and this engine needs a language model"):
        require_fit(Path(target["path"]), Path(draft["path"]), kind=MODEL)
    require_fit(
        Path(target["path"]), Path(target["path"]), kind=BLOCK
    )  # what it does not state is not checked against it


def test_tokenizers_are_compared_by_what_they_say(target: Checkpoint, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    body = json.loads((Path(target["path"]) / "tokenizer.json").read_text())
    ours = Path(target["path"])
    assert tokenizer_difference(ours, theirs) is None  # it has none: drafts of some kinds come without
    (theirs / "tokenizer.json").write_text(json.dumps(body, indent=4))
    assert tokenizer_difference(ours, theirs) is None  # only written otherwise
    body["added_tokens"] = [*body.get("added_tokens", []), {"content": "<new>", "id": 99999}]
    (theirs / "tokenizer.json").write_text(json.dumps(body))
    assert str(tokenizer_difference(ours, theirs)).endswith("tokens against 320")
    assert tokenizer_difference(ours, theirs, more_allowed=True) is None  # a block draft's mask token
    (theirs / "tokenizer.json").write_text('{"model": {"vocab": 3}}')
    with pytest.raises(EngineError, match="no vocabulary that can be read"):
        tokenizer_difference(ours, theirs)


def test_a_plan_and_a_run_say_so_before_anything_runs(target: Checkpoint, draft: Checkpoint, tmp_path: Path) -> None:
    def arm(with_draft: Checkpoint, **engine: Any) -> Arm:
        settings = {"_target_": "workers.engines.dflash_server.DflashServer", "name": "dflash_server"} | engine
        return Arm(name="drafts", checkpoint=target, engine=settings, sampling=SAMPLING, draft=with_draft)

    other = changed(draft, tmp_path / "other", num_target_layers=36)
    assert str(wrong_draft(plan(arm(other)))).startswith("arm drafts: the draft other was made for another target")
    with pytest.raises(InputError, match="arm drafts: the draft other was made for another target"):
        find_weights(plan(arm(other)))
    assert wrong_draft(plan(arm(draft))) is None
    assert wrong_draft(plan(arm(other, attach="http://127.0.0.1:1"))) is None  # its draft is its own
