"""Lease tokens that a runner mints for its claims, before it knows how many it will need."""

from collections.abc import Collection
from uuid import UUID, uuid4

FEW = 50
"""The number of tokens that a claim sends while few are used. Sending 500 would double the time of
a claim that finds nothing due."""


class Tokens:
    """A stock of unused tokens. A token that was used is never offered again."""

    def __init__(self) -> None:
        self._unused: list[UUID] = []
        self._literal = "{}"
        self._used_up = False
        self.offered = 0

    def offer(self, most: int) -> str:
        """Return at most `most` tokens as an array literal.

        Returns all of them only after a claim that used everything it was offered. Most claims use
        none, so the literal is kept for the next claim.
        """
        count = most if self._used_up else min(most, FEW)
        if self.offered != count:
            self._unused.extend(uuid4() for _ in range(count - len(self._unused)))
            self._literal = "{" + ",".join(map(str, self._unused[:count])) + "}"
            self.offered = count
        return self._literal

    def spend(self, used: Collection[UUID]) -> None:
        """Remove the tokens that a claim has used, whether or not the claim commits."""
        self._used_up = len(used) == self.offered
        if used:
            self._unused = [token for token in self._unused if token not in used]
            self.offered = 0
