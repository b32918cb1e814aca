"""dflash-mlx's prefix cache, in process, under a real mlx-lm that it fits: what is kept, within which budget."""

import importlib.util
import subprocess
import venv
from pathlib import Path
from typing import Any

import pytest

from tests.workers import tiny_drafts
from tests.workers.answering import answering, check
from tests.workers.environments import elsewhere
from workers.protocol import Generation

pytestmark = pytest.mark.slow
FIRST = "Write down what a linked list is, and how an element is removed from it."
SECOND = "Now do the same for a tree."
PURELIB = "import sysconfig; print(sysconfig.get_path('purelib'))"


def purelib(python: Path) -> Path:
    """An environment's packages."""
    return Path(subprocess.run([python, "-c", PURELIB], capture_output=True, text=True, check=True).stdout.strip())


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of mlx-lm 0.31 and this environment's dflash-mlx: its packages come by a file of paths."""
    found = importlib.util.find_spec("dflash_mlx")
    if found is None or found.origin is None:
        pytest.skip("dflash-mlx is not installed: pip install interlace[dflash]")
    package = Path(found.origin).parent
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder / "env", symlinks=True)
    lent = folder / "lent"
    lent.mkdir()
    for each in (package, *package.parent.glob("dflash_mlx-*.dist-info")):
        (lent / each.name).symlink_to(each)
    python = folder / "env" / "bin" / "python"
    (purelib(python) / "lent.pth").write_text(f"{purelib(elsewhere())}\n{lent}\n")
    return python


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    folder = tmp_path_factory.mktemp("models")
    return tiny_drafts.build_target(folder / "target"), tiny_drafts.build_draft(folder / "draft")


def test_a_second_turn_restores_what_fits_the_budget_and_answers_alike(
    python: Path, models: tuple[dict[str, Any], dict[str, Any]], tmp_path: Path
) -> None:
    target, draft = models
    turns: dict[int | None, list[Generation]] = {}
    for budget in (None, 1, 2**30):
        with answering(
            python,
            "workers.engines.dflash.Dflash",
            folder=tmp_path / str(budget),
            checkpoint=target,
            draft=draft,
            settings={"backend": "dflash-mlx", "prefix_cache_bytes": budget},
        ) as engine:
            turns[budget] = engine.ask(FIRST, SECOND)
            again = engine.ask(FIRST)[0]  # a new conversation has nothing of the last one
            notes = engine.loaded.notes
        assert again.cached_tokens == 0
        assert again.token_ids == turns[budget][0].token_ids
        kept = "no prefix cache: each turn" if budget is None else f"prefix cache of dflash-mlx: up to {budget} bytes"
        assert any(note.startswith(kept) for note in notes)
    cached = {budget: [turn.cached_tokens for turn in answered] for budget, answered in turns.items()}
    assert cached[None] == cached[1] == [0, 0]  # one byte holds no snapshot
    restored, (first, second) = cached[2**30], turns[2**30]
    assert restored[0] == 0
    assert restored[1] is not None
    assert first.prompt_tokens * 0.8 < restored[1] < second.prompt_tokens
    for budget, answered in turns.items():
        assert [turn.token_ids for turn in answered] == [turn.token_ids for turn in turns[None]], budget
        for turn in answered:
            check(turn, max_tokens=12)
