"""Scope providers: python functions that answer which scopes a job has. The seed changes the set
with time, and makes them raise or hang."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any
from unittest import mock

from cronledger.engine.maintenance import scope_providers
from cronledger.rules.model import Job
from tests.simulation.support.flapping import PROVIDED
from tests.simulation.support.jobs import SCOPES, is_provided
from tests.simulation.support.loop import LANE, Process

if TYPE_CHECKING:
    from tests.simulation.support.cluster import Cluster

EVERY_SECONDS = 3.0
PATIENCE_SECONDS = 1.5
SET_LASTS = 5.0
FLAP_LASTS = 0.5
Provider = Callable[[], Awaitable[list[str]]]


@contextmanager
def hurried_providers() -> Iterator[None]:
    """They are asked as often as a simulation is shorter than a day."""
    with mock.patch.multiple(
        scope_providers, EVERY_SECONDS=EVERY_SECONDS, PATIENCE_SECONDS=PATIENCE_SECONDS
    ):
        yield


class Providers:
    """All providers of a simulation: what they answered, and what the ledger made of it."""

    def __init__(self, cluster: "Cluster", jobs: list[dict[str, Any]]) -> None:
        self._cluster = cluster
        self.jobs = {x["name"]: Job.model_validate(x) for x in jobs if is_provided(x)}
        self._may_be: dict[str, list[set[str]]] = {name: [set()] for name in self.jobs}
        self._asked: dict[tuple[Process, str], float] = {}
        self._bad: Counter[tuple[Process, str]] = Counter()
        self.pushed: defaultdict[str, set[str]] = defaultdict(set)

    def of_replica(self) -> dict[str, tuple[Job, Provider]]:
        """What the replica asks; each has Jobs of its own, as each process has."""
        jobs = self.jobs.items()
        return {name: (job.model_copy(), partial(self._ask, name)) for name, job in jobs}

    async def _ask(self, name: str) -> list[str]:
        lane = LANE.get()
        assert lane is not None
        if self._has_turn(lane.process):
            self._look(name)
        elif not self._disturbed():
            self._cluster.wrong(f"{name} is called out of turn")
        loop, seed = self._cluster.loop, self._cluster.seed
        self._asked[lane.process, name] = loop.time()
        random = Random(f"provider {seed} {name} {loop.time()}")
        await asyncio.sleep(random.choice((0.0, 0.01, 0.4)))
        if self._cluster.faults.on and random.random() < 0.3:
            self._bad[lane.process, name] += 1
            self._cluster.trace("provider", name, "raises")
            await asyncio.sleep(random.choice((0.0, 60.0)))  # the latter is not waited for
            raise ConnectionError("whoever knows the scopes does not answer")
        answer = self.now(name)
        self._may_be[name].append(answer)
        self._cluster.trace("provider", name, "answers", sorted(answer))
        return sorted(answer)

    def now(self, name: str) -> set[str]:
        """Which scopes there are, whoever asks."""
        time = 0.0 if self._cluster.settling else self._cluster.loop.time()
        lasts = FLAP_LASTS if name == PROVIDED else SET_LASTS
        random = Random(f"scopes {self._cluster.seed} {name} {time // lasts}")
        return {x for x in SCOPES if random.random() < 0.5}

    def expected(self, name: str) -> bool:
        """Whether the process that complains was given a reason to, once for each; or it stood
        still while it waited, and the wait was over when it went on."""
        lane = LANE.get()
        assert lane is not None
        key = lane.process, name
        if self._bad[key]:
            self._bad[key] -= 1
            return True
        asked = self._asked.get(key)
        return asked is not None and lane.process.resumed_at >= asked

    def _live(self, name: str) -> set[str]:
        rows = self._cluster.database.eye.execute(
            "SELECT scope_id FROM schedules WHERE job_name = %s"
            " AND (retired_at IS NULL OR returned_at IS NOT NULL)", (name,),
        ).fetchall()  # fmt: skip
        return {row[0] for row in rows}

    def _has_turn(self, process: Process) -> bool:
        """Whether its transaction is still there. Who stood still may have lost it."""
        held = self._cluster.database.eye.execute(
            "SELECT l.pid FROM turns t JOIN pg_locks l ON l.transactionid = t.xmax AND l.granted"
            " WHERE l.locktype = 'transactionid' AND t.step LIKE 'scopes of %'"
        ).fetchall()
        return not self._cluster.pids_of(process).isdisjoint(pid for (pid,) in held)

    def _disturbed(self) -> bool:
        """Whether a transaction may have been lost in this seed."""
        cluster = self._cluster
        return bool(cluster.faults.counts or cluster.elsewhere.began or cluster.chance.stalls)

    def _look(self, name: str) -> None:
        """Its turn begins, so nobody else is at it: what the ledger has is what some answer said
        since the last look, or what it had then; and what was pushed."""
        live, pushed = self._live(name), self.pushed[name]
        if not any(set_ <= live and live - set_ <= pushed for set_ in self._may_be[name]):
            self._cluster.wrong(
                f"the scopes of {name} are {sorted(live)}; its provider has answered"
                f" {[sorted(x) for x in self._may_be[name]]}"
            )
        self._may_be[name] = [live]

    def unsettled(self) -> list[str]:
        """Jobs whose scopes are not what their providers say, though nothing hinders it."""
        return [
            f"the scopes of {name} are {sorted(live)}, its provider says {sorted(self.now(name))}"
            for name in self.jobs
            if (live := self._live(name)) != self.now(name)
        ]
