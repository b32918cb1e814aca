"""The packages that run DFlash drafts on MLX, each brought into one form. Nothing of them is imported before a load.

| backend      | drafts | what it reports                                                                   |
|--------------|--------|-----------------------------------------------------------------------------------|
| mlx-dspark   | v1, v2 | a hook a verify step; drafts the whole block, verifies `block_size - 1` of it      |
| dflash       | v1, v2 | tokens a step; what the draft proposed is read at the draft                       |
| dflash-mlx   | v1     | accepted tokens a cycle, at the end; widths and sources are read where it calls   |
"""

import copy
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from workers.checkpoints import resolve
from workers.engines.dspark import Rounds, TickingTokenizer, read_nothing, sampling_arguments
from workers.engines.mlx_common import Sampling
from workers.engines.mlx_loading import LoadedModel, load_model, obtain_folder
from workers.engines.mlx_probes import BlockDraft, Budget, Probed
from workers.engines.speculative import COPY, DRAFT, Answer, Round
from workers.errors import EngineError, FaultKind, ProbeUnsupported
from workers.model_files import read_header, read_json, tensor_table, weight_files
from workers.stopwatch import Tick
from workers.surroundings import installed

PROBE_PREFILL_STEP = 512
# How the packages and MLX say that weights and model do not fit, and how many.
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
    """What became of a draft's folder."""

    draft_version: int
    trained_block_size: int
    tensors: int
    notes: tuple[str, ...] = ()


class Backend(ABC):
    """One package."""

    DISTRIBUTION: ClassVar[str]
    SIGN: ClassVar[str]  # where its evidence is read
    VERIFY_MODES: ClassVar[tuple[str, ...]] = ("fixed",)
    CLAMPS: ClassVar[bool] = True  # runs the trained block size where a larger one is asked for, without a word
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
    def generate(self, prompt_ids: Sequence[int], max_tokens: int, *, end_ids: frozenset[int], tick: Tick) -> Answer:
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
        """What the package says of parameters that do not fit, as one line with the count and the remedy."""
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
        others = [name for name, backend in BACKENDS.items() if name != self.DISTRIBUTION and backend.READS_V2]
        remedy = f"upgrade {self.DISTRIBUTION}, or set engine.backend to one that reads it: {', '.join(others)}"
        return EngineError(
            FaultKind.draft_mismatch,
            f"{what} (a DFlash {version} draft)",
            remedy=remedy if unknown and version == 2 else "choose a draft made for this target",
        )


class Dspark(Backend):
    """mlx-dspark."""

    DISTRIBUTION = "mlx-dspark"
    SIGN = "on_round"

    def load_draft(self, target: LoadedModel, folder: Path) -> LoadedDraft:
        from mlx_dspark import load_dflash
        from mlx_dspark.target import Target

        self._tokenizer = target.tokenizer
        self._target = Target(target.model, target.tokenizer)
        self._target.verify_tap()  # the draft reads hidden states: of a family that it knows, else it says so
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

    def generate(self, prompt_ids: Sequence[int], max_tokens: int, *, end_ids: frozenset[int], tick: Tick) -> Answer:
        from mlx_dspark import dflash_generate

        rounds = Rounds()
        result = dflash_generate(
            self._target,
            TickingTokenizer(self._tokenizer, end_ids=end_ids, tick=tick),
            self._draft,
            prompt_ids=list(prompt_ids),
            max_new_tokens=max_tokens,
            max_draft_tokens=None if self.wanted.block_size is None else self.wanted.block_size - 1,
            lookup_drafts=self.wanted.copy_drafts,
            on_round=rounds,
            on_text=read_nothing,
            **sampling_arguments(asdict(self.wanted.sampling)),
        )
        return Answer(
            token_ids=result.token_ids,
            rounds=[
                Round(drafted=each.drafted, accepted=each.accepted, source=COPY if each.source == "lookup" else DRAFT)
                for each in rounds.seen
            ],
            decode_tps=result.decode_tokens_per_sec,
        )

    def probed(self) -> Probed:
        """As mlx-lm runs it; on Metal the package's own verify pass has other kernels."""
        return Probed(
            model=self._target.model, make_cache=self._target.make_cache, prefill_step_size=PROBE_PREFILL_STEP
        )

    def block_draft(self) -> BlockDraft:
        return BlockDraft(width=int(self._draft.config.block_size), after=self._drafting_after)

    def _drafting_after(self, context: Sequence[int], budget: Budget) -> Callable[[], float]:
        """As `dflash_generate` drafts: the whole block from masks, over the context's hidden states."""
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
        """The likeliest block, by a v2 draft's selector where it has one."""
        import mlx.core as mx

        if getattr(self._draft, "candidate_selector", None) is not None:
            return self._draft.select_block(block, hidden, cache, cap=block.shape[1] - 1, anchor_id=anchor)[0]
        return mx.argmax(self._draft(block, hidden, cache, logits_start=1)[0], axis=-1)


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

    def generate(self, prompt_ids: Sequence[int], max_tokens: int, *, end_ids: frozenset[int], tick: Tick) -> Answer:
        import mlx.core as mx
        from dflash.model_mlx import stream_generate

        self._proposals.clear()
        self._tokenizer.eos_token_ids = end_ids
        token_ids: list[int] = []
        rounds: list[Round] = []
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
                rounds.append(Round(drafted=self._proposals.widths[len(rounds)], accepted=len(response.tokens) - 1))
        if rounds:
            rounds[-1] = self._last_round(rounds[-1], token_ids)
        decode_tps = None if last is None else last.generation_tps
        return Answer(
            token_ids=token_ids,
            rounds=rounds,
            prefill_tps=None if last is None else last.prompt_tps,
            decode_tps=decode_tps,
        )

    def _last_round(self, last: Round, token_ids: Sequence[int]) -> Round:
        """Of the last step the package does not say whether its last token is the draft's or the target's own: where
        the target's own one was cut off, it is the draft's. The proposal tells, unless it was sampled."""
        proposed = self._proposals.last_tokens()
        end = token_ids[len(token_ids) - last.accepted - 1 :]
        if proposed is None or list(proposed[: len(end)]) != list(end):
            return last
        return Round(drafted=last.drafted, accepted=len(end))


class Proposals:
    """What a draft was called for since the last `clear`: its width each time, and the last proposal, unevaluated."""

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

    def generate(self, prompt_ids: Sequence[int], max_tokens: int, *, end_ids: frozenset[int], tick: Tick) -> Answer:
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
        return Answer(
            token_ids=[int(token) for token in summary.generated_token_ids],
            rounds=calls.rounds(summary.acceptance_history),
            tokens_per_tick=list(arrived.values()),
            fallback=str(summary.fallback_reason) if summary.fallback_ar else None,
            cached_tokens=cached_tokens,
        )

    def _prefix(self, prompt_ids: Sequence[int]) -> dict[str, Any]:
        """What the package's cache has of this prompt, and where the new state goes: as its server asks for them."""
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
        """The draft's weights in the package's words; activations stay in 32 bits where the target's are."""
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
    """What dflash-mlx's loop called: the width of each verify pass, and what had proposed for it."""

    def __init__(self) -> None:
        self._source = DRAFT
        self._verified: list[tuple[int, str]] = []

    def verify(self, *_: Any, verify_ids: Any, **__: Any) -> None:
        self._verified.append((verify_ids.shape[1] - 1, self._source))

    def draft(self, *_: Any, **__: Any) -> None:
        self._source = DRAFT

    def copy(self, *_: Any, **__: Any) -> None:
        """Its context is advanced without drafting."""
        self._source = COPY

    def rounds(self, accepted: Sequence[int]) -> list[Round]:
        """Raises: EngineError: another number of cycles than of verify passes."""
        if len(accepted) != len(self._verified):
            raise EngineError(
                FaultKind.generation_failed, f"dflash-mlx reports {len(accepted)} cycles, {len(self._verified)} ran"
            )
        return [
            Round(drafted=width, accepted=int(count), source=source)
            for (width, source), count in zip(self._verified, accepted, strict=True)
        ]


class Watched:
    """An object of which some methods tell a watcher of each call first."""

    def __init__(self, watched: Any, **watchers: Any) -> None:
        self._watched = watched
        self._watchers = watchers

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._watched, name)
        if name not in self._watchers:
            return found

        def told(*arguments: Any, **named: Any) -> Any:
            self._watchers[name](*arguments, **named)
            return found(*arguments, **named)

        return told


def forbid_copies() -> None:
    """dflash-mlx copies from the context where it can, and has no setting against it: its index finds nothing now."""
    from dflash_mlx.engine import spec_epoch

    class NoCopies(spec_epoch.CopySpecIndex):  # type: ignore[misc]  # a package without types
        def draft_after(self, *_: Any, **__: Any) -> None:
            return

    spec_epoch.CopySpecIndex = NoCopies


def quantize_draft(draft: Any, *, bits: int, group_size: int) -> None:
    """Quantise a draft's linear layers; DFlash 2's convolution kernels and selector stay as they are, as in
    mlx-dspark."""
    import mlx.core as mx

    nn: Any = import_module("mlx.nn")  # its names come by import *, which its types do not follow

    def is_backbone(path: str, module: Any) -> bool:
        return isinstance(module, nn.Linear) and "_conv" not in path and "candidate_selector" not in path

    nn.quantize(draft, group_size=group_size, bits=bits, class_predicate=is_backbone)
    mx.eval(draft.parameters())


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


BACKENDS: dict[str, type[Backend]] = {kind.DISTRIBUTION: kind for kind in (Dspark, Zlab, DflashMlx)}
