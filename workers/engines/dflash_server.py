"""`dflash serve` of dflash-mlx, in an environment of its own. Whether a request drafted, its /metrics say afterwards.

Its banner promises speculation whatever follows. Requests below `fastpath_max_tokens` run plain decoding; 0 sends none
there, so that a short warm-up is judged like a long answer.
"""

import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workers.engines.base import LoadInfo, parse_settings
from workers.engines.server_launch import LaunchedEngine, LaunchSettings, Widths, require_installed, served_folder
from workers.errors import EngineError, FaultKind
from workers.http.answer import Answer
from workers.settings import at_least, one_of, setting
from workers.supervision.server_process import HOST, ServerSpec
from workers.weights.drafts import BLOCK, require_fit
from workers.weights.model_files import read_json

_START = "from dflash_mlx.cli import main; main()"  # its script's name belongs to another package as well
# It copies from the context if it can, without a setting to prevent it: this makes its index find nothing.
_NO_COPIES = (
    "from dflash_mlx.engine import spec_epoch as s; "
    "s.CopySpecIndex = type('NoCopies', (s.CopySpecIndex,), {'draft_after': lambda *a, **k: None}); "
)
_INSTALL = "pip install dflash-mlx 'mlx-lm<0.32'"
VERIFY_MODE = one_of("dflash", "adaptive", "ddtree", "off")
DRAFT_BITS = one_of(2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(LaunchSettings):
    """Settings of `dflash serve`."""

    server_python: str | None = setting(None, "Interpreter of the server's environment. null: the worker's.")
    block_size: int | None = setting(
        None,
        "Verify width. null: what the draft was trained with.",
        limit=at_least(2),
        unit="tokens",
        word="--verify-len-cap",
    )
    verify_mode: str = setting(
        "dflash",
        "How a block is verified; adaptive shrinks blocks within a run.",
        limit=VERIFY_MODE,
        word="--verify-mode",
    )
    draft_bits: int | None = setting(
        None, "Quantise the draft as it loads. null: it stays as it is.", limit=DRAFT_BITS, word="w of --draft-quant"
    )
    draft_group_size: int = setting(
        64, "Weights that share a scale in the quantised draft.", limit=at_least(1), word="gs of --draft-quant"
    )
    copy_drafts: bool = setting(
        True, "Let it copy from the context if it can. false: the draft proposes at every step."
    )
    prefix_cache: bool = setting(
        True, "Keep the processed prefix of one conversation, in memory.", word="--prefix-cache"
    )
    prefix_cache_bytes: int | None = setting(
        None,
        "Most memory for that prefix. null: the server's own default.",
        limit=at_least(1),
        word="--prefix-cache-max-bytes",
    )
    max_context: int | None = setting(
        None,
        "Longest prompt with drafting. null: the server's own default.",
        limit=at_least(1),
        unit="tokens",
        word="--dflash-max-ctx",
    )
    fastpath_max_tokens: int = setting(
        0, "Requests of up to so many tokens decode plainly.", limit=at_least(0), word="--fastpath-max-tokens"
    )


class DflashServer(LaunchedEngine):
    """See the module."""

    settings_kind = Settings
    takes_draft = True
    needs = ("dflash-mlx", "mlx-lm", "mlx")
    preset_name = "dflash_mlx"
    title = "dflash serve"
    model = "default_model"
    mechanism = "dflash"
    _trained_block: int | None = None

    def _settings(self) -> Settings:
        own = parse_settings(Settings, self.settings, engine="dflash_server")
        if self._sampling.ignore_eos:
            raise EngineError(
                FaultKind.unsupported_setting,
                "engine dflash_server: the server cannot ignore the end of the text",
                remedy="set sampling.ignore_eos=false",
            )
        return own

    def _open(self) -> LoadInfo:
        self._settings()
        return super()._open()

    def _command(self, port: int, folder: Path) -> ServerSpec:
        own = self._settings()
        python = own.server_python or sys.executable
        self.server_version = _require_packages(python)
        if self.draft is None:
            raise EngineError(FaultKind.unsupported_setting, "engine dflash_server has no draft: set engine.draft")
        model, _ = served_folder(self.checkpoint, folder)
        self._use_tokenizer(model)
        draft = Path(str(self.draft.get("path") or self.draft.get("hub_id")))
        if draft.is_dir():
            require_fit(model, draft, kind=BLOCK)
        self._trained_block = _trained_block(draft)
        start = _START if own.copy_drafts else _NO_COPIES + _START
        command = [python, "-c", start, "serve", "--model", str(model), "--draft-model", str(draft)]
        command += ["--host", HOST, "--port", str(port), "--verify-mode", own.verify_mode]
        command += ["--fastpath-max-tokens", str(own.fastpath_max_tokens)]
        command += self._cache_options(own, folder)
        if own.block_size is not None:
            command += ["--verify-len-cap", str(own.block_size)]
        command += ["--draft-quant", "none" if own.draft_bits is None else _quant(own)]
        if own.max_context is not None:
            command += ["--dflash-max-ctx", str(own.max_context)]
        # Caches below the home folder would live on from one arm to the next.
        environment = {"PYTHONSAFEPATH": "1", "XDG_CACHE_HOME": str(folder / "cache")}
        return ServerSpec(title=self.title, command=command, port=port, environment=environment, folder=folder)

    def _cache_options(self, own: Settings, folder: Path) -> list[str]:
        """In memory, for one conversation. By itself it also keeps prompts on the disk, below the home folder whatever
        XDG_CACHE_HOME says, where they would outlive arm and run."""
        on_disk = ["--no-prefix-cache-l2", "--prefix-cache-l2-dir", str(folder / "prefixes")]
        if not own.prefix_cache:
            return ["--no-prefix-cache", "--prompt-cache-size", "0", *on_disk]
        options = ["--prefix-cache", "--prefix-cache-max-entries", "1", *on_disk]
        if own.prefix_cache_bytes is not None:
            options += ["--prefix-cache-max-bytes", str(own.prefix_cache_bytes)]
        return options

    def start_conversation(self) -> None:
        """Another text takes the place of the last conversation in the prefix cache."""
        super().start_conversation()
        own = self._settings()
        if own.prefix_cache and own.attach is None and self._client is not None:
            self._require_server()
            self._complete_once(text=secrets.token_hex(4))

    def _widths(self) -> Widths:
        width = self._settings().block_size or self._trained_block
        if width is None:
            return Widths(engine_setting={"verify_len_cap": None})
        if self._trained_block is not None:
            width = min(width, self._trained_block)  # a longer block is cut to the trained one
        return Widths(drafted_per_step=width - 1, engine_setting={"verify_len_cap": width})

    def _after_ready(self, first: Answer) -> Sequence[str]:
        notes = [] if self.server_version is None else [f"server: dflash-mlx {self.server_version}"]
        if self._sampling.temperature > 0:
            notes.append("at a temperature above 0 this server decodes plainly: no request will show drafting")
        return notes


def _require_packages(python: str) -> str | None:
    """dflash-mlx's version. Up to 0.1.8 its server imports what mlx-lm 0.32 no longer has.

    Raises:
        EngineError: with the command that installs what fits.
    """
    found = require_installed(python, "dflash-mlx", install=_INSTALL)
    mlx_lm = found["mlx-lm"] or ""
    if str(found["dflash-mlx"]).startswith("0.1.") and not mlx_lm.startswith(("0.30.", "0.31.")):
        raise EngineError(
            FaultKind.load_failed,
            f"{python}: dflash-mlx {found['dflash-mlx']} does not run with mlx-lm {mlx_lm or 'missing'}",
            remedy=f"in an environment of its own: {_INSTALL}, and engine.server_python",
        )
    return found["dflash-mlx"]


def _quant(own: Settings) -> str:
    return f"w{own.draft_bits}:gs{own.draft_group_size}"


def _trained_block(draft: Path) -> int | None:
    """Return the block size that the draft was trained on, if its folder is on this machine."""
    config = draft / "config.json"
    if not config.is_file():
        return None
    found = read_json(config).get("block_size")
    return found if type(found) is int else None
