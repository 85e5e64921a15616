"""Announcements of people and programs that are interested in an execution.

`wait N`: a program waits for the end of execution N (`Client.wait`). `follow N`: somebody follows
its output. Only what is announced is notified or written at once, because each COMMIT with a NOTIFY
takes one lock of the server, and each chunk of output is a statement.
"""

from collections.abc import Iterable
from time import monotonic

REMEMBERED_SECONDS = 90.0
"""How long an announcement holds. `wait` repeats it more often (`ledger.ends.ANNOUNCE_SECONDS`)."""
FOLLOW_SECONDS = 30.0
"""The same for `follow`, which is repeated every `ledger.following.ANNOUNCE_SECONDS`."""
MOST_REMEMBERED = 100_000
LONGEST_ID = 19
"""Limits of what is remembered, because whoever can connect may send announcements."""


class Awaited:
    """The executions whose announcement still holds. `verb`: the first word of an announcement.

    It is incomplete, because a replica may miss announcements. `wait` and `follow` poll as well.
    """

    def __init__(self, verb: str = "wait", seconds: float = REMEMBERED_SECONDS) -> None:
        self._prefix = f"{verb} "  # as in sql/call_announce_wait.sql
        self._seconds = seconds
        self._until: dict[str, float] = {}  # by execution id, the oldest announcement first

    def note(self, payload: str) -> bool:
        """Remember the announcement in a notification. Return False if it contains none."""
        if not payload.startswith(self._prefix):
            return False
        now, execution_id = monotonic(), payload.removeprefix(self._prefix)
        if len(execution_id) > LONGEST_ID:
            return True
        self._until.pop(execution_id, None)
        self._until[execution_id] = now + self._seconds
        while len(self._until) > MOST_REMEMBERED or next(iter(self._until.values())) < now:
            del self._until[next(iter(self._until))]
        return True

    def among(self, execution_ids: Iterable[int]) -> list[int]:
        """Return those of these executions that are awaited."""
        if not self._until:
            return []
        now = monotonic()
        return [one for one in execution_ids if self._until.get(str(one), now) > now]
