"""Fetching checkpoints from the hub: what a repository holds, what is missing here, and how it comes.

The hub's own client does all the talking. Beside it stand four things that it lacks:

    a cut or killed download of a large file goes on where it ended, in this process or a later one;
    the content of a large file is checked against the SHA-256 that the hub states, not only its size;
    a hub that stalls or trickles ends the fetch in plain words;
    every error names the repository, its page and the remedy.

Large files come over HTTP, not Xet: a Xet download that is interrupted starts over. All files go to the hub's own cache
(HF_HOME, HF_HUB_CACHE), where other programs find them too. The client's file locks keep two processes from fetching
one file twice.
"""

import logging
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from workers.weights.folders import sha256_of_file
from workers.weights.hub import (
    PATTERNS,
    TIMEOUT_S,
    WAITS_S,
    RemoteFile,
    Snapshot,
    blob_of,
    is_cached,
    partial_bytes,
    partial_of,
    repo_folder,
    size_of,
)
from workers.weights.hub_errors import (
    FetchStopped,
    HubError,
    cache_folder,
    endpoint,
    is_transient,
    lasting,
    page_of,
    patiently,
    plain_errors,
    wait_of,
    within,
)

WORKERS = 4  # files at a time
POLL_S = 0.25
RATE_WINDOW_S = 15.0
JOIN_S = 2.0  # for a thread that has to stop, to write what it holds
PATIENCE_S = 60.0  # at less than LEAST_BYTES_PER_S over this time, a fetch ends
LEAST_BYTES_PER_S = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The state of a fetch."""

    hub_id: str
    done_bytes: int  # since it began
    total_bytes: int  # that it has to bring
    bytes_per_s: float | None  # None: not known yet
    note: str = ""  # such as the file that is being verified

    @property
    def left_s(self) -> float | None:
        """The time left at the present rate; None if the rate is not known."""
        return None if not self.bytes_per_s else (self.total_bytes - self.done_bytes) / self.bytes_per_s


Tell = Callable[[Progress], None]


# ---- fetching ----


def fetch(
    snapshot: Snapshot,
    *,
    tell: Tell = lambda progress: None,
    should_stop: Callable[[], bool] = lambda: False,
    waits_s: Sequence[float] = WAITS_S,
    patience_s: float = PATIENCE_S,
) -> Path:
    """Bring what is missing of a snapshot, verify it, and return its folder in the hub's cache.

    Args:
        tell: called about four times per second.
        should_stop: asked as often; true ends the fetch.

    Raises:
        HubError: it cannot be fetched, or not now.
        FetchStopped: it was asked to stop.
        KeyboardInterrupt: interrupted. In all cases the next fetch goes on where this one ended.
    """
    job = _Job(snapshot=snapshot, waits_s=waits_s)
    with plain_errors(snapshot.hub_id, snapshot.revision):
        _Watch(job=job, tell=tell, should_stop=should_stop, patience_s=patience_s).run()
        return within(PATIENCE_S, lambda: _finished(snapshot))


def _finished(snapshot: Snapshot) -> Path:
    """Let the client note the revision and the list of files beside the snapshot, whose files are all there."""
    from huggingface_hub import snapshot_download

    revisions = [snapshot.revision, snapshot.commit]  # a branch that moved meanwhile leads to another commit
    found = [
        Path(snapshot_download(snapshot.hub_id, revision=each, allow_patterns=list(PATTERNS))) for each in revisions
    ]
    return found[-1]


@dataclass(slots=True, kw_only=True)
class _Job:
    """The download of one snapshot, by a few threads."""

    snapshot: Snapshot
    waits_s: Sequence[float]
    stop: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)  # all threads have, or one of them failed
    failure: Exception | None = None
    note: str = ""  # what takes time without bringing bytes
    _running: int = 0
    _left: deque[RemoteFile] = field(default_factory=deque)
    _threads: list[threading.Thread] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Small files first: a refusal shows itself before gigabytes came."""
        from huggingface_hub import constants
        from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

        with warnings.catch_warnings(action="ignore"):  # a variable of the user's may stand against it
            disable_progress_bars()
        # What the client would warn of becomes an error of ours, or a further attempt.
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
        # Write each piece as it comes: of a download that is cut anywhere, nothing is lost.
        constants.DOWNLOAD_CHUNK_SIZE = None  # type: ignore[assignment]
        self._left.extend(sorted(self.snapshot.missing(), key=lambda file: file.size_bytes))
        self._running = min(WORKERS, len(self._left))
        if not self._running:
            self.ended.set()
        count = range(self._running)
        self._threads = [threading.Thread(target=self._work, name="fetch", daemon=True) for _ in count]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Stop, and give the threads a moment to write what they hold. A blocked one ends with the process."""
        self.stop.set()
        until = time.monotonic() + JOIN_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _work(self) -> None:
        try:
            while not self.stop.is_set():
                with self._lock:
                    if not self._left:
                        break
                    file = self._left.popleft()
                self._bring(file)
        except FetchStopped:
            pass
        except Exception as error:  # noqa: BLE001 - the thread's boundary: the waiting thread raises it
            with self._lock:
                self.failure = self.failure or error
            self.stop.set()
        finally:
            with self._lock:
                self._running -= 1
                if self.failure is not None or not self._running:
                    self.ended.set()

    def _bring(self, file: RemoteFile) -> None:
        from huggingface_hub import hf_hub_download

        snapshot = self.snapshot
        if file.sha256 is not None:
            self._bring_large(file, file.sha256)

        def bring() -> str:
            return hf_hub_download(
                snapshot.hub_id, file.name, revision=snapshot.commit, tqdm_class=self._meter(), endpoint=endpoint()
            )

        patiently(bring, self.waits_s, self._wait)

    def _bring_large(self, file: RemoteFile, sha256: str) -> None:
        """One large file into the cache, under the client's own lock."""
        from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

        blob = blob_of(self.snapshot, sha256)
        partial = partial_of(self.snapshot, sha256)
        lock = cache_folder() / ".locks" / repo_folder(self.snapshot.hub_id).name / f"{sha256}.lock"
        for folder in (blob.parent, lock.parent):
            folder.mkdir(parents=True, exist_ok=True)
        self.note = f"waiting for another process that fetches {file.name}"
        with WeakFileLock(lock):
            self.note = ""
            for last in (False, True):
                if blob.exists():
                    return
                self._complete(partial, file, sha256)
                self.note = f"verifying {file.name}"
                found = sha256_of_file(partial)
                self.note = ""
                if found == sha256:
                    partial.replace(blob)
                    return
                partial.unlink()
                if last:
                    raise HubError(
                        f"hub checkpoint {self.snapshot.hub_id}: {file.name} came twice with SHA-256 {found[:12]}...,"
                        f" and {page_of(self.snapshot.hub_id)} states {sha256[:12]}...; it is removed",
                        remedy="try again later; a proxy on the way, or the hub, changes the file",
                        lasting=False,
                    )

    def _complete(self, partial: Path, file: RemoteFile, sha256: str) -> None:
        """Fetch what a partial file lacks; attempts that bring something do not count."""
        failures = 0
        while True:
            before = size_of(partial)
            try:
                self._once(partial, file, sha256)
                return
            except (FetchStopped, HubError):
                raise
            except Exception as error:
                if not is_transient(error):
                    raise
                failures = 0 if size_of(partial) > before else failures + 1
                if failures > len(self.waits_s):
                    raise
                self._wait(wait_of(error, self.waits_s[failures - 1] if failures else 0.0))

    def _once(self, partial: Path, file: RemoteFile, sha256: str) -> None:
        from huggingface_hub import get_hf_file_metadata, hf_hub_url
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        snapshot = self.snapshot
        url = hf_hub_url(snapshot.hub_id, file.name, revision=snapshot.commit, endpoint=endpoint())
        stated = get_hf_file_metadata(url, timeout=TIMEOUT_S, endpoint=endpoint())
        if stated.etag != sha256 or stated.size not in (None, file.size_bytes):
            raise lasting(snapshot.hub_id, f"contradicts itself on {file.name}", "try again, or choose another")
        headers = build_hf_headers()
        if urlsplit(stated.location).netloc != urlsplit(url).netloc:
            headers.pop("authorization", None)  # the token is for the hub, not for where it sends us
        if size_of(partial) > file.size_bytes:
            partial.unlink()
        with partial.open("ab", buffering=0) as stream:  # what a killed process held in a buffer would be lost
            http_get(
                stated.location,
                stream,
                resume_size=stream.tell(),
                headers=headers,
                expected_size=file.size_bytes,
                tqdm_class=self._meter(),
            )

    def _wait(self, seconds: float) -> None:
        if self.stop.wait(seconds):
            raise FetchStopped

    def _meter(self) -> Any:
        """A stand-in for the client's progress bar: shows nothing, and ends a download that has to stop."""
        stop = self.stop

        class Meter:
            def __init__(self, *_: object, **__: object) -> None: ...

            def update(self, n: float | None = 1) -> None:
                if stop.is_set():
                    raise FetchStopped

            def close(self) -> None: ...

            def __enter__(self) -> "Meter":
                return self

            def __exit__(self, *_: object) -> None: ...

        return Meter


@dataclass(slots=True, kw_only=True)
class _Watch:
    """Waits for a job, tells how it goes, and ends it when it has to end."""

    job: _Job
    tell: Tell
    should_stop: Callable[[], bool]
    patience_s: float
    _seen: deque[tuple[float, int]] = field(default_factory=deque)  # (time, bytes here)

    def run(self) -> None:
        began_with = self._here()
        total = self.job.snapshot.size_bytes - began_with
        moved_at, moved_with = time.monotonic(), began_with
        self.job.start()
        try:
            while not self.job.ended.wait(POLL_S):
                here, now = self._here(), time.monotonic()
                self._report_progress(here - began_with, total, now=now)
                if self.should_stop():
                    raise FetchStopped
                if self.job.note or here - moved_with >= LEAST_BYTES_PER_S * self.patience_s:
                    moved_at, moved_with = now, here
                elif now - moved_at > self.patience_s:
                    raise self._too_slow(here - moved_with)
        finally:
            self.job.end()
        if self.job.failure is not None:
            raise self.job.failure
        self._report_progress(self._here() - began_with, total, now=time.monotonic())

    def _here(self) -> int:
        """The bytes of the snapshot on the disk, whichever process brought them."""
        snapshot = self.job.snapshot
        return sum(
            file.size_bytes if is_cached(snapshot, file) else partial_bytes(snapshot, file) for file in snapshot.files
        )

    def _report_progress(self, done: int, total: int, *, now: float) -> None:
        self._seen.append((now, done))
        while now - self._seen[0][0] > RATE_WINDOW_S:
            self._seen.popleft()
        first_at, first = self._seen[0]
        span_s = now - first_at
        rate = (done - first) / span_s if span_s > 0 and done > first else None
        progress = Progress(
            hub_id=self.job.snapshot.hub_id,
            done_bytes=max(0, done),  # a file that came damaged is gone again
            total_bytes=total,
            bytes_per_s=rate,
            note=self.job.note,
        )
        self.tell(progress)

    def _too_slow(self, came: int) -> HubError:
        return HubError(
            f"hub checkpoint {self.job.snapshot.hub_id}: {came} bytes came in {self.patience_s:g} s, too few to go on;"
            f" see {page_of(self.job.snapshot.hub_id)}",
            remedy="check the network, and repeat: what has come stays",
            lasting=False,
        )
