"""Which signs are a request's own: whatever other clients leave between them, no sign of theirs shows that ours ran."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.catalogue.binding import Bond, LogIdentity, ProcessIdentity, Trace, Usage, Window, alone, bond, decide

OURS = Usage(prompt=40, generated=64, max_tokens=64, ids=frozenset({"chatcmpl-1"}))
LOG = LogIdentity(file=(1, 7), size=900, tail="a")
SERVER = frozenset({ProcessIdentity(pid=5, started_at=1.0)})
WHOLE = Window(usage=OURS, log_before=LOG, log_after=LOG, processes_before=SERVER, processes_after=SERVER)
OWN_LINE = Trace(source="line", where="log", says=True, text="ours", counts={"generated": 64, "prompt": 40})
OWN_ANSWER = Trace(source="timings", where="response", says=True, text="ours", counts={"drafted": 9, "accepted": 5})

sizes = st.integers(0, 10**6)


def foreign(usage: Usage = OURS) -> st.SearchStrategy[Trace]:
    """The traces of another client's request: its own sizes, or nothing that shows them."""

    def is_not_ours(counts: dict[str, int]) -> bool:
        written = counts.get("cycles", 0) + counts.get("accepted", 0)
        return counts.get("generated") != usage.generated and written not in (
            usage.generated,
            (usage.generated or 0) - 1,
        )

    names = st.sampled_from(
        ["generated", "prompt", "max_tokens", "cycles", "accepted", "drafted", "running", "context"]
    )
    return st.builds(
        Trace,
        source=st.sampled_from(["line", "other"]),
        where=st.sampled_from(["log", "state", "difference"]),
        says=st.booleans(),
        text=st.just("theirs"),
        counts=st.dictionaries(names, sizes).filter(is_not_ours),
        id=st.sampled_from([None, "chatcmpl-2"]),
        committed=st.booleans(),
        whole_server=st.just(False),
    )


windows = st.builds(
    replace,
    st.just(WHOLE),
    owed=st.lists(st.builds(Usage, prompt=st.just(40), generated=st.sampled_from([2, 64]))),
    log_after=st.sampled_from([LOG, None, replace(LOG, size=10), replace(LOG, file=(1, 8)), replace(LOG, tail="b")]),
    processes_after=st.sampled_from([SERVER, frozenset(), frozenset({ProcessIdentity(pid=5, started_at=2.0)})]),
    company=st.sampled_from([None, "from 127.0.0.1:9"]),
    busy=st.sampled_from([None, 0, 1]),
    restarted=st.booleans(),
    silent=st.booleans(),
)


@given(signs=st.lists(foreign(), max_size=6), window=windows, theirs=st.integers(1, 10**6))
def test_no_sign_of_another_client_shows_that_ours_ran(signs: list[Trace], window: Window, theirs: int) -> None:
    for traffic in ({}, {"generated": 64 + theirs, "prompt": 40 + theirs, "requests": 2}):
        decision = decide(signs, replace(window, traffic=traffic))
        assert decision is None or decision.engaged is not True


@given(signs=st.lists(foreign(), max_size=6), window=windows, place=st.integers(0, 6))
def test_what_the_answer_says_itself_holds_whatever_others_do(signs: list[Trace], window: Window, place: int) -> None:
    mixed = [*signs[:place], OWN_ANSWER, *signs[place:]]
    decision = decide(mixed, replace(window, traffic={"generated": 10**7}))
    assert decision is not None
    assert decision.engaged is not None
    denied = replace(OWN_ANSWER, says=False)
    decision = decide([*signs[:place], denied, *signs[place:]], window)
    assert decision is not None
    assert decision.engaged is False


@given(signs=st.lists(foreign(), min_size=1, max_size=6))
def test_a_line_of_our_size_beside_a_sign_of_somebody_elses_is_unknown(signs: list[Trace]) -> None:
    decision = decide([OWN_LINE, *signs], WHOLE)
    assert decision is not None
    assert decision.engaged is not True
    assert decision.reason or decision.engaged is False


@given(signs=st.lists(foreign(), max_size=6), window=windows)
def test_a_fall_back_of_the_whole_server_outweighs_every_doubt(signs: list[Trace], window: Window) -> None:
    fell_back = Trace(source="failed", where="log", says=False, text="start failed", whole_server=True)
    whole = replace(window, log_after=LOG, processes_after=SERVER, restarted=False)
    decision = decide([*signs, OWN_LINE, fell_back], whole)
    assert decision is not None
    assert decision.engaged is False


def test_a_line_of_our_size_alone_is_ours() -> None:
    decision = decide([OWN_LINE], WHOLE)
    assert decision is not None
    assert decision.engaged is True


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"log_after": replace(LOG, size=10)}, "shrank"),
        ({"log_after": replace(LOG, file=(1, 8))}, "replaced"),
        ({"log_after": replace(LOG, size=5000, tail="b")}, "rewritten"),
        ({"log_after": None}, "went away"),
        ({"processes_after": frozenset({ProcessIdentity(pid=5, started_at=2.0)})}, "process behind the server's port"),
        ({"restarted": True}, "process behind the server's port"),
        ({"company": "from 127.0.0.1:9"}, "another client may have used"),
        ({"traffic": {"generated": 65}}, "another client used"),
        ({"traffic": {"generated": 64, "requests": 2}}, "another client used"),
        ({"busy": 1}, "another client used"),
        ({"silent": True}, "the answer itself"),
        ({"owed": (replace(OURS, ids=frozenset()),)}, "late sign"),
        ({"usage": Usage(prompt=40)}, "cannot be bound"),
    ],
)
def test_what_makes_a_line_of_our_size_doubtful(change: dict[str, object], reason: str) -> None:
    decision = decide([OWN_LINE], replace(WHOLE, **change))  # type: ignore[arg-type]
    assert decision is not None
    assert decision.engaged is None
    assert reason in decision.reason


def test_two_lines_of_our_size_are_unknown_unless_the_server_served_nobody_else() -> None:
    twice = decide([OWN_LINE, OWN_LINE], WHOLE)
    assert twice is not None
    assert twice.engaged is None
    assert "two lines" in twice.reason
    alone = replace(WHOLE, traffic={"generated": 64, "prompt": 40, "requests": 1})
    decision = decide([OWN_LINE, OWN_LINE], alone)
    assert decision is not None
    assert decision.engaged is True


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        (replace(OWN_LINE, id="chatcmpl-1", counts={}), Bond.own),
        (replace(OWN_LINE, id="chatcmpl-2"), Bond.foreign),
        (replace(OWN_LINE, counts={"generated": 64, "prompt": 41}), Bond.foreign),
        (replace(OWN_LINE, counts={}), Bond.untold),
        (replace(OWN_LINE, counts={"cycles": 20, "accepted": 44}, committed=True), Bond.equal),
        (replace(OWN_LINE, counts={"cycles": 20, "accepted": 43}, committed=True), Bond.equal),  # and the prompt's own
        (replace(OWN_LINE, counts={"cycles": 20, "accepted": 42}, committed=True), Bond.untold),
        (replace(OWN_LINE, counts={"cycles": 20, "accepted": 45}, committed=True), Bond.foreign),
        (replace(OWN_LINE, where="difference", counts={"drafted": -4}), Bond.foreign),
        (replace(OWN_LINE, counts={"accepted": 65}), Bond.foreign),
        (replace(OWN_LINE, counts={"running": 2, "generated": 64}), Bond.foreign),
        (replace(OWN_LINE, counts={"context": 500, "generated": 64}), Bond.foreign),
        (replace(OWN_LINE, counts={"context": 39, "generated": 64}), Bond.foreign),  # less than our prompt
        (replace(OWN_LINE, counts={"context": 104, "generated": 64}), Bond.equal),
        (replace(OWN_LINE, counts={"accepted": 64}, committed=True), Bond.untold),  # without cycles, nobody's size
        (replace(OWN_LINE, says=False, counts={"max_tokens": 64}), Bond.equal),
        (replace(OWN_LINE, says=True, counts={"max_tokens": 64}), Bond.untold),
    ],
)
def test_how_a_sign_is_bound(trace: Trace, expected: Bond) -> None:
    assert bond(trace, WHOLE) is expected


def test_a_size_that_we_do_not_know_contradicts_nothing() -> None:
    unknown = replace(WHOLE, usage=Usage(prompt=40))
    assert bond(replace(OWN_LINE, counts={"context": 60}), unknown) is Bond.untold
    without_prompt = replace(WHOLE, usage=Usage(generated=64), traffic={"generated": 64, "prompt": 40, "requests": 1})
    assert alone(without_prompt) is True
    busy = decide([OWN_LINE], replace(unknown, traffic={"requests": 2}))
    assert busy is not None
    assert "requests +2, and ours is 1 of unknown size" in busy.reason


def test_only_signs_of_ours_make_a_denied_request_partly_engaged() -> None:
    denial = Trace(source="state", where="state", says=False, text="off", whole_server=True)
    theirs = replace(OWN_LINE, counts={"generated": 65})
    for other, partly in ((theirs, False), (OWN_LINE, True), (OWN_ANSWER, True)):
        decision = decide([denial, other], WHOLE)
        assert decision is not None
        assert (decision.engaged, decision.partly) == (False, partly)
