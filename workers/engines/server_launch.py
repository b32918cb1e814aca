"""Engines that launch their server, or attach to one that runs: started, proved, asked, stopped.

A launched server gets a free port, a fresh folder of its own for settings and caches, and the worker's log. It is ready
only after one real completion; before and after it, and before every turn, the process that listens on the port must be
the one that was launched, or have come of it. Of a server that somebody else started, what cannot be known is unknown.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workers.catalogue.evidence import explain
from workers.engines.base import LoadInfo
from workers.engines.server import RequestSettings, ServerEngine
from workers.engines.server_signs import load_preset
from workers.errors import EngineError, FaultKind
from workers.files.leftovers import working_folder
from workers.http.answer import Answer
from workers.http.refusals import StatusError
from workers.http.watchdog import Timeouts
from workers.protocol import Served
from workers.settings import above, an_address, setting
from workers.supervision import served_versions
from workers.supervision.server_process import HOST, ServerLog, ServerProcess, ServerSpec, free_port
from workers.supervision.tracebacks import last_fault
from workers.weights.checkpoints import CheckpointInfo, inspect, resolve
from workers.weights.dummies import DEFAULT_GROUP_SIZE, SHAPES, save
from workers.weights.sources import obtain_folder

if TYPE_CHECKING:
    from workers.http.client import Client

_POLL_S = 0.1
_VERSIONS_TIMEOUT_S = 60.0
_NOT_READY = (502, 503)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSettings(RequestSettings):
    """The server settings of every engine of this kind."""

    attach: str | None = setting(
        None, "Address of a server that is already running. null: launch one.", limit=an_address()
    )
    log_file: str | None = setting(None, "With attach: the server's log, where its signs are read.")
    ready_s: float = setting(900.0, "Longest time of the server until its first completion.", limit=above(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Widths:
    """The width of speculation, normalised, and in the engine's own word."""

    drafted_per_step: int | None = None
    engine_setting: Mapping[str, Any] | None = None


class LaunchedEngine(ServerEngine):
    """See the module."""

    preset_name = "none"
    title = "server"
    process: ServerProcess | None = None  # the server; None before it is launched, after it ended, and if attached
    folder: Path | None = None  # its scratch files, while it runs
    _held: contextlib.ExitStack | None = None  # what keeps the folder

    # ---- defined by each engine ----

    @abstractmethod
    def _settings(self) -> LaunchSettings:
        """The engine's settings, checked."""

    @abstractmethod
    def _command(self, port: int, folder: Path) -> ServerSpec:
        """Return how to start it; the files that it needs are written below the folder."""

    @abstractmethod
    def _widths(self) -> Widths:
        """The width of speculation."""

    def _connected_to(self, url: str) -> "Client":
        from workers.http.client import Client

        own = self._settings()
        return Client(url, timeouts=Timeouts(first_token_s=own.first_token_s, idle_s=own.idle_s))

    def _after_ready(self, first: Answer) -> Sequence[str]:
        """Do the work that is needed once it answers; return notes for the record of the load."""
        return ()

    # ---- the contract ----

    def _open(self) -> LoadInfo:
        own = self._settings()
        if own.attach is not None:
            self.knows_plain = False
            log = None if own.log_file is None else ServerLog(Path(own.log_file))
            client = self._connected_to(own.attach)
            self._connect(client, load_preset(self.preset_name), log, 0 if log is None else log.mark())
            notes = [
                f"attached to {client.url}: what it does outside these requests is unknown",
                "its versions, draft and settings are its own; of engine.*, what a launch would set is not applied",
            ]
        else:
            self._launch()
            notes = []
        first = self._first_answer(own.ready_s)
        self._require_server()
        notes += self._after_ready(first)
        # Whoever started a server chose its block: that our configuration has one shows nothing.
        widths = self._widths() if own.attach is None else Widths()
        known = own.attach is None or self.mechanism is None
        return LoadInfo(
            drafted_per_step=widths.drafted_per_step,
            verify_width=1 + (widths.drafted_per_step or 0) if known else None,
            engine_setting=dict(widths.engine_setting or {}),
            engine_version=self.server_version,
            notes=notes,
            served=self._served(first),
        )

    def _require_server(self) -> None:
        if self.process is not None:
            self.process.require_alive()
            self.process.require_listener()

    def _served(self, first: Answer) -> Served:
        """Launched: what its interpreter holds, or else its process; attached: see `ServerEngine`."""
        if self.process is None:
            return super()._served(first)
        spec = self.process.spec
        found = served_versions.of_command(spec.command, spec.environment)
        if found.reason:
            loaded = served_versions.of_processes(self._signs().port.pids())
            found = replace(loaded, reason=f"{found.reason}; {loaded.reason}") if loaded.reason else loaded
        return served_versions.completed(found, served_versions.of_answer(first.response))

    def close(self) -> None:
        super().close()
        process, self.process = self.process, None
        held, self._held, self.folder = self._held, None, None
        with held or contextlib.nullcontext():
            if process is not None:
                process.stop()

    # ---- launching ----

    def _launch(self) -> None:
        self._held = contextlib.ExitStack()
        self.folder = self._held.enter_context(working_folder(Path(tempfile.gettempdir()), "server"))
        port = free_port()
        spec = self._command(port, self.folder)
        self.process = ServerProcess(spec)
        client = self._connected_to(f"http://{HOST}:{port}")
        self._connect(client, load_preset(self.preset_name), self.process.log, self.process.log_start)

    def _first_answer(self, ready_s: float) -> Answer:
        """Wait until it listens, see that it is the one that was launched, and let it answer once."""
        deadline = time.monotonic() + ready_s
        while self.process is not None and not self.process.listens():
            self.process.require_alive()
            self._raise_what_the_log_says()
            self._wait_or_give_up(deadline, ready_s, "it listens on no port")
        while True:
            self._require_server()
            try:
                return self._complete_once()
            except StatusError as error:
                if error.status not in _NOT_READY:
                    raise self._signs().with_cause(error, self._signs().log_start) from error
                self._wait_or_give_up(deadline, ready_s, str(error))

    def _raise_what_the_log_says(self) -> None:
        """A server may print why its mechanism failed to load, and then neither serve nor end."""
        if self.mechanism is None:
            return
        why = explain(self._signs().preset, self._signs().log_since_start(), mechanism=self.mechanism)
        if why is not None:
            raise EngineError(
                FaultKind.load_failed,
                f"{self.title}: {why}",
                remedy=f"this {self.title} cannot load the draft: take another draft, or a newer version",
            )

    def _wait_or_give_up(self, deadline: float, ready_s: float, why: str) -> None:
        if time.monotonic() >= deadline:
            fault = last_fault(self._signs().log_since_start())
            said = "" if fault is None else f"; the last fault in its log: {fault}"
            raise EngineError(
                FaultKind.hung_load,
                f"{self.title} is not ready after {ready_s:g} s: {why}{said}",
                remedy="set engine.ready_s to more, if it only takes longer",
            )
        time.sleep(_POLL_S)


def served_folder(checkpoint: Mapping[str, Any], scratch: Path) -> tuple[Path, CheckpointInfo]:
    """The folder that a server loads: it takes one as it is, so the configuration must not ask for another dtype.

    Raises:
        EngineError: it is missing or broken, or is not what the configuration says.
    """
    resolved = resolve(checkpoint)
    if resolved["source"] == "dummy":
        folder = save(
            SHAPES[resolved["shape"]],
            scratch / str(resolved["name"]),
            bits=resolved.get("bits"),
            dtype=resolved.get("dtype") or "float32",
            group_size=resolved.get("group_size") or DEFAULT_GROUP_SIZE,
        )
        return folder, inspect(folder)
    folder, info = obtain_folder(resolved)
    wanted = resolved.get("dtype")
    if wanted is not None and info.dtype is not None and wanted != info.dtype:
        raise EngineError(
            FaultKind.unsupported_setting,
            f"checkpoint {resolved.get('name')}: dtype={wanted}, and a server loads its {info.dtype} as it is",
            remedy="set checkpoint.dtype=null, or convert the checkpoint",
        )
    return folder, info


def installed_versions(python: str, *distributions: str) -> dict[str, str | None]:
    """Return the packages installed for an interpreter; None for a missing one.

    Raises:
        EngineError: the interpreter does not run.
    """
    if python == sys.executable:
        from importlib.metadata import PackageNotFoundError, version

        found: dict[str, str | None] = {}
        for name in distributions:
            try:
                found[name] = version(name)
            except PackageNotFoundError:
                found[name] = None
        return found
    code = (
        "import importlib.metadata as m, json, sys\n"
        "def v(n):\n"
        "    try: return m.version(n)\n"
        "    except m.PackageNotFoundError: return None\n"
        "print(json.dumps({n: v(n) for n in sys.argv[1:]}))"
    )
    try:
        done = subprocess.run(
            [python, "-c", code, *distributions],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_VERSIONS_TIMEOUT_S,
            check=True,
        )
        parsed: dict[str, str | None] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise EngineError(
            FaultKind.load_failed, f"{python}: {error}", remedy="engine.server_python names a Python interpreter"
        ) from error
    return parsed


def require_installed(python: str, distribution: str, *, install: str) -> dict[str, str | None]:
    """The versions of a server's environment.

    Raises:
        EngineError: the distribution is missing; with the command that installs it.
    """
    found = installed_versions(python, distribution, "mlx", "mlx-lm")
    if found[distribution] is None:
        raise EngineError(
            FaultKind.load_failed,
            f"{distribution} is not installed for {python}",
            remedy=f"install it there ({install}), or name another interpreter in engine.server_python",
        )
    return found
