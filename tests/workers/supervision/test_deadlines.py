"""Each deadline runs from what it says it runs from."""

import pytest

from orchestrator.plan import Deadlines
from workers.errors import FaultKind
from workers.protocol import Heartbeat
from workers.supervision.deadlines import Watch

DEADLINES = Deadlines(first_token_s=100, inter_token_s=10, total_s=1000)


class Clock:
    """Seconds that pass when told."""

    now_s = 5.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(clock: Clock) -> Watch:
    return Watch(DEADLINES, clock=clock)


def beat(watch: Watch, tokens: int) -> None:
    watch.beat(Heartbeat(phase="decode" if tokens else "prefill", tokens=tokens))


def test_the_first_token_is_waited_for_from_the_start_whatever_beats(watch: Watch, clock: Clock) -> None:
    clock.now_s += 60
    beat(watch, 0)
    due = watch.next_due()
    assert (due.at, due.kind) == (105, FaultKind.hung_first_token)
    assert due.words == "no first token within 100 s"


def test_the_next_token_is_waited_for_from_the_last_growth(watch: Watch, clock: Clock) -> None:
    clock.now_s += 60
    beat(watch, 3)
    clock.now_s += 7
    beat(watch, 3)
    due = watch.next_due()
    assert (due.at, due.kind) == (75, FaultKind.hung_inter_token)
    assert due.words == "nothing for 10 s after 3 tokens"
    beat(watch, 4)
    assert watch.next_due().at == 82


def test_each_turn_waits_for_its_own_first_token(watch: Watch, clock: Clock) -> None:
    beat(watch, 3)
    clock.now_s += 50
    watch.turn_answered()
    due = watch.next_due()
    assert (due.at, due.kind) == (155, FaultKind.hung_first_token)


def test_a_late_beat_of_the_turn_before_does_not_shorten_the_next_ones_prefill(watch: Watch, clock: Clock) -> None:
    beat(watch, 3)
    watch.turn_answered()
    beat(watch, 5)
    clock.now_s += 1
    beat(watch, 0)
    assert watch.next_due().kind is FaultKind.hung_first_token


def test_the_whole_request_has_its_own_deadline(watch: Watch, clock: Clock) -> None:
    for tokens in range(1, 200):
        clock.now_s += 6
        beat(watch, tokens)
    due = watch.next_due()
    assert (due.at, due.kind) == (1005, FaultKind.too_long)
    assert due.words == "the request took more than 1000 s"
