"""The interface of every package's backend, and the reading of a draft's files."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from workers.engines.mlx_loading import LoadedModel, load_model
from workers.engines.mlx_probes import BlockDraft, Probed
from workers.engines.speculative import LoopResult
from workers.environment import installed
from workers.errors import EngineError, FaultKind, ProbeUnsupported
from workers.sampling import Sampling
from workers.stopwatch import Tick
from workers.weights.model_files import read_header, read_json, tensor_table, weight_files

# The messages of the packages and of MLX when weights and model do not fit, with the number.
_UNKNOWN = re.compile(r"Received (\d+) parameters not in model|unexpected in checkpoint \((\d+)\)")
_LACKING = re.compile(r"Missing (\d+) parameters|missing in checkpoint \((\d+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """An arm's settings."""

    block_size: int | None
    verify_mode: str
    draft_bits: int | None
    draft_group_size: int
    prefix_cache_bytes: int  # 0: nothing is kept from one turn to the next
    copy_drafts: bool
    sampling: Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedDraft:
    """A draft as it was loaded from its folder."""

    draft_version: int
    trained_block_size: int
    tensors: int
    notes: tuple[str, ...] = ()


class Backend(ABC):
    """One package."""

    DISTRIBUTION: ClassVar[str]
    SIGN: ClassVar[str]  # where its evidence is read
    VERIFY_MODES: ClassVar[tuple[str, ...]] = ("fixed",)
    CLAMPS: ClassVar[bool] = True  # silently runs the trained block size if a larger one is asked for
    COPIES: ClassVar[bool] = True  # can copy from the context instead of drafting
    SAMPLES: ClassVar[bool] = True
    READS_V2: ClassVar[bool] = True
    KEEPS_PREFIX: ClassVar[bool] = False  # has a prefix cache with a budget of bytes

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted

    def version(self) -> str:
        return installed(self.DISTRIBUTION) or "unknown"

    def load_target(self, checkpoint: Mapping[str, Any], draft: Path) -> LoadedModel:
        """The target as the package wants it."""
        return load_model(checkpoint)

    @abstractmethod
    def load_draft(self, target: LoadedModel, folder: Path) -> LoadedDraft:
        """Load the draft and tie it to the target.

        Raises:
            EngineError: draft_mismatch: the package does not know some of its parameters, or lacks some.
        """

    @abstractmethod
    def setting(self, width: int) -> dict[str, Any]:
        """The verify width in the package's own words."""

    @abstractmethod
    def generate(
        self, prompt_ids: Sequence[int], max_tokens: int, *, end_ids: frozenset[int], tick: Tick
    ) -> LoopResult:
        """Answer one prompt."""

    def forget(self) -> None:
        """A new conversation: nothing of the last one may be reused."""
        return

    def probed(self) -> Probed:
        """The target alone.

        Raises:
            ProbeUnsupported: the package changes it, or runs it in its own way.
        """
        raise ProbeUnsupported(
            f"{self.DISTRIBUTION} runs the target in its own way; ask a plain arm of this checkpoint"
        )

    def block_draft(self) -> BlockDraft | None:
        """The draft's pass; None: it cannot be run alone."""
        return None

    @contextmanager
    def _checking_parameters(self, folder: Path) -> Iterator[None]:
        """Turn the package's message on parameters that do not fit into one line with the count and the remedy."""
        try:
            yield
        except (ValueError, KeyError) as error:
            raise self._mismatch(str(error), folder) from error

    def _mismatch(self, message: str, folder: Path) -> EngineError:
        unknown, lacking = (_count(pattern, message) for pattern in (_UNKNOWN, _LACKING))
        version, tensors = draft_files(folder)
        package = f"{self.DISTRIBUTION} {self.version()}"
        if unknown:
            what = f"{package} does not know {unknown} of the {tensors} parameters of the draft {folder.name}"
        elif lacking:
            what = f"the draft {folder.name} lacks {lacking} parameters that {package} needs"
        else:
            what = f"{package} cannot load the draft {folder.name}: {message.splitlines()[0]}"
        others = [kind.DISTRIBUTION for kind in Backend.__subclasses__() if kind is not type(self) and kind.READS_V2]
        remedy = f"upgrade {self.DISTRIBUTION}, or set engine.backend to one that reads it: {', '.join(others)}"
        return EngineError(
            FaultKind.draft_mismatch,
            f"{what} (a DFlash {version} draft)",
            remedy=remedy if unknown and version == 2 else "choose a draft made for this target",
        )


def describe_draft(folder: Path, draft: Any, *, trained_block_size: int) -> LoadedDraft:
    """A loaded draft: what its files hold, and how many of its layers are quantised."""
    version, tensors = draft_files(folder)
    bits = [int(module.bits) for _, module in draft.named_modules() if hasattr(module, "scales")]
    quantised = f"{len(bits)} of its layers in {bits[0]} bits" if bits else "none of its layers quantised"
    return LoadedDraft(
        draft_version=version, trained_block_size=trained_block_size, tensors=tensors, notes=(f"draft: {quantised}",)
    )


def draft_files(folder: Path) -> tuple[int, int]:
    """A draft's DFlash version, and how many tensors its files hold."""
    config = read_json(folder / "config.json")
    sizes, _ = tensor_table({file: read_header(file) for file in weight_files(folder)})
    return 2 if "DFlash2DraftModel" in (config.get("architectures") or ()) else 1, len(sizes)


def _count(pattern: re.Pattern[str], message: str) -> int:
    found = pattern.search(message)
    return int(next(group for group in found.groups() if group)) if found else 0
