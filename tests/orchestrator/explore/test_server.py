"""The explorer as it runs: a process of its own, asked over the loopback address."""

import html
import re
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest
from sqlalchemy import Engine

from db import models
from db.session import open_database, transaction
from orchestrator.errors import InputError, RefusedError
from orchestrator.explore import server
from tests.db.filling import START, Filled, fill
from tests.db.odd_night import SCRIPT, fill_odd_night
from tests.orchestrator.explore.exploring import PATIENCE_S, Explorer, exploring


@dataclass(frozen=True, slots=True, kw_only=True)
class Explored:
    """One that runs on a filled database."""

    explorer: Explorer
    engine: Engine
    path: Path
    filled: Filled

    def get(self, path: str) -> httpx.Response:
        return self.explorer.client.get(path)


@pytest.fixture(scope="module")
def explored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explored]:
    path = tmp_path_factory.mktemp("explore 100% #1") / "interlace.db"
    (path.parent / "mine.sql").write_text(
        "-- <i>Mine</i>?\n-- :least = 3\nSELECT count(*) AS n FROM run HAVING n >= :least"
    )
    engine = open_database(f"sqlite:///{path}")
    filled = fill(engine)
    fill_odd_night(engine)
    with exploring(path, "--port", "0") as explorer:
        yield Explored(explorer=explorer, engine=engine, path=path, filled=filled)
    engine.dispose()


def test_the_first_page_has_the_views_first_then_the_questions(explored: Explored) -> None:
    page = explored.get("/")
    assert page.status_code == 200
    places = [page.text.index(f">{words}<") for words in ("trial_flat", "verdict_flat", "Which trials ran hot?", "run")]
    assert places == sorted(places)
    assert "One row per comparison" in page.text
    assert "&lt;i&gt;Mine&lt;/i&gt;?" in page.text
    assert str(explored.path) in html.unescape(page.text)


def test_the_first_page_counts_no_table(explored: Explored) -> None:
    found = explored.get("/interlace.json").json()
    assert {table["count"] for table in found["tables"]} == {None}


def test_a_stored_query_answers_about_the_newest_run_and_about_another(explored: Explored) -> None:
    page = explored.get("/interlace/verdicts")
    assert page.url.params["run"] == explored.filled.last_run
    assert "Which differences are real?" in page.text
    assert "could_be_drift" in page.text
    rows = explored.get(f"/interlace/verdicts.json?_shape=array&run={explored.filled.first_run}").json()
    assert [row["treatment"] for row in rows] == ["plain-4bit"]


def test_numbers_from_a_form_are_numbers(explored: Explored) -> None:
    assert explored.get("/interlace/mine.json?_shape=array").json() == [{"n": 3}]
    assert explored.get("/interlace/mine.json?_shape=array&least=20").json() == []


@pytest.mark.slow
def test_every_stored_query_answers(explored: Explored) -> None:
    links = set(re.findall(r'href="(/interlace/[a-z-]+)"', explored.get("/").text))
    names = {path.stem for path in (Path(server.__file__).parents[2] / "db" / "queries").glob("*.sql")}
    assert {f"/interlace/{name}" for name in names} <= links
    for name in sorted(names - {"over-time"}):
        answer = explored.get(f"/interlace/{name}.json")
        assert (answer.status_code, answer.json().get("error")) == (200, None), name


def test_a_view_shows_its_first_columns_and_explains_all(explored: Explored) -> None:
    page = explored.get("/interlace/trial_flat").text
    heads = re.findall(r'<th [^>]*data-column="(\w+)"', page)
    assert heads[:3] == ["started_at", "arm", "kind"]
    assert "thermal_reason" not in heads
    assert "<dt>thermal_reason</dt><dd>The reason why the thermal level is missing.</dd>" in re.sub(r"\s+<", "<", page)


def test_model_text_is_shown_and_never_run(explored: Explored) -> None:
    page = explored.get("/interlace?sql=SELECT+text+FROM+generation+WHERE+turn+%3D+1").text
    assert "elsewhere.example" in page
    assert html.escape(SCRIPT, quote=False)[:20] in page
    assert "<script>alert" not in page
    assert "<img" not in page


def test_pages_load_nothing_from_elsewhere(explored: Explored) -> None:
    for path in ("/", "/interlace/trial_flat", "/interlace/verdicts", "/interlace?sql=SELECT+1", "/interlace/run"):
        page = explored.get(path)
        loaded = re.findall(r'<(?:script|img|iframe|source)[^>]+src="([^"]+)"', page.text)
        loaded += [tag for tag in re.findall(r'<link[^>]+rel="stylesheet"[^>]+>', page.text)]
        assert loaded
        assert not [each for each in loaded if "//" in each], path
        assert "default-src 'self'" in page.headers["content-security-policy"]
    for sheet in ("/explore/explore.css", "/-/static/app.css"):
        answer = explored.get(sheet)
        assert answer.status_code == 200
        assert not re.search(r"@import|url\(\s*['\"]?(https?:)?//", answer.text)


@pytest.mark.parametrize(
    "sql", ["INSERT INTO experiment VALUES ('a', 'b', 'c')", "DELETE FROM run", "ATTACH 'x.db' AS x", "VACUUM INTO 'x'"]
)
def test_nothing_can_be_written(sql: str, explored: Explored) -> None:
    assert explored.explorer.client.post("/interlace", data={"sql": sql}).status_code == 405
    answer = explored.get(f"/interlace.json?sql={sql}")
    assert answer.json()["ok"] is False
    assert explored.get("/interlace.db").status_code == 403
    assert explored.get("/interlace.json?sql=SELECT+count(*)+AS+n+FROM+run&_shape=array").json() == [{"n": 3}]


@pytest.mark.slow
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT length(hex(zeroblob(300000000)))",
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 1000) SELECT randomblob(4000000) FROM c",
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c",
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT length(group_concat(x)) FROM c",
        "SELECT json_group_array(printf('%.*c', 100000, 'a')) FROM generation a, generation b, generation c",
    ],
)
@pytest.mark.parametrize("form", ["", ".json"])
def test_a_question_without_an_end_takes_little_and_holds_nobody_up(sql: str, form: str, explored: Explored) -> None:
    answer = explored.explorer.client.get(f"/interlace{form}", params={"sql": sql})
    assert answer.status_code == 400
    assert psutil.Process(explored.explorer.process.pid).memory_info().rss < 600_000_000
    assert explored.get("/interlace.json?sql=SELECT+1+AS+n&_shape=array").json() == [{"n": 1}]


def test_no_other_page_can_ask(explored: Explored) -> None:
    for header in ({"sec-fetch-site": "cross-site"}, {"origin": "https://elsewhere.example"}):
        answer = explored.explorer.client.get("/interlace.json?sql=SELECT+1", headers=header)
        assert answer.status_code == 403
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_a_page_runs_and_styles_only_what_its_templates_hold(explored: Explored) -> None:
    for path in (
        "/",
        "/interlace/trial_flat",
        "/interlace/verdicts",
        "/interlace?sql=SELECT+1",
        "/interlace/run",
        "/x",
    ):
        page = explored.get(path)
        policy = page.headers["content-security-policy"]
        assert "unsafe" not in policy
        tags = re.findall(r"<(?:script|style)\b[^>]*>", page.text)
        (nonce,) = set(re.findall(r"'nonce-([\w-]+)'", policy))
        if page.status_code == 200:
            assert tags, path
            assert all(f'nonce="{nonce}"' in tag for tag in tags), path
        assert not re.search(r"<[^>]+\s(?:style|on\w+)=", page.text), path


def test_it_listens_on_the_loopback_address_alone(explored: Explored) -> None:
    connections = psutil.Process(explored.explorer.process.pid).net_connections(kind="inet")
    listening = [each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN]
    assert listening == ["127.0.0.1"]


def test_another_hosts_name_is_turned_away(explored: Explored) -> None:
    answer = explored.explorer.client.get("/interlace", headers={"host": "elsewhere.example"})
    assert answer.status_code == 403


def test_what_a_run_writes_meanwhile_is_seen(explored: Explored) -> None:
    ask = "/interlace.json?sql=SELECT+name+FROM+experiment+ORDER+BY+name&_shape=array"
    with transaction(explored.engine) as session:
        row = models.Experiment(name="another", created_at=START)
        session.add(row)
        session.flush()
        assert [each["name"] for each in explored.get(ask).json()] == ["draft-or-quantise"]
    assert [each["name"] for each in explored.get(ask).json()] == ["another", "draft-or-quantise"]
    with transaction(explored.engine) as session:
        session.delete(row)


def test_ctrl_c_ends_it_cleanly_and_frees_the_port(explored: Explored) -> None:
    with exploring(explored.path, "--port", "0") as explorer:
        assert explorer.client.get("/interlace").status_code == 200
        mistaken = explorer.client.get("/interlace.json?sql=SELECT+x+FROM+nowhere")
        assert (mistaken.status_code, "no such table: nowhere" in mistaken.text) == (400, True)
        explorer.process.send_signal(signal.SIGINT)
        _, errors = explorer.process.communicate(timeout=PATIENCE_S)
        assert explorer.process.returncode == 0
        assert "no such table: nowhere" in errors  # one line for a mistake, and none for the end
        assert errors.count("\n") == 1
        port = int(explorer.address.rpartition(":")[2])
        server.listen(port).close()


def test_a_taken_port_is_reported_and_the_usual_one_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"port {port}: .*; name another with --port"):
            server.listen(port)
        monkeypatch.setattr(server, "PORT", port)
        with server.listen(None) as other:
            assert other.getsockname()[1] != port


def test_without_datasette_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("datasette", "datasette.app"):  # the second, where another test has imported it
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RefusedError, match=r"needs Datasette .*pip install 'interlace\[explore\]'") as caught:
        server.build((), tmp_path / "x.db")
    assert "\n" not in str(caught.value)
