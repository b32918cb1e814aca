"""mlx-dspark, of which also the draft's pass can be timed alone."""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from workers.engines.dflash_backends.backend import Backend, LoadedDraft, describe_draft
from workers.engines.dspark_steps import TickingTokenizer, VerifySteps, read_nothing, sampling_arguments
from workers.engines.mlx_loading import LoadedModel
from workers.engines.mlx_probes import BlockDraft, Budget, Probed
from workers.engines.speculative import COPY, DRAFT, LoopResult, VerifyStep
from workers.stopwatch import Tick

PROBE_PREFILL_STEP = 512


class Dspark(Backend):
    """mlx-dspark."""

    DISTRIBUTION = "mlx-dspark"
    SIGN = "on_round"

    def load_draft(self, target: LoadedModel, folder: Path) -> LoadedDraft:
        from mlx_dspark import load_dflash
        from mlx_dspark.target import Target

        self._tokenizer = target.tokenizer
        self._target = Target(target.model, target.tokenizer)
        self._target.verify_tap()  # the draft reads hidden states; an unknown family raises an error
        with self._checking_parameters(folder):
            self._draft, config = load_dflash(
                str(folder),
                quantize=self.wanted.draft_bits is not None,
                bits=self.wanted.draft_bits or 4,
                group_size=self.wanted.draft_group_size,
            )
        self._draft.bind(target.model)
        return describe_draft(folder, self._draft, trained_block_size=int(config.block_size))

    def setting(self, width: int) -> dict[str, Any]:
        return {"max_draft_tokens": width - 1}

    def generate(
        self, prompt_ids: Sequence[int], max_tokens: int, *, end_ids: frozenset[int], tick: Tick
    ) -> LoopResult:
        from mlx_dspark import dflash_generate

        steps = VerifySteps()
        result = dflash_generate(
            self._target,
            TickingTokenizer(self._tokenizer, end_ids=end_ids, tick=tick),
            self._draft,
            prompt_ids=list(prompt_ids),
            max_new_tokens=max_tokens,
            max_draft_tokens=None if self.wanted.block_size is None else self.wanted.block_size - 1,
            lookup_drafts=self.wanted.copy_drafts,
            on_round=steps,
            on_text=read_nothing,
            **sampling_arguments(asdict(self.wanted.sampling)),
        )
        return LoopResult(
            token_ids=result.token_ids,
            verify_steps=[
                VerifyStep(
                    drafted=each.drafted, accepted=each.accepted, source=COPY if each.source == "lookup" else DRAFT
                )
                for each in steps.seen
            ],
            decode_tps=result.decode_tokens_per_sec,
        )

    def probed(self) -> Probed:
        """Run the target as mlx-lm does; on Metal the package's own verify pass has other kernels."""
        return Probed(
            model=self._target.model, make_cache=self._target.make_cache, prefill_step_size=PROBE_PREFILL_STEP
        )

    def block_draft(self) -> BlockDraft:
        return BlockDraft(width=int(self._draft.config.block_size), after=self._drafting_after)

    def _drafting_after(self, context: Sequence[int], budget: Budget) -> Callable[[], float]:
        """Draft as `dflash_generate` does: the whole block from masks, over the context's hidden states."""
        import mlx.core as mx

        config = self._draft.config
        tapped, cache, drafting = list(config.target_layer_ids), self._target.make_cache(), self._draft.make_cache()
        for start in range(0, len(context), PROBE_PREFILL_STEP):
            budget.require("processing the prompt")
            chunk = mx.array([context[start : start + PROBE_PREFILL_STEP]])
            _, hidden = self._target.run(chunk, cache, tapped)
            self._draft.append_ctx(self._draft.project_ctx(hidden), drafting)
            mx.eval(hidden, [layer.state for layer in drafting])
        last = hidden[:, -1:]
        block = mx.array([[context[-1], *[int(config.mask_token_id)] * (int(config.block_size) - 1)]])
        mx.eval(last, block)

        def seconds() -> float:
            fresh = copy.deepcopy(drafting)
            mx.synchronize()
            started = time.perf_counter()
            mx.eval(self._proposed(block, last, fresh, anchor=context[-1]))
            return time.perf_counter() - started

        return seconds

    def _proposed(self, block: Any, hidden: Any, cache: Any, *, anchor: int) -> Any:
        """Return the likeliest block, by the selector of a v2 draft if it has one."""
        import mlx.core as mx

        if getattr(self._draft, "candidate_selector", None) is not None:
            return self._draft.select_block(block, hidden, cache, cap=block.shape[1] - 1, anchor_id=anchor)[0]
        return mx.argmax(self._draft(block, hidden, cache, logits_start=1)[0], axis=-1)
