"""dflash-mlx, whose loop is observed through the calls that it makes."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from workers.engines.dflash_backends.backend import Backend, LoadedDraft, describe_draft
from workers.engines.mlx_loading import LoadedModel
from workers.engines.speculative import COPY, DRAFT, LoopResult, VerifyStep
from workers.environment import installed
from workers.errors import EngineError, FaultKind
from workers.stopwatch import Tick
from workers.weights.checkpoints import resolve
from workers.weights.sources import obtain_folder


class DflashMlx(Backend):
    """dflash-mlx. It commits a step's own token with the next step: that is when a reader gets it."""

    DISTRIBUTION = "dflash-mlx"
    SIGN = "acceptance_history; calls of verify_block"
    VERIFY_MODES = ("fixed", "adaptive")
    SAMPLES = False
    READS_V2 = False
    KEEPS_PREFIX = True

    def load_target(self, checkpoint: Mapping[str, Any], draft: Path) -> LoadedModel:
        from dflash_mlx.runtime.bundle import load_runtime_bundle
        from dflash_mlx.runtime.config import runtime_config_from_defaults
        from dflash_mlx.runtime.context import build_runtime_context

        resolved = resolve(checkpoint)
        if resolved["source"] == "dummy":
            raise EngineError(
                FaultKind.unsupported_setting,
                f"dflash-mlx loads a folder, and checkpoint {checkpoint.get('name')} is a dummy",
                remedy="choose a checkpoint on the disk",
            )
        folder, info = obtain_folder(resolved)
        if self.wanted.prefix_cache_bytes:
            require_readable_cache()
        mode = {"fixed": "dflash"}.get(self.wanted.verify_mode, self.wanted.verify_mode)
        config = runtime_config_from_defaults(
            prefix_cache=self.wanted.prefix_cache_bytes > 0,
            prefix_cache_max_bytes=self.wanted.prefix_cache_bytes,
            prefix_cache_l2=False,  # on the disk: it would outlive the arm
            verify_mode=mode,
        )
        self._context = build_runtime_context(config)
        with self._checking_parameters(draft):
            self._bundle = load_runtime_bundle(
                model_ref=str(folder),
                draft_ref=str(draft),
                draft_quant=self._quantisation(str(info.dtype)),
                verify_config=self._context.verify,
            )
        return LoadedModel(model=self._bundle.target_model, tokenizer=self._bundle.tokenizer, info=info, notes=())

    def load_draft(self, target: LoadedModel, folder: Path) -> LoadedDraft:
        if not self.wanted.copy_drafts:
            forbid_copies()
        draft = self._bundle.draft_model
        return describe_draft(folder, draft, trained_block_size=int(draft.block_size))

    def setting(self, width: int) -> dict[str, Any]:
        return {"block_tokens": width, "verify_mode": self._context.verify.mode}

    def generate(
        self, prompt_ids: Sequence[int], max_tokens: int, *, end_ids: frozenset[int], tick: Tick
    ) -> LoopResult:
        from dflash_mlx.engine.events import PrefillCompleteEvent, SummaryEvent, TokenEvent
        from dflash_mlx.runtime import stream_dflash_generate

        bundle = self._bundle
        calls = Calls()
        arrived: dict[int, int] = {}  # tokens by the cycle that brought them; 0: prefill
        summary = None
        cached_tokens = 0
        events = stream_dflash_generate(
            target_model=bundle.target_model,
            target_ops=Watched(bundle.target_ops, verify_block=calls.verify),
            tokenizer=bundle.tokenizer,
            draft_model=bundle.draft_model,
            draft_backend=Watched(bundle.draft_backend, draft_greedy=calls.draft, advance_context=calls.copy),
            max_new_tokens=max_tokens,
            block_tokens=self.wanted.block_size,
            stop_token_ids=sorted(end_ids),
            prompt_tokens_override=list(prompt_ids),
            runtime_context=self._context,
            **self._prefix(prompt_ids),
        )
        for event in events:
            if isinstance(event, TokenEvent):
                if event.cycles_completed not in arrived:
                    tick()
                arrived[event.cycles_completed] = arrived.get(event.cycles_completed, 0) + 1
            elif isinstance(event, PrefillCompleteEvent):
                cached_tokens = int(event.snap_prefix_len)  # restored, not only found
            elif isinstance(event, SummaryEvent):
                summary = event
        if summary is None:
            raise EngineError(FaultKind.generation_failed, "dflash-mlx ended without its summary")
        return LoopResult(
            token_ids=[int(token) for token in summary.generated_token_ids],
            verify_steps=calls.verify_steps(summary.acceptance_history),
            tokens_per_tick=list(arrived.values()),
            fallback=str(summary.fallback_reason) if summary.fallback_ar else None,
            cached_tokens=cached_tokens,
        )

    def _prefix(self, prompt_ids: Sequence[int]) -> dict[str, Any]:
        """Return the cached state of this prompt, and the place of the new one, as the package's server does."""
        if not self.wanted.prefix_cache_bytes:
            return {"publish_generation_snapshot": False}
        from dflash_mlx.server.prefix_cache_flow import PrefixCacheFlow

        bundle = self._bundle
        models = (bundle.resolved_model_ref, None, bundle.resolved_draft_ref)
        flow = PrefixCacheFlow.for_request(
            model_provider=SimpleNamespace(model_key=models, tokenizer=bundle.tokenizer),
            draft_model=bundle.draft_model,
            tokenizer=bundle.tokenizer,
            prompt=list(prompt_ids),
            runtime_context=self._context,
        )
        return {
            "prefix_snapshot": flow.snapshot,
            "snapshot_service": flow.snapshot_service,
            "stable_prefix_len": flow.stable_prefix_len,
            "prefix_cache_active": flow.cache_active,
            "publish_generation_snapshot": flow.publish_generation_snapshot,
        }

    def forget(self) -> None:
        if self.wanted.prefix_cache_bytes:
            from dflash_mlx.cache.manager import shutdown_runtime_cache_manager

            shutdown_runtime_cache_manager()

    def _quantisation(self, dtype: str) -> str | None:
        """Return the draft's quantisation in the package's words; activations stay in 32 bits if the target's are."""
        if self.wanted.draft_bits is None:
            return None
        activations = 32 if dtype == "float32" else 16
        return f"w{self.wanted.draft_bits}a{activations}:gs{self.wanted.draft_group_size}"


def require_readable_cache() -> None:
    """dflash-mlx 0.1.8 reads mlx-lm's cache in a form that mlx-lm 0.32 no longer has: every turn would fail.

    Raises:
        EngineError: this pair of packages cannot store a prefix.
    """
    import mlx.core as mx
    from dflash_mlx.cache.codecs import serialize_target_cache

    cache: Any = import_module("mlx_lm.models.cache").KVCache()
    cache.update_and_fetch(mx.zeros((1, 1, 1, 8)), mx.zeros((1, 1, 1, 8)))
    try:
        serialize_target_cache([cache])
    except (ValueError, TypeError) as error:
        raise EngineError(
            FaultKind.unsupported_setting,
            f"engine dflash: the prefix cache of dflash-mlx {installed('dflash-mlx')} does not run with mlx-lm"
            f" {installed('mlx-lm')} ({error})",
            remedy="set prefix_cache_bytes to null, or engine.python to an environment with dflash-mlx and mlx-lm<0.32",
        ) from error


class Calls:
    """The calls of dflash-mlx's loop: the width of each verify pass, and the source of its proposals."""

    def __init__(self) -> None:
        self._source = DRAFT
        self._verified: list[tuple[int, str]] = []

    def verify(self, *_: Any, verify_ids: Any, **__: Any) -> None:
        self._verified.append((verify_ids.shape[1] - 1, self._source))

    def draft(self, *_: Any, **__: Any) -> None:
        self._source = DRAFT

    def copy(self, *_: Any, **__: Any) -> None:
        """Advance the context without drafting."""
        self._source = COPY

    def verify_steps(self, accepted: Sequence[int]) -> list[VerifyStep]:
        """Raises: EngineError: another number of cycles than of verify passes."""
        if len(accepted) != len(self._verified):
            raise EngineError(
                FaultKind.generation_failed, f"dflash-mlx reports {len(accepted)} cycles, {len(self._verified)} ran"
            )
        return [
            VerifyStep(drafted=width, accepted=int(count), source=source)
            for (width, source), count in zip(self._verified, accepted, strict=True)
        ]


class Watched:
    """Wraps an object and reports each call of some of its methods to a watcher first."""

    def __init__(self, watched: Any, **watchers: Any) -> None:
        self._watched = watched
        self._watchers = watchers

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._watched, name)
        if name not in self._watchers:
            return found

        def reported(*arguments: Any, **named: Any) -> Any:
            self._watchers[name](*arguments, **named)
            return found(*arguments, **named)

        return reported


def forbid_copies() -> None:
    """Prevent copies from the context: dflash-mlx has no setting for that, so its index is made to find nothing."""
    from dflash_mlx.engine import spec_epoch

    class NoCopies(spec_epoch.CopySpecIndex):  # type: ignore[misc]  # a package without types
        def draft_after(self, *_: Any, **__: Any) -> None:
            return

    spec_epoch.CopySpecIndex = NoCopies
