"""A hub on this machine that the real client talks to, as rude as a test wants it to be.

    with FakeHub({"me/tiny": {"config.json": b"{}", "model.safetensors": b"..."}}) as hub:
        hub.faults.append(Fault("model.safetensors", cut_at=100, times=2))

Speaks the part of the hub's HTTP interface that fetching a repository needs: information, list of files, HEAD and GET
of a file, ranges. Files of more than `LARGE` bytes are stated as LFS files, by their SHA-256.
"""

import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

LARGE = 4000
PIECE = 8192


@dataclass(slots=True)
class Fault:
    """A fault of requests for a path; the first one that fits counts."""

    path: str  # a file's name, or a part of the path that holds a slash
    method: str = "GET"  # or HEAD
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut_at: int | None = None  # bytes of the answer's body after which the connection breaks
    hold: threading.Event | None = None  # the answer's body waits for it, after `hold_at` bytes
    hold_at: int = 0
    piece: int = PIECE  # bytes that are sent at a time
    pause_s: float = 0.0  # after each of them
    content: bytes | None = None  # served instead of the file
    redirect_to: str | None = None  # another host, which serves the same path
    times: int = 10**9  # so often


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]


class FakeHub:
    """Serves repositories. A context manager."""

    def __init__(self, repos: Mapping[str, Mapping[str, bytes]], *, commit: str = "a" * 40, host: str = "127.0.0.1"):
        self.repos = {name: dict(files) for name, files in repos.items()}
        self.commits = dict.fromkeys(self.repos, commit)
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.sent: dict[str, int] = {}  # bytes of bodies, by file
        self.sizes: dict[str, int] = {}  # stated instead of a file's size
        self.hashes: dict[str, str] = {}  # stated instead of a file's SHA-256
        self.names: list[str] = []  # of files, stated beside those that there are
        self.arrived = threading.Event()  # set once a file's body is being sent
        self._server = ThreadingHTTPServer((host, 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://{host}:{self._server.server_address[1]}"

    def __enter__(self) -> "FakeHub":
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for fault in self.faults:
            if fault.hold is not None:
                fault.hold.set()
        self._server.shutdown()
        self._server.server_close()

    def asked(self, method: str, end: str) -> list[Request]:
        """The requests of a method whose path ends so."""
        return [each for each in self.requests if each.method == method and each.path.endswith(end)]

    def fault_of(self, method: str, path: str) -> Fault | None:
        for fault in self.faults:
            # By the whole name: model.safetensors.index.json is fetched beside model.safetensors.
            fits = fault.path in path if "/" in fault.path else path.rsplit("/", 1)[-1] == fault.path
            if fits and fault.times > 0 and fault.method == method:
                fault.times -= 1
                return fault
        return None

    def listed(self, repo: str) -> list[dict[str, Any]]:
        found = []
        for name, content in self.repos[repo].items():
            size = self.sizes.get(name, len(content))
            entry: dict[str, Any] = {"type": "file", "path": name, "size": size, "oid": sha(content)[:40]}
            if len(content) > LARGE:
                entry["lfs"] = {"oid": self.hashes.get(name, sha(content)), "size": size, "pointerSize": 130}
            found.append(entry)
        return found + [{"type": "file", "path": name, "size": 5, "oid": "0" * 40} for name in self.names]


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:  # noqa: C901 - a class in a closure
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None: ...

        def do_GET(self) -> None:
            self._answer("GET")

        def do_HEAD(self) -> None:
            self._answer("HEAD")

        def _answer(self, method: str) -> None:
            path = unquote(self.path.split("?")[0])
            hub.requests.append(Request(method, path, dict(self.headers)))
            fault = hub.fault_of(method, path)
            try:
                if fault is not None and fault.hold is not None and fault.hold_at == 0:
                    fault.hold.wait()
                if fault is not None and fault.status is not None:
                    self._send(fault.status, fault.headers, fault.body, body=method == "GET")
                elif path.startswith("/api/models/"):
                    self._about(path.removeprefix("/api/models/"))
                else:
                    self._file(path.lstrip("/"), method, fault)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def _about(self, path: str) -> None:
            repo = "/".join(path.split("/")[:2])
            if repo not in hub.repos:
                self._missing("RepoNotFound")
                return
            rest = path.removeprefix(repo).strip("/").split("/")
            if rest[0] == "revision" and rest[1] not in ("main", hub.commits[repo]):
                self._missing("RevisionNotFound")
            elif rest[0] == "tree":
                self._json(repo, hub.listed(repo))
            else:
                files = [{"rfilename": name} for name in hub.repos[repo]]
                about = {"id": repo, "modelId": repo, "sha": hub.commits[repo], "private": False, "gated": False}
                self._json(repo, about | {"disabled": False, "tags": [], "downloads": 0, "siblings": files})

        def _file(self, path: str, method: str, fault: Fault | None) -> None:
            parts = path.split("/")  # owner, model, "resolve", commit, name
            repo, name = "/".join(parts[:2]), "/".join(parts[4:])
            content = hub.repos.get(repo, {}).get(name)
            if content is None:
                self._missing("EntryNotFound")
                return
            digest = hub.hashes.get(name, sha(content))
            about = {"X-Repo-Commit": hub.commits[repo], "ETag": f'"{digest}"', "Accept-Ranges": "bytes"}
            if fault is not None and fault.redirect_to is not None:
                linked = {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(content))}
                target = f"{fault.redirect_to}/{path}"
                self._send(302, about | linked | {"Location": target}, b"", body=method == "GET")
                return
            served = content if fault is None or fault.content is None else fault.content
            start = int((self.headers.get("Range") or "bytes=0-").split("=")[1].split("-")[0])
            if start:
                about["Content-Range"] = f"bytes {start}-{len(served) - 1}/{len(served)}"
            length = hub.sizes.get(name, len(served)) - start
            self._head(206 if start else 200, about, length)
            if method == "GET":
                self._body(name, served[start:], fault)

        def _body(self, name: str, content: bytes, fault: Fault | None) -> None:
            step = PIECE if fault is None else fault.piece
            for at in range(0, len(content), step):
                end = len(content) if fault is None or fault.cut_at is None else fault.cut_at
                piece = content[at : min(at + step, end)]
                if not piece:
                    break
                self.wfile.write(piece)
                self.wfile.flush()
                hub.sent[name] = hub.sent.get(name, 0) + len(piece)
                hub.arrived.set()
                if fault is not None and fault.hold is not None and at + step >= fault.hold_at:
                    fault.hold.wait()
                if fault is not None and fault.pause_s:
                    threading.Event().wait(fault.pause_s)
            if fault is not None and (fault.cut_at is not None or fault.content is not None):
                self.close_connection = True

        def _missing(self, code: str) -> None:
            self._send(404, {"X-Error-Code": code}, b"", body=True)

        def _json(self, repo: str, value: object) -> None:
            headers = {"Content-Type": "application/json", "X-Repo-Commit": hub.commits[repo]}
            self._send(200, headers, json.dumps(value).encode(), body=True)

        def _send(self, status: int, headers: Mapping[str, str], content: bytes, *, body: bool) -> None:
            self._head(status, headers, len(content))
            if body:
                self.wfile.write(content)

        def _head(self, status: int, headers: Mapping[str, str], length: int) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(length))
            self.end_headers()

    return Handler
