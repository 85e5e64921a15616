"""The polls of `wait`: soon at first, then rarer, until the execution has ended.

A poll reads the state of the execution, so no end is missed. The ledger sends no notification at
the end of an execution, because each finish would pay for it.
"""

import time
from collections.abc import Callable, Iterator

from cronledger.ledger.values import Execution

FIRST_SECONDS = 0.01
LONGEST_SECONDS = 1.0
SHARE = 0.1
"""The pause between two polls, as a share of the time that was already waited."""


class Patience:
    """The time that one `wait` has begun, and has left. `timeout`: in seconds; None: no limit."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._start = time.monotonic()

    def pause(self, found: Execution) -> float:
        """Return the seconds until the next poll, after a poll that has `found` no end.

        Raises TimeoutError when the time is over.
        """
        waited = time.monotonic() - self._start
        pause = min(max(FIRST_SECONDS, waited * SHARE), LONGEST_SECONDS)
        if self._timeout is None:
            return pause
        if waited >= self._timeout:
            raise TimeoutError(
                f"execution {found.id} of job {found.job!r} has not ended within"
                f" {self._timeout:g} s: it is {found.status}; it is not affected, so wait for it"
                " again, or cancel it"
            )
        return min(pause, self._timeout - waited)


def polls(read: Callable[[], Execution], timeout: float | None) -> Iterator[Execution]:
    """Yield what each poll reads. The last one has ended. Raises TimeoutError, and what `read`
    raises.
    """
    patience = Patience(timeout)
    while True:
        found = read()
        yield found
        if found.ended:
            return
        time.sleep(patience.pause(found))
