"""Fetching from a hub that is slow, busy, rude or hostile. The hub is a local one; the client is the real one."""

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.fake_hub import FakeHub, Fault
from tests.workers.weights.hubs import LARGE, TINY, hub_here
from workers.weights import hub_download
from workers.weights.hub import PATTERNS, Snapshot, commit_here, complete_folder, require_room, survey
from workers.weights.hub_download import Progress, fetch
from workers.weights.hub_errors import FetchStopped, HubError, within

MODEL = "me/tiny"
NOW = (0.0, 0.0)  # two further attempts, at once


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # the client's own pauses between attempts
    monkeypatch.setattr(hub_download, "POLL_S", 0.01)
    monkeypatch.setattr(hub_download, "JOIN_S", 0.05)
    with hub_here(monkeypatch, tmp_path / "cache", {MODEL: TINY}) as found:
        yield found


def fetched(snapshot: Snapshot | None = None) -> Path:
    return fetch(snapshot or survey(MODEL, waits_s=NOW), waits_s=NOW)


def refusal(revision: str | None = None, model: str = MODEL) -> HubError:
    with pytest.raises(HubError) as caught:
        fetch(survey(model, revision, waits_s=NOW), waits_s=NOW)
    return caught.value


def whole(folder: Path) -> bool:
    names = ("config.json", "model.safetensors", "tokenizer.json")
    return all((folder / name).read_bytes() == TINY[name] for name in names)


def test_the_files_are_those_that_mlx_lm_loads() -> None:
    from mlx_lm.utils import DEFAULT_ALLOW_PATTERNS

    assert list(PATTERNS) == DEFAULT_ALLOW_PATTERNS


def test_a_survey_states_the_commit_and_what_is_to_come(hub: FakeHub) -> None:
    found = survey(MODEL)
    assert found.commit == "a" * 40
    assert [file.name for file in found.files] == ["config.json", "model.safetensors", "tokenizer.json"]
    assert found.size_bytes == found.missing_bytes == len(LARGE) + len(TINY["config.json"]) + 2
    assert hub.sent == {}


def test_a_fetch_brings_all_and_a_second_one_nothing(hub: FakeHub) -> None:
    assert commit_here({"hub_id": MODEL}) is None
    assert whole(folder := fetched())
    assert commit_here({"hub_id": MODEL}) == commit_here({"hub_id": MODEL, "revision": "a" * 40}) == "a" * 40
    before = dict(hub.sent)
    assert fetched() == folder
    assert hub.sent == before
    assert survey(MODEL).missing_bytes == 0


def test_progress_counts_what_comes(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Progress] = []
    gate = threading.Event()
    hub.faults.append(Fault("model.safetensors", hold=gate, hold_at=40_000))

    def tell(progress: Progress) -> None:
        told.append(progress)
        if progress.done_bytes > 30_000:
            gate.set()

    fetch(survey(MODEL), tell=tell)
    assert 30_000 < told[-2].done_bytes < told[-2].total_bytes
    assert told[-1].done_bytes == told[-1].total_bytes == survey(MODEL).size_bytes
    assert told[-1].bytes_per_s is not None
    assert told[-1].left_s == 0


@pytest.mark.parametrize("cut_at", [1, 7, 10_000, len(LARGE) - 1])
def test_a_connection_that_is_cut_anywhere_goes_on_there(hub: FakeHub, cut_at: int) -> None:
    hub.faults.append(Fault("model.safetensors", cut_at=cut_at, times=3))
    assert whole(fetched())
    assert hub.sent["model.safetensors"] == len(LARGE)


def test_a_later_fetch_goes_on_where_an_earlier_one_ended(hub: FakeHub) -> None:
    gate = threading.Event()
    hub.faults.append(Fault("model.safetensors", hold=gate, hold_at=50_000, times=1))
    with pytest.raises(FetchStopped):
        fetch(survey(MODEL), should_stop=lambda: survey(MODEL).missing_bytes < len(LARGE) - 40_000)
    gate.set()
    left = survey(MODEL).missing_bytes
    assert 0 < left < len(LARGE) - 40_000
    assert whole(fetched())
    ranges = [request.headers.get("Range") for request in hub.asked("GET", "model.safetensors")]
    assert ranges == [None, f"bytes={len(LARGE) - left}-"]


def test_a_hub_that_knows_no_ranges_begins_anew(hub: FakeHub, tmp_path: Path) -> None:
    snapshot = survey(MODEL)
    blobs = tmp_path / "cache" / "models--me--tiny" / "blobs"
    blobs.mkdir(parents=True)
    partial = blobs / f"{hashlib.sha256(LARGE).hexdigest()}.incomplete"
    partial.write_bytes(b"?" * 60_000)  # not what the hub has: its SHA-256 shows that
    assert whole(fetched(snapshot))
    assert not partial.exists()


def test_a_partial_file_that_is_too_long_begins_anew(hub: FakeHub, tmp_path: Path) -> None:
    blobs = tmp_path / "cache" / "models--me--tiny" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{hashlib.sha256(LARGE).hexdigest()}.incomplete").write_bytes(LARGE + b"more")
    assert whole(fetched())


def test_content_with_another_hash_is_removed_and_reported(hub: FakeHub, tmp_path: Path) -> None:
    wrong = LARGE[:-1] + b"!"
    hub.faults.append(Fault("model.safetensors", content=wrong))
    error = refusal()
    assert hashlib.sha256(wrong).hexdigest()[:12] in str(error)
    assert not error.lasting
    assert list((tmp_path / "cache" / "models--me--tiny" / "blobs").glob("*.incomplete")) == []
    assert complete_folder(MODEL, None) is None
    hub.faults.clear()
    assert whole(fetched())


def test_content_that_is_wrong_once_is_fetched_again(hub: FakeHub) -> None:
    hub.faults.append(Fault("model.safetensors", content=b"?" * len(LARGE), times=1))
    assert whole(fetched())


@pytest.mark.parametrize("content", [LARGE[:-10], LARGE + b"0123456789"])
def test_content_of_another_length_is_reported(hub: FakeHub, content: bytes) -> None:
    hub.faults.append(Fault("model.safetensors", content=content))
    assert "me/tiny" in str(refusal())
    assert complete_folder(MODEL, None) is None


def test_two_fetches_at_once_bring_each_byte_once(hub: FakeHub) -> None:
    gate = threading.Event()
    hub.faults.append(Fault("model.safetensors", hold=gate, hold_at=20_000, times=1))
    snapshot, folders = survey(MODEL), []
    threads = [threading.Thread(target=lambda: folders.append(fetched(snapshot))) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert hub.arrived.wait(20)
    gate.set()
    for thread in threads:
        thread.join(30)
    assert [whole(folder) for folder in folders] == [True, True]
    assert hub.sent["model.safetensors"] == len(LARGE)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_hub_is_asked_again(hub: FakeHub, status: int) -> None:
    hub.faults += [
        Fault("/api/models/me/tiny", status=status, headers={"Retry-After": "0"}, times=2),
        Fault("model.safetensors", method="HEAD", status=status, times=1),
        Fault("model.safetensors", status=status, headers={"Retry-After": "0"}, times=1),
        Fault("config.json", status=status, times=1),
    ]
    assert whole(fetched())


@pytest.mark.parametrize(
    ("path", "status", "headers", "words", "lasting"),
    [
        ("/api/models/me/tiny", 404, {"X-Error-Code": "RepoNotFound"}, ["does not exist", "private", "HF_TOKEN"], True),
        ("/api/models/me/tiny", 401, {}, ["does not exist", "private", "HF_TOKEN"], True),
        ("/api/models/me/tiny", 403, {"X-Error-Code": "GatedRepo"}, ["gated", "terms", "HF_TOKEN"], True),
        ("model.safetensors", 403, {"X-Error-Code": "GatedRepo"}, ["gated", "terms"], True),
        ("/api/models/me/tiny", 403, {}, ["status 403"], True),
        ("/api/models/me/tiny", 429, {}, ["too many requests", "HF_TOKEN"], False),
        ("/api/models/me/tiny", 500, {}, ["status 500", "repeat later"], False),
        ("model.safetensors", 503, {}, ["status 503", "what has come stays"], False),
        ("/api/models/me/tiny", 200, {"Content-Type": "text/html"}, ["does not answer as a hub", "sign-in"], False),
    ],
)
def test_a_refusal_is_plain(
    hub: FakeHub, path: str, status: int, headers: dict[str, str], words: list[str], lasting: bool
) -> None:
    hub.faults.append(Fault(path, status=status, headers=headers, body=b"<html>please sign in</html>"))
    error = refusal()
    assert [word for word in [*words, MODEL] if word not in str(error)] == []
    assert f"{hub.url}/{MODEL}" in str(error) or status == 200
    assert "\n" not in str(error)
    assert error.lasting is lasting


def test_a_token_that_opens_nothing_is_named(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secretsecret")
    hub.faults.append(Fault("/api/models/me/tiny", status=403, headers={"X-Error-Code": "GatedRepo"}))
    assert "the account of your token" in str(refusal())
    hub.faults[0] = Fault(
        "/api/models/me/tiny",
        status=401,
        headers={"X-Error-Message": "Invalid credentials in Authorization header"},
    )
    assert "does not accept your token" in str(refusal())


def test_an_unknown_revision_or_model_is_reported(hub: FakeHub) -> None:
    assert "has no revision nowhere" in str(refusal("nowhere"))
    assert "me/none does not exist" in str(refusal(model="me/none"))


def test_the_token_goes_to_the_hub_and_not_where_it_sends_us(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secretsecret")
    with FakeHub({MODEL: TINY}, host="127.0.0.2") as elsewhere:
        hub.faults += [Fault("model.safetensors", method=each, redirect_to=elsewhere.url) for each in ("HEAD", "GET")]
        assert whole(fetched())
        assert hub.asked("HEAD", "model.safetensors")[0].headers["authorization"] == "Bearer hf_secretsecret"
        sent = elsewhere.asked("GET", "model.safetensors")
    assert len(sent) == 1
    assert not {name.lower() for name in sent[0].headers} & {"authorization"}


def test_offline_nothing_is_asked(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    error = refusal()
    assert "HF_HUB_OFFLINE" in str(error)
    assert "interlace checkpoint fetch me/tiny" in str(error)
    assert hub.requests == []


def test_a_hub_that_is_not_there_is_reported(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    error = refusal()
    assert "http://127.0.0.1:9 cannot be reached" in str(error)
    assert not error.lasting


def test_a_hub_that_trickles_ends_the_fetch(hub: FakeHub) -> None:
    hub.faults.append(Fault("model.safetensors", piece=1, pause_s=0.02))
    with pytest.raises(HubError, match=r"bytes came in 0\.3 s, too few") as caught:
        fetch(survey(MODEL), waits_s=NOW, patience_s=0.3)
    assert not caught.value.lasting


def test_a_hub_that_falls_silent_ends_the_fetch(hub: FakeHub) -> None:
    hub.faults.append(Fault("model.safetensors", hold=threading.Event(), hold_at=8192))
    with pytest.raises(HubError, match="too few"):
        fetch(survey(MODEL), waits_s=NOW, patience_s=0.3)
    assert survey(MODEL).missing_bytes < len(LARGE)


def test_a_hub_that_never_answers_ends_the_survey(hub: FakeHub) -> None:
    hub.faults.append(Fault("/tree/", hold=threading.Event()))
    with pytest.raises(HubError, match="stops answering"):
        survey(MODEL, limit_s=0.3)


@pytest.mark.parametrize(
    "name", ["../outside.json", "/etc/outside.json", "a/../../b.json", "a\\..\\b.json", "a\nb.json"]
)
def test_a_name_that_leads_out_of_the_folder_is_refused(hub: FakeHub, tmp_path: Path, name: str) -> None:
    hub.names = [name]
    error = refusal()
    assert "leads out of its folder" in str(error)
    assert error.lasting
    assert not (tmp_path / "cache").exists()


def test_a_huge_file_is_refused_for_lack_of_room(hub: FakeHub, tmp_path: Path) -> None:
    hub.sizes["model.safetensors"] = 10**17
    with pytest.raises(HubError, match=r"100,000,000\.0 GB are to be fetched.*free") as caught:
        require_room([survey(MODEL)])
    assert "HF_HOME" in str(caught.value)
    assert str(tmp_path / "cache") in str(caught.value)


@pytest.mark.usefixtures("hub")
def test_room_is_asked_of_the_volume_that_holds_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    (tmp_path / "linked").symlink_to(volume)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "linked" / "hub"))
    asked: list[Path] = []

    def usage(place: Path) -> object:
        asked.append(place)
        raise OSError("asked")

    monkeypatch.setattr("shutil.disk_usage", usage)
    with pytest.raises(OSError, match="asked"):
        require_room([survey(MODEL)])
    assert asked == [volume]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"model.gguf": b"GGUF"}, ["no config.json", ".gguf files"]),
        ({"config.json": b"{}", "pytorch_model.bin": b"0"}, ["no model*.safetensors", ".bin files", "mlx-community"]),
    ],
)
def test_a_repository_that_is_no_checkpoint_is_refused(hub: FakeHub, files: dict[str, bytes], words: list[str]) -> None:
    hub.repos["me/other"], hub.commits["me/other"] = files, "b" * 40
    error = refusal(model="me/other")
    assert [word for word in words if word not in str(error)] == []


def test_a_snapshot_with_a_file_missing_is_not_complete(hub: FakeHub) -> None:
    folder = fetched()
    (folder / "tokenizer.json").unlink()
    assert complete_folder(MODEL, None) is None
    assert whole(fetched())


def test_a_newer_commit_is_fetched_beside_the_former(hub: FakeHub) -> None:
    former = fetched()
    hub.commits[MODEL] = "b" * 40
    hub.repos[MODEL]["config.json"] = b'{"model_type": "llama", "newer": 1}'
    newer = fetched()
    assert former.name == "a" * 40
    assert newer.name == commit_here({"hub_id": MODEL}) == "b" * 40
    assert hub.sent["model.safetensors"] == len(LARGE)
    assert complete_folder(MODEL, "a" * 40) == former


def test_a_folder_that_cannot_be_written_is_reported(hub: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file stands here")
    error = refusal()
    assert "cannot be written" in str(error)
    assert not error.lasting


def test_an_action_without_an_end_is_left() -> None:
    with pytest.raises(TimeoutError, match=r"within 0\.01 s"):
        within(0.01, threading.Event().wait)
