"""`wait`: polls soon at first, then rarer, and as soon as a replica notifies it of the end.

A poll reads the state of the execution, and a notification only makes a poll come sooner. So no
end is missed, whatever becomes of the notification.
"""

import time
from collections.abc import Callable

from cronledger.ledger import calls
from cronledger.ledger.blocking import result
from cronledger.ledger.senders import AsyncSender, Sender
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

    @property
    def waited(self) -> float:
        """The seconds since the wait has begun."""
        return time.monotonic() - self._start

    def pause(self, found: Execution) -> float:
        """Return the seconds until the next poll, after a poll that has `found` no end.

        Raises TimeoutError when the time is over.
        """
        waited = self.waited
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


async def poll(
    sender: Sender | AsyncSender,
    execution_id: int,
    seconds: float | None,
    seen: Callable[[Execution], bool],
) -> Execution:
    """Return what the first poll reads for which `seen` returns True.

    Raises TimeoutError after `seconds` (None: no limit), and what `sender` raises.
    """
    sender.require_no_transaction()
    patience, read = Patience(seconds), calls.execution(execution_id)
    with sender.awaiting(execution_id) as pauses:
        while not seen(found := await result(sender.send(read))):
            pause = patience.pause(found)
            if pauses.announces(patience.waited):
                # In a transaction before the poll: it may end before the replicas know of the wait.
                await result(sender.send(calls.announce_wait(execution_id)))
            else:
                await result(pauses.pause(pause))
    return found


async def wait(
    sender: Sender | AsyncSender,
    execution_id: int,
    timeout: float | None = None,  # noqa: ASYNC109 - its error names the execution
) -> Execution:
    """Wait until an execution has ended and is not retried automatically, and return it.

    The client polls. The pause between two polls is a tenth of the time already waited, at most a
    second. After 0.1 s, a client with a url also LISTENs, and the replica that ends the execution
    notifies it. `timeout`: in seconds; None: no limit.

    Raises TimeoutError, which names the execution, and RuntimeError inside a transaction of the
    caller, where the end could never be seen.
    """
    return await poll(sender, execution_id, timeout, lambda found: found.ended)
