"""The low-water mark of the due schedules."""

from collections.abc import Collection
from datetime import datetime


class LowWater:
    """The instant before which a runner has seen no due schedule, so that it searches from there.

    A search from the beginning reads an index entry for each earlier firing as long as a session
    that is idle in a transaction prevents their removal.

    A schedule may become due before the mark: another transaction re-arms it, or a queue is
    resumed. Whoever learns of that calls `forget`. Every 30 s a check-in searches everything, and
    finds what nobody has reported.
    """

    def __init__(self) -> None:
        self._instant: datetime | None = None
        self._left_out: frozenset[str] = frozenset()
        self._is_current = True

    def instant(self, left_out: Collection[str]) -> datetime | None:
        """Return the mark for a search that leaves out the schedules of these jobs.

        None: it has to search everything, also because an earlier search left out a job that this
        one does not.
        """
        return self._instant if self._left_out.issubset(left_out) else None

    def begin(self, left_out: Collection[str]) -> datetime | None:
        """Begin a claim that leaves out the schedules of these jobs, and return the mark for it."""
        self._is_current = True
        return self.instant(left_out)

    def rise(self, first_due: datetime | None, left_out: Collection[str]) -> None:
        """Note the first due schedule at the end of a committed claim; None: there is none.

        Without effect if `forget` was called since the claim began.
        """
        if self._is_current:
            self._instant, self._left_out = first_due, frozenset(left_out)

    def forget(self) -> None:
        """Search everything, from the next claim on."""
        self._instant = None
        self._is_current = False
