"""oMLX with DFlash: drafts of a block-diffusion model. Falls back silently unless its log and counters are read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.engines.base import parse_settings
from workers.engines.dflash_server import DRAFT_BITS, VERIFY_MODE
from workers.engines.omlx import Omlx
from workers.engines.omlx import Settings as PlainSettings
from workers.engines.server_launch import Widths
from workers.errors import EngineError, FaultKind
from workers.settings import at_least, setting
from workers.weights.drafts import BLOCK, require_fit_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(PlainSettings):
    """Settings of oMLX with DFlash."""

    block_size: int = setting(
        8,
        "Verify width: of a block, one token is the target's own.",
        limit=at_least(2),
        unit="tokens",
        word="dflash_block_size",
    )
    verify_mode: str = setting(
        "dflash",
        "How a block is verified; adaptive shrinks blocks within a run.",
        limit=VERIFY_MODE,
        word="dflash_verify_mode",
    )
    draft_bits: int | None = setting(
        None,
        "Quantise the draft as it loads. null: it stays as it is.",
        limit=DRAFT_BITS,
        word="dflash_draft_quant_weight_bits",
    )
    draft_group_size: int = setting(
        64,
        "Weights that share a scale in the quantised draft.",
        limit=at_least(1),
        word="dflash_draft_quant_group_size",
    )
    dflash_max_context: int | None = setting(
        None,
        "Longest prompt with drafting; longer ones are decoded plainly. null: the server's own default.",
        limit=at_least(1),
        unit="tokens",
        word="dflash_max_ctx",
    )


class OmlxDflash(Omlx):
    """See the module."""

    settings_kind = Settings
    takes_draft = True
    mechanism = "dflash"

    def _settings(self) -> Settings:
        return parse_settings(Settings, self.settings, engine="omlx_dflash")

    def _model_settings(self, folder: Path) -> dict[str, Any]:
        own = self._settings()
        if self.draft is None:
            raise EngineError(FaultKind.unsupported_setting, "engine omlx_dflash has no draft: set engine.draft")
        require_fit_of(self.checkpoint, self.draft, kind=BLOCK)
        settings: dict[str, Any] = {
            "dflash_enabled": True,
            "mtp_enabled": False,
            # A bare name would be looked for on the hub, and its time-out ends in a silent fallback.
            "dflash_draft_model": str(self.draft.get("path") or self.draft.get("hub_id")),
            "dflash_block_size": own.block_size,
            "dflash_verify_mode": own.verify_mode,
            "dflash_draft_quant_enabled": own.draft_bits is not None,
            "dflash_in_memory_cache": own.prefix_cache,
            "dflash_in_memory_cache_max_bytes": own.prefix_cache_bytes,
            "dflash_in_memory_cache_max_entries": 1,  # one conversation
            "dflash_ssd_cache": False,
        }
        if own.draft_bits is not None:
            settings["dflash_draft_quant_weight_bits"] = own.draft_bits
            settings["dflash_draft_quant_group_size"] = own.draft_group_size
        if own.dflash_max_context is not None:
            settings["dflash_max_ctx"] = own.dflash_max_context
        return settings

    def _widths(self) -> Widths:
        own = self._settings()
        return Widths(drafted_per_step=own.block_size - 1, engine_setting={"dflash_block_size": own.block_size})
