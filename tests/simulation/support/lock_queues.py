"""Who waits for a lock, and who goes on first when it is released.

Of several that wait for one lock PostgreSQL lets one go first by the real time at which its process
wakes. So where it can be, only one waits in the server: the statement of another one, if nothing
was done before it in its transaction, is taken back, as if it were still on its way there.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.support.cluster import Cluster
    from tests.simulation.support.session import Session


class Turns:
    """All sessions of a cluster whose statements wait for locks."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._waiting: list[Session] = []
        self._to_come: list[Session] = []  # when nobody waits

    def wait(self, session: "Session", label: str) -> None:
        """This session's statement waits for a lock."""
        self._cluster.waits += 1
        self._cluster.trace("waits", session.who, label)
        self._waiting.append(session)
        for each in self._waiting[::-1]:
            if len(self._waiting) > 1 and each.take_back():
                self._waiting.remove(each)
                self._to_come.append(each)

    def leave(self, session: "Session") -> None:
        """It waits no more, whatever for."""
        for sessions in (self._waiting, self._to_come):
            if session in sessions:
                sessions.remove(session)

    def is_to_come(self, session: "Session") -> bool:
        """Whether its statement was taken back."""
        return session in self._to_come

    def released(self) -> None:
        """Locks were released: who waited for them goes on."""
        for session in tuple(self._waiting):
            if session in self._waiting:
                session.unblocked()
        if self._to_come and not self._waiting:
            self._cluster.loop.after(0.0, self._next)

    def _next(self) -> None:
        while self._to_come and not self._waiting:
            self._to_come.pop(0).go_on()
