"""Multi-token prediction: the model's own extra heads propose, the model verifies, through mtplx.

mtplx pins other versions of MLX and mlx-lm than interlace on a Mac: give it an environment of its own and name its
interpreter in `engine.python`.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.engines.base import LoadInfo, parse_settings
from workers.engines.mlx_loading import LoadedModel
from workers.engines.speculative import (
    COPY,
    DRAFT,
    Committed,
    LoopResult,
    SpeculativeEngine,
    SpeculativeTurn,
    VerifyStep,
    copy_evidence,
    counts,
    require_setting,
)
from workers.environment import installed
from workers.errors import EngineError, FaultKind
from workers.protocol import Evidence
from workers.settings import EngineSettings, setting, within
from workers.stopwatch import Tick
from workers.weights.checkpoints import resolve
from workers.weights.sources import obtain_folder

COPY_SWITCH = "MTPLX_CONTEXT_COPY"  # mtplx copies from the context if it can, unless this is 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(EngineSettings):
    """Settings of mtplx."""

    depth: int = setting(
        1,
        "Tokens proposed per step: one fewer than the verify width.",
        limit=within(1, 16),
        unit="tokens",
        word="speculative_depth",
    )
    copy_drafts: bool = setting(False, "Let the package copy from the context instead of drafting; counted apart.")


class Mtp(SpeculativeEngine):
    """See the module."""

    settings_kind = Settings
    needs = ("mtplx", "mlx-lm", "mlx")
    NAME = "mtp"

    def _check_settings(self) -> None:
        own = parse_settings(Settings, self.settings, engine=self.NAME)
        require_setting(
            {
                f"mtplx has no min_p, and sampling {self._sampling.name} sets it": self._sampling.min_p > 0,
            },
            engine=self.NAME,
        )
        self._own = own

    def _load_target(self) -> LoadedModel:
        import mtplx
        from mlx_lm import utils

        resolved = resolve(self.checkpoint)
        if resolved["source"] == "dummy":
            raise EngineError(
                FaultKind.unsupported_setting,
                f"engine {self.NAME}: checkpoint {self.checkpoint.get('name')} is a dummy and has no heads",
                remedy="choose a checkpoint with multi-token prediction heads",
            )
        folder, info = obtain_folder(resolved)
        if not self._own.copy_drafts:
            os.environ[COPY_SWITCH] = "0"
        try:
            self._runtime = mtplx.load(folder)
        except RuntimeError as error:
            if "MTP injection failed" not in str(error):
                raise
            raise self._no_heads(folder) from error
        if not self._runtime.mtp_enabled:
            raise self._no_heads(folder)
        load_tokenizer: Any = utils.load_tokenizer
        return LoadedModel(model=self._runtime.model, tokenizer=load_tokenizer(folder), info=info, notes=())

    def _no_heads(self, folder: Path) -> EngineError:
        return EngineError(
            FaultKind.draft_mismatch,
            f"engine {self.NAME}: {folder.name} has no multi-token prediction heads for mtplx {installed('mtplx')}, "
            "which would decode plainly",
            remedy="choose a checkpoint that kept them (mlx-lm's conversion drops mtp.* tensors)",
        )

    def _load_package(self) -> LoadInfo:
        return LoadInfo(
            drafted_per_step=self._own.depth,
            verify_width=self._own.depth + 1,
            engine_setting={"speculative_depth": self._own.depth},
            engine_version=installed("mtplx"),
            notes=("no prefix cache: each turn processes its whole prompt",),
        )

    def _generate(self, turn: SpeculativeTurn, tick: Tick) -> LoopResult:
        from mtplx.generation import SamplerConfig, generate_mtpk

        brought: list[int] = []

        def arrived(tokens: Sequence[int]) -> None:
            tick()
            brought.append(len(tokens))

        sampling = self._sampling
        output = generate_mtpk(
            self._runtime,
            turn.prompt_ids,
            max_tokens=turn.request.max_tokens,
            sampler=SamplerConfig(temperature=sampling.temperature, top_p=sampling.top_p, top_k=sampling.top_k),
            speculative_depth=self._own.depth,
            seed=turn.request.seed,
            stop_token_ids=set(self._end_ids),
            token_callback=arrived,
            store_prefix_snapshot=False,
        )
        stats = output.stats
        return LoopResult(
            token_ids=[int(token) for token in output.tokens],
            verify_steps=steps_of(stats.events, verify_calls=int(stats.verify_calls)),
            tokens_per_tick=brought,
            decode_tps=float(stats.decode_tok_s) or None,
        )

    def _evidence(self, answer: LoopResult, done: Committed) -> Sequence[Evidence]:
        steps, drafted, accepted = counts(done, DRAFT)
        words = f"{accepted} of {drafted} proposed tokens accepted in {steps} verify steps"
        heads = Evidence(
            mechanism="mtp",
            requested=True,
            engaged=drafted > 0,
            useful=accepted > 0,
            source="mtplx GenerationStats.events and verify_calls",
            text=words if steps else "the heads never proposed: no verify step of theirs ran",
            drafted=drafted,
            accepted=accepted,
        )
        return [heads, copy_evidence(done, source=heads.source)] if self._own.copy_drafts else [heads]


def steps_of(events: Sequence[dict[str, Any]], *, verify_calls: int) -> list[VerifyStep]:
    """mtplx's events, one a verify step.

    Raises:
        EngineError: another number of them than of the verify passes that it counted.
    """
    steps = []
    for event in events:
        drafts, width, accepted = event["drafts"], event.get("verify_width"), int(event["accepted_depths"])
        if drafts:
            steps.append(VerifyStep(drafted=len(drafts), accepted=accepted))
        elif width and "context_copy" in event:  # tried, whether or not the copy could be committed
            steps.append(VerifyStep(drafted=int(width) - 1, accepted=accepted, source=COPY))
    if len(steps) != verify_calls:
        raise EngineError(
            FaultKind.generation_failed,
            f"mtplx reports {len(steps)} verify steps and counted {verify_calls}",
            remedy="unset MTPLX_DROP_EVENTS; or this mtplx reports in another way than the version that was tested",
        )
    return steps
