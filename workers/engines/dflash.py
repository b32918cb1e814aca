"""DFlash: a draft that fills a whole block at once, verified by the target in one pass. Three packages run it on MLX.

What differs between the packages is in `dflash_backends`; here are the settings that all take, and the evidence, which
is the same: rounds with (drafted, accepted) on this very turn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.engines.base import LoadInfo, parse_settings
from workers.engines.dflash_backends import BACKENDS, Backend, Wanted
from workers.engines.mlx_loading import LoadedModel
from workers.engines.mlx_probes import BlockDraft, Probed
from workers.engines.speculative import (
    DRAFT,
    Committed,
    LoopResult,
    SpeculativeEngine,
    SpeculativeTurn,
    copy_evidence,
    counts,
    require_setting,
)
from workers.errors import EngineError, FaultKind
from workers.protocol import Evidence
from workers.settings import EngineSettings, at_least, one_of, setting
from workers.stopwatch import Tick
from workers.weights.checkpoints import resolve
from workers.weights.drafts import BLOCK, require_fit
from workers.weights.sources import draft_folder, obtain_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(EngineSettings):
    """Settings of DFlash in process, whichever package runs it."""

    backend: str = setting("mlx-dspark", "The package that runs it.", limit=one_of(*BACKENDS))
    block_size: int | None = setting(
        None, "Verify width. null: what the draft was trained with.", limit=at_least(2), unit="tokens"
    )
    verify_mode: str = setting(
        "fixed",
        "adaptive: the package shrinks blocks as acceptance falls (dflash-mlx).",
        limit=one_of("fixed", "adaptive"),
    )
    draft_bits: int | None = setting(
        None, "Quantise the draft as it loads. null: it stays as it is.", limit=one_of(4, 8)
    )
    draft_group_size: int = setting(64, "Weights that share a scale in the quantised draft.", limit=one_of(32, 64, 128))
    prefix_cache_bytes: int | None = setting(
        None,
        "Memory for the prefix that is kept between a conversation's turns (dflash-mlx). null or 0: nothing is kept.",
        limit=at_least(0),
    )
    copy_drafts: bool = setting(False, "Let the package copy from the context instead of drafting; counted apart.")


class Dflash(SpeculativeEngine):
    """See the module."""

    settings_kind = Settings
    takes_draft = True
    NAME = "dflash"

    @classmethod
    def packages(cls, settings: Mapping[str, Any]) -> tuple[str, ...]:
        return (str(settings.get("backend", "mlx-dspark")), "mlx-lm", "mlx")

    def _check_settings(self) -> None:
        own = parse_settings(Settings, self.settings, engine=self.NAME)
        if self.draft is None:
            raise EngineError(
                FaultKind.unsupported_setting,
                f"engine {self.NAME}: checkpoint {self.checkpoint.get('name')} names no draft",
                remedy="set engine.draft to a checkpoint that is a DFlash draft of it",
            )
        backend = BACKENDS[own.backend]
        require_setting(
            {
                f"verify_mode {own.verify_mode}: {own.backend} has {', '.join(backend.VERIFY_MODES)}": (
                    own.verify_mode not in backend.VERIFY_MODES
                ),
                f"{own.backend} has no prefix cache with a budget in process: prefix_cache_bytes must be null or 0": (
                    bool(own.prefix_cache_bytes) and not backend.KEEPS_PREFIX
                ),
                f"{own.backend} has no copy_drafts": own.copy_drafts and not backend.COPIES,
                f"{own.backend} decodes greedily only": self._sampling.temperature > 0 and not backend.SAMPLES,
                f"{own.backend} has no min_p, and sampling {self._sampling.name} sets it": self._sampling.min_p > 0,
            },
            engine=self.NAME,
        )
        self._own = own
        self._backend: Backend = backend(
            Wanted(
                block_size=own.block_size,
                verify_mode=own.verify_mode,
                draft_bits=own.draft_bits,
                draft_group_size=own.draft_group_size,
                prefix_cache_bytes=own.prefix_cache_bytes or 0,
                copy_drafts=own.copy_drafts,
                sampling=self._sampling,
            )
        )

    def _load_target(self) -> LoadedModel:
        self._draft_folder = draft_folder(self.draft or {})
        resolved = resolve(self.checkpoint)
        if resolved["source"] != "dummy":
            require_fit(obtain_folder(resolved)[0], self._draft_folder, kind=BLOCK)
        return self._backend.load_target(self.checkpoint, self._draft_folder)

    def _load_package(self) -> LoadInfo:
        loaded = self._backend.load_draft(self.target, self._draft_folder)
        width = self._own.block_size or loaded.trained_block_size
        if self._backend.CLAMPS and width > loaded.trained_block_size:
            raise EngineError(
                FaultKind.unsupported_setting,
                f"engine {self.NAME}: block_size {width} is more than the {loaded.trained_block_size} that the draft "
                f"was trained with, and {self._own.backend} would run the smaller one",
                remedy=f"set engine.block_size to {loaded.trained_block_size} or less",
            )
        version = self._backend.version()
        return LoadInfo(
            drafted_per_step=width - 1,
            verify_width=width,
            engine_setting=self._backend.setting(width),
            engine_version=f"{self._own.backend} {version}",
            notes=(
                f"draft: DFlash {loaded.draft_version}, {loaded.tensors} tensors, all known to {self._own.backend} "
                f"{version}",
                *loaded.notes,
                self._prefix_note(),
            ),
        )

    def _prefix_note(self) -> str:
        if not self._own.prefix_cache_bytes:
            return "no prefix cache: each turn processes its whole prompt"
        return f"prefix cache of {self._own.backend}: up to {self._own.prefix_cache_bytes} bytes, within a conversation"

    def _forget(self) -> None:
        self._backend.forget()

    def _probed(self) -> Probed:
        return self._backend.probed()

    def _block_draft(self) -> BlockDraft | None:
        return self._backend.block_draft()

    def _generate(self, turn: SpeculativeTurn, tick: Tick) -> LoopResult:
        return self._backend.generate(turn.prompt_ids, turn.request.max_tokens, end_ids=self._end_ids, tick=tick)

    def _evidence(self, answer: LoopResult, done: Committed) -> Sequence[Evidence]:
        steps, drafted, accepted = counts(done, DRAFT)
        words = f"{accepted} of {drafted} proposed tokens accepted in {steps} verify steps"
        if not steps:
            words = "no verify step ran" if answer.fallback is None else f"fell back: {answer.fallback}"
        elif answer.fallback is not None:
            words += f"; then fell back: {answer.fallback}"
        dflash = Evidence(
            mechanism="dflash",
            requested=True,
            engaged=drafted > 0 and answer.fallback is None,
            useful=accepted > 0 and answer.fallback is None,
            source=f"{self._own.backend} {self._backend.SIGN}",
            text=words,
            drafted=drafted,
            accepted=accepted,
        )
        return [dflash, copy_evidence(done, source=dflash.source)] if self._own.copy_drafts else [dflash]
