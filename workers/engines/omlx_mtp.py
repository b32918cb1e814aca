"""oMLX with the model's own multi-token prediction heads."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.engines.base import parse_settings
from workers.engines.omlx import Omlx
from workers.engines.omlx import Settings as PlainSettings
from workers.engines.server_launch import Widths
from workers.settings import at_least, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(PlainSettings):
    """Settings of oMLX with multi-token prediction."""

    depth: int = setting(
        1,
        "Tokens proposed per step: one fewer than the verify width.",
        limit=at_least(1),
        unit="tokens",
        word="mtp_num_draft_tokens",
    )


class OmlxMtp(Omlx):
    """See the module."""

    settings_kind = Settings
    mechanism = "mtp"

    def _settings(self) -> Settings:
        return parse_settings(Settings, self.settings, engine="omlx_mtp")

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
