"""Lease tokens that a runner mints for its claims, before it knows how many it will need."""

from collections.abc import Collection
from uuid import UUID, uuid4

FEW = 50
"""Sent with a claim while few are used: five hundred cost an idle claim half of its time."""


class Tokens:
    """A stock of tokens that were never used. A token that was is never given out again."""

    def __init__(self) -> None:
        self._unused: list[UUID] = []
        self._literal = "{}"
        self._used_up = False
        self.offered = 0

    def offer(self, most: int) -> str:
        """At most `most` tokens as an array literal; all of them only after a claim that used up
        what it was offered. Made once for many claims, most of which use none."""
        count = most if self._used_up else min(most, FEW)
        if self.offered != count:
            self._unused.extend(uuid4() for _ in range(count - len(self._unused)))
            self._literal = "{" + ",".join(map(str, self._unused[:count])) + "}"
            self.offered = count
        return self._literal

    def spend(self, used: Collection[UUID]) -> None:
        """What a claim used of the last offer, whatever becomes of the claim."""
        self._used_up = len(used) == self.offered
        if used:
            self._unused = [token for token in self._unused if token not in used]
            self.offered = 0
