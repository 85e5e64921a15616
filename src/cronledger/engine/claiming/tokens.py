"""Lease tokens that a runner creates before it knows how many its claim will use."""

from collections.abc import Collection, Iterator
from itertools import islice
from os import urandom
from typing import NamedTuple
from uuid import UUID

FEW = 50
"""The number of tokens that a claim sends while few are used. Sending 500 would double the time of
a claim that finds nothing due."""


TOKEN_BYTES = 16
AT_ONCE = 64


def fresh_tokens() -> Iterator[UUID]:
    """Yield new tokens without end. One call of the operating system serves many of them."""
    while True:
        drawn = urandom(TOKEN_BYTES * AT_ONCE)
        for at in range(0, len(drawn), TOKEN_BYTES):
            yield UUID(bytes=drawn[at : at + TOKEN_BYTES], version=4)


class Offer(NamedTuple):
    """The tokens that one claim may use: an array literal of `size` elements."""

    literal: str
    size: int


class Tokens:
    """A stock of unused tokens. A token that was used is never offered again."""

    def __init__(self) -> None:
        self._unused: list[UUID] = []
        self._used_up = False
        self._offer = Offer("{}", 0)

    def offer(self, most: int) -> Offer:
        """Return at most `most` tokens.

        The result has `most` tokens only after a claim that used its whole offer. An unused offer
        is kept for the next claim, because most claims use no token.
        """
        count = most if self._used_up else min(most, FEW)
        if self._offer.size != count:
            self._unused.extend(islice(fresh_tokens(), max(0, count - len(self._unused))))
            self._offer = Offer("{" + ",".join(map(str, self._unused[:count])) + "}", count)
        return self._offer

    def spend(self, used: Collection[UUID]) -> None:
        """Remove the tokens that a claim has used, whether or not the claim commits."""
        self._used_up = len(used) == self._offer.size
        if used:
            self._unused = [token for token in self._unused if token not in used]
            self._offer = Offer("{}", 0)
