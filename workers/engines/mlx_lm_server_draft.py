"""`mlx_lm.server` with a draft model. Over HTTP it gives no sign whether the draft ran: engagement is unknown."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workers.engines.base import parse_settings
from workers.engines.mlx_lm_server import MlxLmServer
from workers.engines.mlx_lm_server import Settings as PlainSettings
from workers.engines.server_launch import Widths, served_folder
from workers.errors import EngineError, FaultKind
from workers.settings import at_least, setting
from workers.weights.drafts import MODEL, require_fit


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(PlainSettings):
    """Settings of `mlx_lm.server` with a draft model."""

    block_size: int = setting(
        4,
        "Verify width: of a block, one token is the target's own.",
        limit=at_least(2),
        unit="tokens",
        word="--num-draft-tokens + 1",
    )


class MlxLmServerDraft(MlxLmServer):
    """See the module."""

    settings_kind = Settings
    takes_draft = True
    mechanism = "draft_model"

    def _settings(self) -> Settings:
        return parse_settings(Settings, self.settings, engine="mlx_lm_server_draft")

    def _draft_options(self, folder: Path) -> Sequence[str]:
        if self.draft is None:
            raise EngineError(
                FaultKind.unsupported_setting, "engine mlx_lm_server_draft has no draft", remedy="set engine.draft"
            )
        draft, _ = served_folder(self.draft, folder / "draft")
        target, _ = served_folder(self.checkpoint, folder)
        require_fit(target, draft, kind=MODEL)
        return ["--draft-model", str(draft), "--num-draft-tokens", str(self._settings().block_size - 1)]

    def _widths(self) -> Widths:
        drafted = self._settings().block_size - 1
        return Widths(drafted_per_step=drafted, engine_setting={"num_draft_tokens": drafted})
