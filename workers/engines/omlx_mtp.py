"""oMLX with the model's own multi-token prediction heads."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.engines.base import parse_settings
from workers.engines.omlx import Omlx
from workers.engines.omlx import Settings as PlainSettings
from workers.engines.server_launch import Widths
from workers.errors import EngineError, FaultKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(PlainSettings):
    """See conf.schema.OmlxMtpConfig."""

    depth: int = 1


class OmlxMtp(Omlx):
    """See the module."""

    mechanism = "mtp"

    def _settings(self) -> Settings:
        own = parse_settings(Settings, self.settings, engine="omlx_mtp")
        if own.depth < 1:
            raise EngineError(FaultKind.unsupported_setting, f"engine omlx_mtp: depth {own.depth}: give at least 1")
        return own

    def _model_settings(self, folder: Path) -> dict[str, Any]:
        depth = self._settings().depth
        # The second key keeps its controller from choosing another depth within a run.
        return {
            "dflash_enabled": False,
            "mtp_enabled": True,
            "mtp_num_draft_tokens": depth,
            "mtp_fixed_draft_depth": depth,
        }

    def _widths(self) -> Widths:
        depth = self._settings().depth
        return Widths(drafted_per_step=depth, engine_setting={"mtp_num_draft_tokens": depth})
