"""What goes wrong, and when: drawn from the seed, at statements and at random instants."""

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.network import Connection
    from tests.simulation.request import Request

Fate = Literal["answer", "silence"]
BEFORE = ("kill_before", "cut_before", "stop", "block", "commit_lost")
AFTER = ("kill_after", "cut_after", "silence", "stop_after")
KINDS = (*BEFORE, *AFTER, "outage", "leap", "leap_back", "drain")
MOST_FAULTS = 8


class Chance:
    """How long things take. One in a while takes very long: that is where races are."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self._slow = random.choice((0.0, 0.02, 0.08))
        self._stalls = random.choice((0.0, 0.0, 0.01))

    def way(self) -> float:
        """Between client and server."""
        draw = self.random.random()
        if draw < self._stalls:
            return self.random.uniform(0.5, 4.0)
        if draw < self._stalls + self._slow:
            return self.random.uniform(0.01, 0.3)
        return self.random.uniform(0.0001, 0.002)

    def gap(self) -> float:
        """Between two statements of one pipeline."""
        draw = self.random.random()
        if draw < self._stalls / 2:
            return self.random.uniform(0.1, 2.0)
        if draw < self._slow:
            return self.random.uniform(0.001, 0.05)
        return self.random.uniform(0.00002, 0.0003)

    def notice(self) -> float:
        """Until the server notices that a client is gone."""
        if self.random.random() < 0.7:
            return 0.0
        return self.random.uniform(0.001, 6.0)

    def pause(self, low: float, high: float) -> float:
        return self.random.uniform(low, high)


@dataclass(frozen=True)
class Profile:
    """Which faults a seed has, and how often one of them hits a statement."""

    kinds: frozenset[str]
    rate: float

    @classmethod
    def draw(cls, random: Random) -> "Profile":
        if random.random() < 0.1:
            return cls(frozenset(), 0.0)
        kinds = [kind for kind in KINDS if random.random() < 0.55]
        return cls(frozenset(kinds), random.choice((0.008, 0.02, 0.04)))


class Faults:
    """Strikes at statements of replicas, while it is `on`."""

    def __init__(self, cluster: "Cluster", random: Random, profile: Profile) -> None:
        self._cluster = cluster
        self._random = random
        self._profile = profile
        self.counts: Counter[str] = Counter()
        self.on = False

    def enabled(self, kind: str) -> bool:
        return kind in self._profile.kinds

    def _draw(self, kinds: tuple[str, ...], connection: "Connection") -> str | None:
        if not self.on or connection.process.name.startswith("client"):
            return None
        if not connection.process.alive or connection.closed:
            return None
        if self.counts.total() >= MOST_FAULTS:
            return None
        # Where handlers run there is something to lose.
        busy = any(span.process is connection.process for span in self._cluster.record.alive)
        if self._random.random() >= self._profile.rate * (2.5 if busy else 0.4):
            return None
        possible = [kind for kind in kinds if self.enabled(kind)]
        return self._random.choice(possible) if possible else None

    def struck(self, kind: str, what: str) -> None:
        self.counts[kind] += 1
        self._cluster.trace("fault", kind, what)

    def before(self, connection: "Connection", request: "Request") -> None:
        """A statement has reached the server."""
        kind = self._draw(BEFORE, connection)
        if kind is None or (kind == "commit_lost" and request.label != "COMMIT"):
            return
        process = connection.process
        self.struck(kind, f"{process.name} {request.label}")
        match kind:
            case "kill_before":
                self._cluster.kill(process)
            case "cut_before":
                connection.session.break_off("the connection was cut")
                connection.session.end()
            case "commit_lost":
                later = self._cluster.chance.notice()
                lands = self._random.random() < 0.7
                connection.session.break_in_commit(later, lands=lands)
            case _:
                self._stop(connection, whole=kind == "stop")

    def after(self, connection: "Connection", request: "Request") -> Fate:
        """A statement has ended, and its answer is on its way."""
        kind = self._draw(AFTER, connection)
        if kind is None:
            return "answer"
        process = connection.process
        self.struck(kind, f"{process.name} {request.label}")
        match kind:
            case "kill_after":
                self._cluster.kill(process)
            case "cut_after":
                connection.session.break_off("the connection was cut")
            case "silence":
                session = connection.session
                self._cluster.loop.after(12.0, session.break_off, "timed out")
                return "silence"
            case _:
                self._stop(connection, whole=True)
        return "answer"

    def _stop(self, connection: "Connection", *, whole: bool) -> None:
        """SIGSTOP, mostly past the lease; or a handler that blocks the main thread."""
        process = connection.process
        seconds = self._random.choice((0.3, 3.5, 5.0, 8.0, 12.0)) * self._random.uniform(0.8, 1.2)
        if whole:
            process.stop()
        else:
            process.stop(process.main)
        self._cluster.loop.after(seconds, self._cluster.resume, process)
