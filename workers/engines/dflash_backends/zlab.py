"""z-lab's dflash, whose draft is watched for what it proposed."""

from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from workers.engines.dflash_backends.backend import Backend, LoadedDraft, describe_draft
from workers.engines.dspark_steps import sampling_arguments
from workers.engines.mlx_loading import LoadedModel
from workers.engines.speculative import LoopResult, VerifyStep
from workers.stopwatch import Tick


class Zlab(Backend):
    """z-lab's dflash. It wraps the target's layers for good: one process an arm, which is what a worker is."""

    DISTRIBUTION = "dflash"
    SIGN = "GenerationResponse.accepted; the draft's proposals"
    CLAMPS = False
    COPIES = False

    def load_draft(self, target: LoadedModel, folder: Path) -> LoadedDraft:
        from dflash import model_mlx

        self._model, self._tokenizer = target.model, target.tokenizer
        model_mlx.snapshot_download = lambda *_, **__: str(folder)  # it would ask a hub even for a folder
        with self._checking_parameters(folder):
            self._draft = model_mlx.load_draft(str(folder))
        if self.wanted.draft_bits is not None:  # dflash has no setting for it
            quantize_draft(self._draft, bits=self.wanted.draft_bits, group_size=self.wanted.draft_group_size)
        self._proposals = watch_proposals(self._draft)
        return describe_draft(folder, self._draft, trained_block_size=int(self._draft.config.block_size))

    def setting(self, width: int) -> dict[str, Any]:
        return {"block_size": width}

    def generate(
        self, prompt_ids: Sequence[int], max_tokens: int, *, end_ids: frozenset[int], tick: Tick
    ) -> LoopResult:
        import mlx.core as mx
        from dflash.model_mlx import stream_generate

        self._proposals.clear()
        self._tokenizer.eos_token_ids = end_ids
        token_ids: list[int] = []
        steps: list[VerifyStep] = []
        last = None
        responses = stream_generate(
            self._model,
            self._draft,
            self._tokenizer,
            mx.array(list(prompt_ids)),
            block_size=self.wanted.block_size,
            max_tokens=max_tokens,
            **sampling_arguments(asdict(self.wanted.sampling)),
        )
        for response in responses:
            last = response
            if not response.tokens:
                continue  # the last one has no token, only the reason for the end
            tick()
            token_ids += response.tokens
            if response.accepted is not None:
                steps.append(VerifyStep(drafted=self._proposals.widths[len(steps)], accepted=len(response.tokens) - 1))
        if steps:
            steps[-1] = self._last_step(steps[-1], token_ids)
        decode_tps = None if last is None else last.generation_tps
        return LoopResult(
            token_ids=token_ids,
            verify_steps=steps,
            prefill_tps=None if last is None else last.prompt_tps,
            decode_tps=decode_tps,
        )

    def _last_step(self, last: VerifyStep, token_ids: Sequence[int]) -> VerifyStep:
        """In the last step the package does not state whether its last token is the draft's or the target's own: if
        the target's own one was cut off, it is the draft's. The proposal shows it, unless it was sampled."""
        proposed = self._proposals.last_tokens()
        end = token_ids[len(token_ids) - last.accepted - 1 :]
        if proposed is None or list(proposed[: len(end)]) != list(end):
            return last
        return VerifyStep(drafted=last.drafted, accepted=len(end))


class Proposals:
    """The calls of a draft since the last `clear`: the width of each, and the last proposal, unevaluated."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.widths: list[int] = []
        self.last: Any = None  # logits, or the tokens themselves

    def add(self, proposed: Any, *, width: int) -> None:
        self.widths.append(width)
        self.last = proposed

    def last_tokens(self) -> Sequence[int] | None:
        """The last proposal's tokens, most likely first choice of each slot; None before any."""
        import mlx.core as mx

        if self.last is None:
            return None
        tokens = mx.argmax(self.last, axis=-1) if self.last.ndim == 3 else self.last
        found: Any = tokens[0].tolist()
        return [int(token) for token in found]


def watch_proposals(draft: Any) -> Proposals:
    """Let a draft model of z-lab's note its proposals. Its class is looked at by the package: it stays one of them."""
    proposals = Proposals()
    kind = type(draft)

    def call(self: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
        logits = kind.__call__(self, inputs, *rest, **named)
        proposals.add(logits, width=inputs.shape[1] - 1)
        return logits

    def propose(self: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
        found = kind.propose(self, inputs, *rest, **named)
        proposals.add(found[0], width=inputs.shape[1] - 1)
        return found

    methods = {"propose": propose} if hasattr(kind, "propose") else {"__call__": call}
    draft.__class__ = type(kind.__name__, (kind,), methods)
    return proposals


def quantize_draft(draft: Any, *, bits: int, group_size: int) -> None:
    """Quantise a draft's linear layers; DFlash 2's convolution kernels and selector stay as they are, as in
    mlx-dspark."""
    import mlx.core as mx

    nn: Any = import_module("mlx.nn")  # its names come by import *, which its types do not follow

    def is_backbone(path: str, module: Any) -> bool:
        return isinstance(module, nn.Linear) and "_conv" not in path and "candidate_selector" not in path

    nn.quantize(draft, group_size=group_size, bits=bits, class_predicate=is_backbone)
    mx.eval(draft.parameters())
