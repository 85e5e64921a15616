"""An operator who adopts a job of another scheduler and returns it, while replicas crash."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any

import psycopg

from tests.simulation.support.jobs import FUNCTION, s

if TYPE_CHECKING:
    from tests.simulation.support.clients import Client
    from tests.simulation.support.cluster import Cluster
    from tests.simulation.support.reports import OtherScheduler

MOVED = "moved"
AHEAD = 5.0
"""How far ahead a switch must be, in seconds."""
FIRST_RUNNER = "coalesce(e.attempts -> 0 ->> 'runner_id', e.runner_id)"
"""The runner of the first attempt. A client may retry an execution of the adopted job by hand, and
then a replica runs the next attempt."""


def make_moved(random: Random) -> dict[str, Any]:
    """Columns of an observed job that replicas can run. No client edits it."""
    return {
        "name": MOVED, "handler": "python", "target": {"python": FUNCTION}, "observed": True,
        "schedule": f"*/{random.choice((3, 4))} * * * * *",
        "overlap": random.choice(("skip", "wait", "replace")),
        "catch_up": random.choice(("skip", "latest")), "grace": s(random.choice((1, 2, 8))),
        "stale_timeout": s(3), "allow_stale_reentry": True, "max_attempts": 2,
        "retry_backoff": [s(0.5)], "run_timeout": s(random.choice((4, 20))), "queue": "default",
    }  # fmt: skip


@dataclass(frozen=True)
class Decision:
    """The switches that are known from `replied` on. The call of adopt began at `sent`."""

    sent: datetime
    replied: datetime
    adopted_at: datetime | None
    returned_at: datetime | None

    def is_own(self, at: datetime) -> bool:
        """Return whether replicas run what fires or starts at this instant."""
        adopted, returned = self.adopted_at, self.returned_at
        return adopted is not None and adopted <= at and (returned is None or at < returned)


class Mover:
    """Calls `adopt` repeatedly, and records which side each instant belongs to."""

    def __init__(self, cluster: "Cluster", client: "Client", columns: dict[str, Any]) -> None:
        self._cluster, self._client = cluster, client
        self._random = Random(f"mover {cluster.seed}")
        self._period = s(int(columns["schedule"].split()[0].removeprefix("*/")))
        self._decisions: list[Decision] = []

    async def live(self, until: float) -> None:
        back = False
        while self._cluster.loop.time() < until - AHEAD:
            await asyncio.sleep(self._random.uniform(0.0, 1.0))
            at = self._switch()
            if await self._adopt(at, back=back):
                if self._random.random() < 0.5:
                    around = (at - self._cluster.now()).total_seconds()
                    self._cluster.loop.after(
                        max(0.0, around + self._random.uniform(-1.5, 1.0)), self._crash
                    )
                back = not back
            # Sometimes the next switch is requested before this one happens.
            await asyncio.sleep(self._random.choice((0.5, 4.0, AHEAD)))

    def _plan_time(self, at: datetime) -> datetime:
        """Return the last plan_time up to this instant."""
        return at - (at - datetime(1970, 1, 1, tzinfo=UTC)) % self._period

    def _switch(self) -> datetime:
        """Return the middle between two plan_times, as `cronledger adopt` chooses it."""
        ahead = self._cluster.now() + s(AHEAD + 0.5)
        return self._plan_time(ahead) + self._period * 1.5

    async def _adopt(self, at: datetime, *, back: bool) -> bool:
        """Return whether the ledger accepted the switch."""
        sent = self._cluster.now()
        try:
            await self._client.execute(
                "SELECT cronledger.adopt(%s, %s, %s, 'sim')", MOVED, at, back
            )
        except psycopg.errors.ObjectNotInPrerequisiteState:
            return False
        except (psycopg.OperationalError, psycopg.errors.InvalidParameterValue):  # a leap
            await self._client.hang_up()
            return False
        row = self._cluster.database.eye.execute(
            "SELECT adopted_at, returned_at FROM jobs WHERE name = %s", (MOVED,)
        ).fetchone()
        assert row is not None
        self._decisions.append(Decision(sent, self._cluster.now(), *row))
        self._cluster.trace("decided", *row)
        return True

    def _crash(self) -> None:
        if self._cluster.faults.on and self._cluster.replicas:
            self._cluster.kill(self._random.choice(self._cluster.replicas).process)

    def _own(self, at: datetime) -> bool | None:
        """Return whether this instant belongs to replicas; None: `adopt` was in progress."""
        own = False
        for decision in self._decisions:
            if decision.sent <= at <= decision.replied:
                return None
            if decision.replied < at:
                own = decision.is_own(at)
        return own

    def judge(self, other: "OtherScheduler") -> None:
        """Check that each firing and each start was on its side.

        The first attempt counts: a retry by hand runs on a replica, whichever side fired.
        """
        if self._cluster.record.backwards:
            return  # an instant may have come twice
        for start, runs in other.replies:
            if self._own(start) is runs:
                self._cluster.wrong(f"what starts at {start} runs there: {runs}")
        for plan_time, observed in self._cluster.database.eye.execute(
            f"SELECT e.plan_time, coalesce({FIRST_RUNNER} = 'observed', false) FROM executions e"
            " WHERE job_name = %s AND trigger = 'schedule' UNION ALL"
            " SELECT unnest(ARRAY[from_plan_time, through_plan_time]), reason = 'not_reported'"
            " FROM skips WHERE job_name = %s AND reason NOT IN ('paused')", (MOVED, MOVED),
        ):  # fmt: skip
            if self._own(plan_time) is observed:
                self._cluster.wrong(f"{MOVED} {plan_time} is on the wrong side")
        ran = {span.key.plan_time for span in self._cluster.record.spans
               if span.key.job_name == MOVED and span.attempt == 1}  # fmt: skip
        for run in other.runs:
            fired = self._plan_time(run.started_at)
            if run.started_at - fired < self._period / 2 and fired in ran:
                self._cluster.wrong(f"{MOVED} {fired} ran on both sides")
