"""Any server that speaks OpenAI's chat protocol: attached to, never started. What it does not report is unknown.

Evidence is configuration: a preset of the catalogue, or signs of one's own in the same form; a log file, or a command
that prints the log; JSON of the answer; metrics read before and after each request.
"""

import secrets
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workers.catalogue.signs import CatalogueError, Preset, read
from workers.engines.base import LoadInfo, TurnRequest, parse_settings
from workers.engines.server import RequestSettings, ServerEngine
from workers.engines.server_request import key_from
from workers.engines.server_signs import load_preset
from workers.errors import EngineError, FaultKind
from workers.http.watchdog import Timeouts
from workers.settings import an_address, at_least, setting
from workers.supervision.server_process import ServerLog, ServerProcess, ServerSpec

if TYPE_CHECKING:
    from workers.http.client import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(RequestSettings):
    """Settings of a server that is already running."""

    url: str = setting("http://127.0.0.1:8080", "The server's address.", limit=an_address())
    model: str | None = setting(None, "The model's name at the server. null: the only one that it serves.")
    api_key_env: str | None = setting(None, "The environment variable that holds the server's key; never the key.")
    mechanism: str | None = setting(
        None, "What the server was started with: dflash, mtp, draft_model, ... null: plain decoding."
    )
    block_size: int | None = setting(
        None, "The verify width that the server was started with. null: unknown.", limit=at_least(1), unit="tokens"
    )
    preset: str = setting("none", "An entry of the evidence catalogue: docs/evidence.md.")
    evidence: dict[str, Any] = setting({}, "Signs of your own, in the catalogue's form.")
    log_file: str | None = setting(None, "The server's log, where its signs are read.")
    log_command: str | None = setting(None, "A command that prints the server's log, such as `lms log stream`.")
    tokenizer: str | None = setting(None, "The model's folder, to count tokens if the server states no usage.")
    body: dict[str, Any] = setting({}, "Further keys of each request.")

    def conflicts(self) -> Iterator[tuple[str, str]]:
        if self.log_file is not None and self.log_command is not None:
            yield "log_file", "excludes log_command: set one of them to null"
        if self.evidence and self.preset != "none":
            yield "evidence", "excludes preset: leave one of them out"


class OpenaiHttp(ServerEngine):
    """See the module."""

    settings_kind = Settings
    follows_environment = False  # somebody else started it
    knows_plain = False
    _printer: ServerProcess | None = None
    _conversation = "load"

    def _open(self) -> LoadInfo:
        from workers.http.client import Client

        own = parse_settings(Settings, self.settings, engine="openai_http")
        self.own = own
        self.mechanism = own.mechanism
        preset = _preset(own)
        log, log_start = self._open_log(own)
        if own.tokenizer is not None:
            folder = Path(own.tokenizer).expanduser()
            if not folder.is_dir():
                raise EngineError(FaultKind.checkpoint_missing, f"engine.tokenizer {folder} is not a folder")
            self._use_tokenizer(folder)
        key = key_from(own.api_key_env)
        client = Client(
            own.url,
            api_key=key,
            timeouts=Timeouts(first_token_s=own.first_token_s, idle_s=own.idle_s),
        )
        self._connect(client, preset, log, log_start)
        self.model = own.model or self._only_model(client)
        first = self._complete_once()
        notes = self._signs().log_in(key)
        fingerprint = first.response.get("system_fingerprint")
        self.server_version = str(fingerprint) if fingerprint else None
        drafted = None if own.mechanism is None or own.block_size is None else own.block_size - 1
        return LoadInfo(
            drafted_per_step=drafted,
            verify_width=None if own.mechanism is not None and drafted is None else 1 + (drafted or 0),
            engine_setting={} if own.block_size is None else {"block_size": own.block_size},
            engine_version=self.server_version,
            served=self._served(first),
            notes=[f"attached to {client.url}: what it does outside these requests is unknown", *notes],
        )

    def _require_server(self) -> None:
        if self._printer is not None:
            self._printer.require_alive()

    def _extra_body(self, request: TurnRequest) -> Mapping[str, Any]:
        asked = {"ignore_eos": True} if self._sampling.ignore_eos else {}
        afresh = self._signs().preset.afresh(turn=request.turn, conversation=self._conversation)
        return asked | afresh | dict(self.own.body)

    def start_conversation(self) -> None:
        super().start_conversation()
        self._conversation = secrets.token_hex(8)

    def close(self) -> None:
        super().close()
        printer, self._printer = self._printer, None
        if printer is not None:
            printer.stop()

    def _open_log(self, own: Settings) -> tuple[ServerLog | None, int]:
        """Return the log and its present end."""
        if own.log_command is not None:
            spec = ServerSpec(title=f"log command {own.log_command}", command=shlex.split(own.log_command), port=0)
            self._printer = ServerProcess(spec)
            return self._printer.log, self._printer.log_start
        if own.log_file is not None:
            path = Path(own.log_file).expanduser()
            if not path.is_file():
                raise EngineError(FaultKind.unsupported_setting, f"engine.log_file {path} is not a file")
            log = ServerLog(path)
            return log, log.mark()
        return None, 0

    def _only_model(self, client: "Client") -> str:
        body = client.get_json("/v1/models")
        listed = body.get("data") if isinstance(body, dict) else None
        names = [str(each.get("id")) for each in listed or () if isinstance(each, dict)]
        if len(names) != 1:
            raise EngineError(
                FaultKind.unsupported_setting,
                f"{client.url} serves {len(names)} models",
                remedy=f"set engine.model to one of {', '.join(names[:20])}" if names else "set engine.model",
            )
        return names[0]


def _preset(own: Settings) -> Preset:
    if not own.evidence:
        return load_preset(own.preset)
    try:
        return read("engine.evidence", own.evidence)
    except CatalogueError as error:
        raise EngineError(FaultKind.unsupported_setting, str(error)) from error
