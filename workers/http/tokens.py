"""Divides an answer's tokens over the chunks that brought them. Pure.

Chunks are never counted as tokens: a chunk may hold none, one or several. The number comes from the server's usage, or
from a tokenizer. Only then is it divided over the chunks' stamps:

- as many tokens as chunks with text: one each;
- one more, and the end came in a chunk of its own: the end-of-sequence token, which took a pass and has no text;
- else in proportion to the characters. The first and the last chunk's times are exact either way; which chunk held how
  many tokens is then an estimate, and marked so.
"""

from collections.abc import Sequence

ONE_EACH, APPORTIONED = "one_each", "apportioned"


def apportion(pieces: Sequence[int], tokens: int) -> tuple[list[int], str]:
    """Tokens for each stamp, and the method by which they were found.

    Args:
        pieces: characters that each stamp brought; 0: the end alone.
        tokens: all of the answer's, at least 1.

    Raises:
        ValueError: there is no stamp.
    """
    if not pieces:
        raise ValueError("no stamp for any token")
    texts = sum(size > 0 for size in pieces)
    if tokens == texts:
        return [int(size > 0) for size in pieces], ONE_EACH
    if tokens == texts + 1 and pieces[-1] == 0:
        return [1 if size or place == len(pieces) - 1 else 0 for place, size in enumerate(pieces)], ONE_EACH
    if not texts:
        return [0] * (len(pieces) - 1) + [tokens], APPORTIONED
    return _in_proportion(pieces, tokens), APPORTIONED


def _in_proportion(pieces: Sequence[int], tokens: int) -> list[int]:
    """Cumulative rounding, so that the sum is exact; the first and the last text get at least one token each."""
    total = sum(pieces)
    counts, seen, given = [], 0, 0
    for size in pieces:
        seen += size
        upto = (seen * tokens + total // 2) // total
        counts.append(upto - given)
        given = upto
    ends = _ends(pieces)
    for place in ends[:tokens]:
        if counts[place] == 0:
            middle = [each for each, count in enumerate(counts) if count > 0 and each not in ends]
            donors = middle or [each for each in ends if counts[each] > 0]
            counts[max(donors, key=lambda each: counts[each])] -= 1
            counts[place] += 1
    return counts


def _ends(pieces: Sequence[int]) -> list[int]:
    filled = [place for place, size in enumerate(pieces) if size]
    return [filled[0]] if len(filled) == 1 else [filled[0], filled[-1]]
