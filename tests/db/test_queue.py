"""The order of the queue, and what may be done to its entries."""

import datetime as dt
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text

from db import models, queue
from db.session import open_database, transaction

NOW = dt.datetime(2026, 11, 30, 22, 0, tzinfo=dt.UTC)
NAMES = ("a", "b", "c", "d")


@pytest.fixture
def database(tmp_path: Path) -> Engine:
    """Four runs in the queue."""
    engine = open_database(f"sqlite:///{tmp_path / 'test.db'}")
    with transaction(engine) as session:
        session.add(models.Experiment(id="e", name="night", created_at=NOW))
        session.add(models.Host(id="h", name="mac", machine_sha256="m", detail={}))
        session.add_all([run(name) for name in NAMES])
    for name in NAMES:
        queue.add(engine, name, now=NOW)
    return engine


def run(name: str) -> models.Run:
    return models.Run(
        id=name,
        experiment_id="e",
        host_id="h",
        status="planned",
        created_at=NOW,
        plan="{}",
        plan_sha256="",
        workload_sha256="",
        seed=0,
        rounds=6,
        metric="decode_tps",
        interleave_by="prompt",
        order_distribution="",
        simulated=False,
    )


def order(engine: Engine) -> str:
    return "".join(entry.run_id for entry in queue.entries(engine))


def test_runs_wait_in_the_order_of_their_coming(database: Engine) -> None:
    assert order(database) == "abcd"


def test_an_entry_moves_before_another_to_the_front_and_to_the_end(database: Engine) -> None:
    queue.move(database, "d", before="b")
    assert order(database) == "adbc"
    queue.move(database, "c", first=True)
    assert order(database) == "cadb"
    queue.move(database, "c")
    assert order(database) == "adbc"


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from((*NAMES, "first", "last"))), max_size=12))
def test_moves_do_to_the_queue_what_they_do_to_a_list(database: Engine, moves: list[tuple[str, str]]) -> None:
    expected = list(order(database))
    for who, where in moves:
        if who == where:
            continue
        expected.remove(who)
        places = {"first": 0, "last": len(expected)}
        expected.insert(places[where] if where in places else expected.index(where), who)
        queue.move(database, who, before=where if where in NAMES else None, first=where == "first")
    assert order(database) == "".join(expected)


def test_places_that_came_too_close_are_numbered_anew(database: Engine) -> None:
    for _ in range(60):
        queue.move(database, "c", before="b")
        queue.move(database, "d", before="b")
        queue.move(database, "c", before="d")
        queue.move(database, "b", before="c")
        queue.move(database, "b")
    assert order(database) == "acdb"
    places = [entry.position for entry in queue.entries(database)]
    assert len(set(places)) == 4


def test_a_cancelled_run_that_never_began_is_cancelled_itself(database: Engine) -> None:
    with transaction(database) as session:
        session.execute(text("UPDATE run SET status = 'interrupted' WHERE id = 'b'"))
    queue.cancel(database, "a")
    queue.cancel(database, "b")
    assert order(database) == "cd"
    assert [(entry.run_id, entry.run_status) for entry in queue.entries(database, state="cancelled")] == [
        ("a", "cancelled"),
        ("b", "interrupted"),
    ]


def test_what_does_not_wait_is_neither_moved_nor_cancelled(database: Engine) -> None:
    queue.settle(database, "a", "done", note=None)
    with pytest.raises(queue.QueueError, match="run a: is not waiting but done"):
        queue.cancel(database, "a")
    with pytest.raises(queue.QueueError, match="run a: is not waiting"):
        queue.move(database, "b", before="a")
    with pytest.raises(queue.QueueError, match="run x: not in the queue"):
        queue.move(database, "x", first=True)
    with pytest.raises(queue.QueueError, match="cannot be moved before itself"):
        queue.move(database, "b", before="b")


def test_what_a_preflight_found_is_kept(database: Engine) -> None:
    queue.store_check(database, "a", {"x": None, "y": "not_engaged: plain decoding"}, now=NOW)
    queue.store_check(database, "b", {"x": None}, now=NOW)
    first, second, third, _ = queue.entries(database)
    assert first.checked == {"x": None, "y": "not_engaged: plain decoding"}
    assert first.checked_at == NOW
    assert (first.checked_well, second.checked_well, third.checked_well) == (False, True, False)
