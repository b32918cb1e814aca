"""oMLX with DFlash: drafts of a block-diffusion model. Falls back silently unless its log and counters are read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.engines.base import parse_settings
from workers.engines.omlx import Omlx
from workers.engines.omlx import Settings as PlainSettings
from workers.engines.server_launch import Widths
from workers.errors import EngineError, FaultKind
from workers.weights.drafts import BLOCK, require_fit_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(PlainSettings):
    """See conf.schema.OmlxDflashConfig."""

    block_size: int = 8
    verify_mode: str = "dflash"
    draft_bits: int | None = None
    draft_group_size: int = 64
    dflash_max_context: int | None = None


class OmlxDflash(Omlx):
    """See the module."""

    mechanism = "dflash"

    def _settings(self) -> Settings:
        own = parse_settings(Settings, self.settings, engine="omlx_dflash")
        if own.block_size < 2:
            raise EngineError(
                FaultKind.unsupported_setting,
                f"engine omlx_dflash: block_size {own.block_size} drafts nothing",
                remedy="give at least 2, or use engine=omlx",
            )
        return own

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
