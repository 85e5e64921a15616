"""What goes wrong, and when: drawn from the seed, at statements and at random instants."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Literal

from tests.simulation.support.loop import LANE, Process

if TYPE_CHECKING:
    from tests.simulation.support.cluster import Cluster
    from tests.simulation.support.network import Connection
    from tests.simulation.support.request import Request

Fate = Literal["answer", "silence"]
BEFORE = ("kill_before", "cut_before", "stop", "block", "commit_lost")
AFTER = ("kill_after", "cut_after", "silence", "stop_after")
KINDS = (*BEFORE, *AFTER, "outage", "leap", "leap_back", "drain")
MOST_FAULTS = 8


class Chance:
    """How long things take. One in a while takes very long: that is where races are."""

    def __init__(self, random: Random, seed: int) -> None:
        self.random = random
        self._dawdles = Random(f"dawdle {seed}")
        self._places = Random(f"place {seed}")
        self._slow = random.choice((0.0, 0.02, 0.08))
        self._stalls = random.choice((0.0, 0.0, 0.01))
        self._ragged = random.choice((0.0, 0.0, 0.0, 0.3))  # statements of two pipelines mix
        self._calm = False
        self.stalls: list[tuple[Process | None, float, float]] = []

    def rag(self) -> None:
        """Statements of two pipelines mix for certain."""
        self._ragged = 0.3

    def settle_down(self) -> None:
        """No statement takes long any more."""
        self._slow = self._stalls = self._ragged = 0.0
        self._calm = True

    def way(self, process: Process | None = None) -> float:
        """Between client and server, of this process or that of the context."""
        draw = self.random.random()
        if draw < self._stalls:
            return self._stalled(self.random.uniform(0.5, 4.0), process)
        if draw < self._stalls + self._slow:
            return self.random.uniform(0.01, 0.3)
        return self.random.uniform(0.0001, 0.002)

    def gap(self, process: Process) -> float:
        """Between two statements of one pipeline."""
        draw = self.random.random()
        if draw < self._stalls / 2:
            return self._stalled(self.random.uniform(0.1, 2.0), process)
        if draw < max(self._slow, self._ragged):
            return self.random.uniform(0.001, 0.05)
        return self.random.uniform(0.00002, 0.0003)

    def dawdle(self, request: "Request") -> float:
        """Before a claim writes: others may start what it has counted. Above all before it writes
        that something has to wait: what it waits for may end now."""
        if request.label == "try_claim_new" and not self._calm:
            return self.interruption() if self._places.random() < 0.2 else 0.0
        if request.label != "advance_schedules" or "waiting" not in request.params["parked"]:
            return 0.0
        return self._dawdles.uniform(0.02, 0.25) if self._dawdles.random() < 0.3 else 0.0

    def place(self, request: "Request", places: Sequence[str]) -> str:
        """Where a claim is interrupted between the statements of a function; mostly nowhere.

        Otherwise a claim would lock and count at one instant, and few claims would ever meet.
        """
        if request.label != "claim_look" or self._calm or self._places.random() >= 0.3:
            return ""
        look = [place for place in places if place.startswith(request.label)]
        return self._places.choice(self._places.choice((look, places)))

    def interruption(self) -> float:
        """For how long a claim is interrupted there."""
        return self._places.uniform(0.0005, self._places.choice((0.02, 0.25)))

    def _stalled(self, seconds: float, process: Process | None) -> float:
        now, lane = asyncio.get_running_loop().time(), LANE.get()
        process = lane.process if process is None and lane is not None else process
        self.stalls.append((process, now, now + seconds))
        return seconds

    def notice(self) -> float:
        """Until the server notices that a client is gone."""
        if self.random.random() < 0.7:
            return 0.0
        return self.random.uniform(0.001, 6.0)

    def pause(self, low: float, high: float) -> float:
        return self.random.uniform(low, high)


@dataclass(frozen=True)
class Profile:
    """Which faults a seed has, and how often one of them hits a statement. `reads`: how much
    more or less where nothing is written."""

    kinds: frozenset[str]
    rate: float
    reads: float

    @classmethod
    def draw(cls, random: Random) -> "Profile":
        if random.random() < 0.1:
            return cls(frozenset(), 0.0, 0.0)
        # Few kinds show what many would hide: what one does is mended after the next.
        share = random.choice((0.15, 0.3, 0.55))
        kinds = [kind for kind in KINDS if random.random() < share]
        rate = random.choice((0.008, 0.02, 0.04))
        # Spread over all statements they leave little for where all is decided; and the reverse.
        return cls(frozenset(kinds), rate, random.choice((0.1, 0.5)))


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

    def _draw(
        self, kinds: tuple[str, ...], connection: "Connection", *, commits: bool = False
    ) -> str | None:
        if not self.on or connection.process.name.startswith("client"):
            return None
        if not connection.process.alive or connection.closed:
            return None
        if self.counts.total() >= MOST_FAULTS:
            return None
        if self._random.random() >= self._profile.rate * self._weight(connection, commits=commits):
            return None
        possible = [kind for kind in kinds if self.enabled(kind)]
        if not commits and "commit_lost" in possible:
            possible.remove("commit_lost")
        elif "commit_lost" in possible and self._random.random() < 0.6:
            return "commit_lost"
        return self._random.choice(possible) if possible else None

    def _weight(self, connection: "Connection", *, commits: bool) -> float:
        """How much there is to lose."""
        if connection.name == "cronledger transaction":
            return 8.0
        if connection.session.writes:
            return 16.0 if commits else 2.5
        busy = any(span.process is connection.process for span in self._cluster.record.alive)
        return self._profile.reads * (5.0 if busy else 1.0)

    def struck(self, kind: str, what: str) -> None:
        self.counts[kind] += 1
        self._cluster.trace("fault", kind, what)

    def before(self, connection: "Connection", request: "Request") -> None:
        """A statement has reached the server."""
        commits = request.label == "COMMIT"
        kind = self._draw(BEFORE, connection, commits=commits)
        if commits and self._spoils_effects(connection):
            kind = "commit_lost"
        if kind is None:
            return
        process, calm = connection.process, self._cluster.calm
        self.struck(kind, f"{process.name} {request.label}")
        match kind:
            case "kill_before":
                self._cluster.kill(process)
            case "cut_before":
                calm.disturb(process, 1.0)
                connection.session.break_off("the connection was cut")
                connection.session.end()
            case "commit_lost":
                later = self._random.uniform(0.15, self._random.choice((1.5, 6.0)))
                later *= self._random.random() < 0.6
                lands = self._random.random() < 0.7
                connection.session.break_in_commit(later, lands=lands)
            case _:
                self._stop(connection, whole=kind == "stop")

    def _spoils_effects(self, connection: "Connection") -> bool:
        """The COMMIT of a handler's transaction is rare, and where all is decided."""
        if connection.name != "cronledger transaction" or not self.on or not self._profile.kinds:
            return False
        return not connection.closed and self._random.random() < 0.4

    def after(self, connection: "Connection", request: "Request") -> Fate:
        """A statement has ended, and its answer is on its way."""
        kind = self._draw(AFTER, connection)
        if kind is None:
            return "answer"
        process, calm = connection.process, self._cluster.calm
        self.struck(kind, f"{process.name} {request.label}")
        match kind:
            case "kill_after":
                self._cluster.kill(process)
            case "cut_after":
                calm.disturb(process, 1.0)
                connection.session.break_off("the connection was cut")
            case "silence":
                session = connection.session
                calm.disturb(process, 13.0)
                self._cluster.loop.after(12.0, session.break_off, "timed out")
                return "silence"
            case _:
                self._stop(connection, whole=True)
        return "answer"

    def _stop(self, connection: "Connection", *, whole: bool) -> None:
        """SIGSTOP, mostly past the lease; or a handler that blocks the main thread."""
        process = connection.process
        seconds = self._random.choice((0.3, 3.5, 5.0, 8.0, 12.0)) * self._random.uniform(0.8, 1.2)
        self._cluster.calm.disturb(process, seconds + 0.5)
        if whole:
            process.stop()
        else:
            process.stop(process.main)
        self._cluster.loop.after(seconds, self._cluster.resume, process)
