"""The executions that programs wait for, as the notifications of `Client.wait` name them.

Only their ends are notified, because every COMMIT with a NOTIFY takes one lock of the server.
"""

from collections.abc import Iterable
from time import monotonic

REMEMBERED_SECONDS = 90.0
"""How long an announcement holds. `wait` repeats it more often (`ledger.ends.ANNOUNCE_SECONDS`)."""
MOST_REMEMBERED = 100_000
LONGEST_ID = 19
"""Limits of what is remembered, because whoever can connect may send announcements."""
_ANNOUNCEMENT = "wait "  # as in sql/call_announce_wait.sql


class Awaited:
    """The executions whose announcement still holds.

    It is incomplete, because a replica may miss announcements. `wait` polls as well.
    """

    def __init__(self) -> None:
        self._until: dict[str, float] = {}  # by execution id, the oldest announcement first

    def note(self, payload: str) -> bool:
        """Remember the announcement in a notification. Return False if it contains none."""
        if not payload.startswith(_ANNOUNCEMENT):
            return False
        now, execution_id = monotonic(), payload.removeprefix(_ANNOUNCEMENT)
        if len(execution_id) > LONGEST_ID:
            return True
        self._until.pop(execution_id, None)
        self._until[execution_id] = now + REMEMBERED_SECONDS
        while len(self._until) > MOST_REMEMBERED or next(iter(self._until.values())) < now:
            del self._until[next(iter(self._until))]
        return True

    def among(self, execution_ids: Iterable[int]) -> list[int]:
        """Return those of these executions that are awaited."""
        if not self._until:
            return []
        now = monotonic()
        return [one for one in execution_ids if self._until.get(str(one), now) > now]
