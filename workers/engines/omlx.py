"""oMLX, plain decoding: launched with a fresh base path and settings of its own for each arm, or attached to.

oMLX answers 200 whatever became of a mechanism; what a request really did, its log line and the difference of its
counters say. Token times need `burst_decode=off`: else the server hands tokens over in bursts.
"""

import contextlib
import json
import re
import secrets
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workers.engines.base import LoadInfo, parse_settings
from workers.engines.server_launch import LaunchedEngine, LaunchSettings, Widths, installed_versions, served_folder
from workers.engines.server_request import key_from
from workers.errors import EngineError, FaultKind
from workers.http.answer import Answer
from workers.http.watchdog import Timeouts
from workers.settings import at_least, one_of, setting
from workers.supervision.server_process import ServerSpec

if TYPE_CHECKING:
    from workers.http.client import Client

_DISTRIBUTIONS = ("omlx", "flyto-mlx")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(LaunchSettings):
    """Settings of oMLX."""

    model: str | None = setting(None, "With attach: the model's name at the server.")
    api_key_env: str | None = setting(
        None, "With attach: the environment variable that holds the server's key; never the key."
    )
    command: str = setting("omlx", "The program that starts the server, with its first arguments.")
    prefix_cache: bool = setting(True, "Keep the processed prefix of one conversation.", word="cache.enabled")
    prefix_cache_bytes: int = setting(
        8 * 2**30, "Most memory for that prefix.", limit=at_least(0), word="cache.hot_cache_max_size"
    )
    chunked_prefill: bool = setting(False, "Prefill in chunks.", word="scheduler.chunked_prefill")
    burst_decode: str = setting(
        "off",
        "Hand tokens over in bursts; tokens then have no times of their own.",
        limit=one_of("off", "light", "balanced", "aggressive"),
        word="server.burst_decode_mode",
    )
    max_context: int | None = setting(
        None,
        "Longest conversation. null: the server's own default.",
        limit=at_least(1),
        unit="tokens",
        word="max_context_window",
    )

    def conflicts(self) -> Iterator[tuple[str, str]]:
        if self.attach is not None and self.model is None:
            yield "model", "is missing: attach needs the model's name at the server"


class Omlx(LaunchedEngine):
    """See the module."""

    settings_kind = Settings
    follows_environment = False  # its own command starts it
    preset_name = "omlx"
    title = "oMLX"
    _key: str | None = None
    _logged_in = False

    def _settings(self) -> Settings:
        return parse_settings(Settings, self.settings, engine="omlx")

    def _model_settings(self, folder: Path) -> dict[str, Any]:
        """This arm's part of model_settings.json."""
        return {"dflash_enabled": False, "mtp_enabled": False}

    def _open(self) -> LoadInfo:
        own = self._settings()
        if self._sampling.ignore_eos:
            raise EngineError(
                FaultKind.unsupported_setting,
                f"sampling {self._sampling.name}: oMLX cannot ignore the end of the text",
                remedy="set sampling.ignore_eos=false",
            )
        self.model = own.model or re.sub(r"[^A-Za-z0-9._-]", "_", str(self.checkpoint["name"]))
        self._key = key_from(own.api_key_env) if own.attach is not None else secrets.token_hex(16)
        return super()._open()

    def _connected_to(self, url: str) -> "Client":
        from workers.http.client import Client

        own = self._settings()
        return Client(url, api_key=self._key, timeouts=Timeouts(first_token_s=own.first_token_s, idle_s=own.idle_s))

    def _command(self, port: int, folder: Path) -> ServerSpec:
        own = self._settings()
        self.server_version = _version(shlex.split(own.command)[0])
        target, _ = served_folder(self.checkpoint, folder)
        self._use_tokenizer(target)
        models = folder / "models"
        models.mkdir()
        (models / self.model).symlink_to(target.absolute(), target_is_directory=True)
        _write(folder / "settings.json", self._server_settings(own, folder))
        settings = {"max_context_window": own.max_context} if own.max_context is not None else {}
        model_settings = {"version": 1, "models": {self.model: settings | self._model_settings(folder)}}
        _write(folder / "model_settings.json", model_settings)
        command = [*shlex.split(own.command), "serve", "--base-path", str(folder), "--model-dir", str(models)]
        return ServerSpec(
            title=self.title,
            command=[*command, "--port", str(port)],
            port=port,
            environment={"OMLX_BASE_PATH": str(folder)},
        )

    def _server_settings(self, own: Settings, folder: Path) -> dict[str, Any]:
        return {
            "version": "1.0",
            "server": {"host": "127.0.0.1", "burst_decode_mode": own.burst_decode},
            "scheduler": {"chunked_prefill": own.chunked_prefill},
            "cache": {
                "enabled": own.prefix_cache,
                "hot_cache_only": True,  # a cache on disk would outlive the arm
                "hot_cache_max_size": f"{own.prefix_cache_bytes // 2**20}MB" if own.prefix_cache else "0",
                "ssd_cache_dir": str(folder / "cache"),
            },
            "auth": {"api_key": self._key},
        }

    def _widths(self) -> Widths:
        return Widths()

    def _after_ready(self, first: Answer) -> Sequence[str]:
        """Log in for the counters. Without them the log alone is evidence."""
        notes = [] if self.server_version is None else [f"server: {self.server_version}"]
        refused = self._signs().log_in(self._key)
        self._logged_in = not refused
        return [*notes, *refused]

    def start_conversation(self) -> None:
        """Make a launched server forget the prompts of earlier conversations; its counts show what it still keeps."""
        super().start_conversation()
        own = self._settings()
        if own.prefix_cache and own.attach is None and self._logged_in:
            self._require_server()
            with contextlib.suppress(EngineError):
                self._connected().post("/admin/api/hot-cache/clear", {})


def _version(program: str) -> str | None:
    """Return the packages of the Python that a program's first line names, or None if unknown."""
    found = shutil.which(program)
    if found is None:
        return None
    with Path(found).open("rb") as script:
        first = script.readline(4096).decode(errors="replace")
    if not first.startswith("#!") or "python" not in first:
        return None
    versions = installed_versions(first[2:].split()[0], *_DISTRIBUTIONS)
    return next((f"{name} {version}" for name, version in versions.items() if version is not None), None)


def _write(path: Path, body: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(body, indent=1), encoding="utf-8")
