"""Tokens over the chunks of an answer: the sum is exact, and what is only an estimate says so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.http.tokens import APPORTIONED, ONE_EACH, apportion


@pytest.mark.parametrize(
    ("pieces", "tokens", "counts", "how"),
    [
        ([3, 1, 4], 3, [1, 1, 1], ONE_EACH),
        ([3, 0, 4], 2, [1, 0, 1], ONE_EACH),
        ([3, 4, 0], 2, [1, 1, 0], ONE_EACH),
        ([3, 4, 0], 3, [1, 1, 1], ONE_EACH),  # the end of sequence has no text, and took a pass
        ([3, 0, 4, 0], 3, [1, 0, 1, 1], ONE_EACH),
        ([3, 4], 3, [1, 2], APPORTIONED),  # no chunk of its own for the end
        ([0], 1, [1], ONE_EACH),
        ([0, 0], 4, [0, 4], APPORTIONED),
        ([1, 1, 2], 8, [2, 2, 4], APPORTIONED),
        ([1, 2], 2, [1, 1], ONE_EACH),
        ([1, 2], 4, [1, 3], APPORTIONED),  # 1.33 and 2.67: to the nearest
        ([2, 1], 4, [3, 1], APPORTIONED),
        ([1, 1], 5, [3, 2], APPORTIONED),  # half of five is rounded up
        ([1, 98, 1], 5, [1, 3, 1], APPORTIONED),  # the first and the last text have a token each
        ([1, 50, 50, 1], 2, [1, 0, 0, 1], APPORTIONED),
        ([1, 99], 1, [1, 0], APPORTIONED),
        ([5, 0, 0], 9, [9, 0, 0], APPORTIONED),
    ],
)
def test_tokens_of_each_chunk(pieces: list[int], tokens: int, counts: list[int], how: str) -> None:
    assert apportion(pieces, tokens) == (counts, how)


def test_without_a_chunk_there_is_nothing_to_give_a_token_to() -> None:
    with pytest.raises(ValueError, match="no stamp for any token"):
        apportion([], 3)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.integers(1, 400))
def test_every_token_is_in_a_chunk_that_can_hold_it(pieces: list[int], tokens: int) -> None:
    counts, how = apportion(pieces, tokens)
    assert sum(counts) == tokens
    assert min(counts) >= 0
    filled = [place for place, size in enumerate(pieces) if size]
    if how == ONE_EACH:
        assert max(counts) == 1
    elif filled:
        assert all(size or not count for size, count in zip(pieces, counts, strict=True))
        assert counts[filled[0]] > 0
        assert counts[filled[-1]] > 0 or tokens < 2
