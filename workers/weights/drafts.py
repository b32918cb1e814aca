"""Checks that a draft was made for a target, by their files: configurations, tensor shapes, tokenizers.

A draft that was not fails somewhere in the middle of a package (`[matmul] ...`, `KeyError: 18`), or does not fail and
proposes tokens of another vocabulary. Here both are one line before anything loads. What a file does not state is not
checked against it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.errors import EngineError, FaultKind
from workers.weights.checkpoints import find_folder, resolve
from workers.weights.model_files import read_header, read_json, weight_files

BLOCK, MODEL = "block", "model"  # a DFlash draft, which runs on the target's states; a language model of its own
_SHOWN = 40  # characters of a token that differs


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """The text part of a multimodal configuration; otherwise the configuration itself."""

    hidden: int | None
    layers: int | None
    vocabulary: int | None


def require_fit(target: Path, draft: Path, *, kind: str) -> None:
    """Refuse a draft that cannot propose for this target.

    Args:
        target, draft: folders in mlx-lm's layout.
        kind: BLOCK or MODEL: what the engine takes.

    Raises:
        EngineError: draft_mismatch or tokenizer_mismatch, with the first difference; or a file cannot be read.
    """
    config = read_json(draft / "config.json")
    is_block = _is_block(config)
    if is_block and kind == MODEL:
        raise EngineError(
            FaultKind.draft_mismatch,
            f"the draft {draft.name} is a DFlash draft, and this engine needs a language model of its own",
            remedy="set engine.draft to another, or use engine=dflash",
        )
    if kind == BLOCK and is_block:
        for problem in _block_problems(config, draft, read_json(target / "config.json"), target):
            raise EngineError(
                FaultKind.draft_mismatch,
                f"the draft {draft.name} was made for another target than {target.name}: {problem}",
                remedy="set engine.draft to a draft that was made for this target",
            )
    if (difference := tokenizer_difference(target, draft, more_allowed=kind == BLOCK)) is not None:
        raise EngineError(
            FaultKind.tokenizer_mismatch,
            f"the tokenizer of the draft {draft.name} is not that of {target.name}: {difference}",
            remedy="set engine.draft to a draft of the same family",
        )


def _is_block(config: Mapping[str, Any]) -> bool:
    """Some packagings keep the layers in `dflash_config`, others beside everything else."""
    named = " ".join(str(each) for each in config.get("architectures") or ())
    return bool({"dflash_config", "target_layer_ids"} & config.keys()) or "DFlash" in named or "DSpark" in named


def _block_problems(
    config: Mapping[str, Any], draft: Path, target_config: Mapping[str, Any], target: Path
) -> Iterator[str]:
    own, theirs = _sizes(config), _sizes(target_config)
    made_for = _number(config.get("num_target_layers"))
    if _differ(made_for, theirs.layers):
        yield f"it was made for {made_for} layers, {target.name} has {theirs.layers}"
    nested = config.get("dflash_config")
    settings = {**config, **nested} if isinstance(nested, Mapping) else config
    tapped = [layer for layer in settings.get("target_layer_ids") or () if isinstance(layer, int)]
    if tapped and theirs.layers is not None and max(tapped) >= theirs.layers:
        yield f"it reads the output of layer {max(tapped)}, {target.name} has {theirs.layers} layers, from 0"
    if _differ(own.hidden, theirs.hidden):
        yield f"its hidden size is {own.hidden}, that of {target.name} {theirs.hidden}"
    if _differ(own.vocabulary, theirs.vocabulary):
        yield f"its vocabulary has {own.vocabulary} tokens, that of {target.name} {theirs.vocabulary}"
    mask = _number(settings.get("mask_token_id"))
    if mask is not None and theirs.vocabulary is not None and mask >= theirs.vocabulary:
        yield f"its mask token is {mask}, the vocabulary of {target.name} has {theirs.vocabulary}"
    read = tensor_shapes(draft).get("fc.weight")
    if read is not None and len(read) == 2 and tapped and theirs.hidden is not None:
        expected = len(tapped) * theirs.hidden
        if read[1] != expected:
            yield f"it takes {read[1]} numbers of hidden state, {len(tapped)} layers of {target.name} give {expected}"


def require_fit_of(checkpoint: Mapping[str, Any], draft: Mapping[str, Any], *, kind: str) -> None:
    """`require_fit` for two checkpoints' configurations, as far as their folders exist already.

    Raises:
        EngineError: see there.
    """
    folders = [find_folder(resolve(each)) for each in (checkpoint, draft)]
    if all(folder is not None for folder in folders):
        require_fit(*(folder for folder in folders if folder is not None), kind=kind)


def tensor_shapes(folder: Path) -> dict[str, list[int]]:
    """The shape of every tensor that is not quantised; the rows of quantised ones are packed.

    Raises:
        EngineError: a file is missing or damaged.
    """
    entries: dict[str, Any] = {}
    for file in weight_files(folder):
        entries |= json.loads(read_header(file))
    packed = {name.removesuffix("scales") for name in entries if name.endswith(".scales")}
    return {
        name: list(entry["shape"])
        for name, entry in entries.items()
        if name != "__metadata__" and f"{name.rpartition('.')[0]}." not in packed
    }


def tokenizer_difference(target: Path, draft: Path, *, more_allowed: bool = False) -> str | None:
    """The difference between two tokenizers, by `tokenizer.json`; None if they agree or one of them has no such file.

    Args:
        more_allowed: the draft may have tokens that the target lacks: its mask, say.

    Raises:
        EngineError: a file is not a tokenizer.
    """
    files = [folder / "tokenizer.json" for folder in (target, draft)]
    if not all(file.is_file() for file in files) or files[0].read_bytes() == files[1].read_bytes():
        return None
    ours, theirs = (_vocabulary(file) for file in files)
    if len(ours) != len(theirs) and not more_allowed:
        return f"{len(theirs)} tokens against {len(ours)}"
    token = next((token for token, number in ours.items() if theirs.get(token) != number), None)
    if token is None:
        return None
    found = theirs.get(token)
    return f"token {token[:_SHOWN]!r} is {'missing' if found is None else found} there and {ours[token]} here"


def _vocabulary(file: Path) -> dict[str, int]:
    """Every token with its number. A vocabulary is a table, or a list of pairs in order."""
    body = read_json(file)
    try:
        listed = body["model"]["vocab"]
        pairs = listed.items() if isinstance(listed, dict) else ((pair[0], at) for at, pair in enumerate(listed))
        known = {str(token): int(number) for token, number in pairs}
        return known | {str(each["content"]): int(each["id"]) for each in body.get("added_tokens") or ()}
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise EngineError(
            FaultKind.checkpoint_corrupt, f"{file}: no vocabulary that can be read", remedy="fetch the checkpoint again"
        ) from error


def _sizes(config: Mapping[str, Any]) -> _Sizes:
    inner = config.get("text_config")
    text = {**config, **inner} if isinstance(inner, Mapping) else config
    return _Sizes(
        hidden=_number(text.get("hidden_size")),
        layers=_number(text.get("num_hidden_layers")),
        vocabulary=_number(text.get("vocab_size")),
    )


def _differ(one: int | None, other: int | None) -> bool:
    return one is not None and other is not None and one != other


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
