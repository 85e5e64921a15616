"""Another scheduler, which fires observed jobs and reports their runs, some of them late.

It knows the schedule, and now and then it fires too early, late, twice or not at all. A report
takes one of the ways of `cronledger observe`: at the start and at the end of the run, or from a
spool, later, in another order, twice, and with the instants of the run.
"""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING, Any

import psycopg

from tests.simulation.support.adoption import FIRST_RUNNER, MOVED, make_moved
from tests.simulation.support.jobs import s

if TYPE_CHECKING:
    from tests.simulation.support.clients import Client
    from tests.simulation.support.cluster import Cluster

OBSERVED = ("seen", "spooled")
_SPOOLED = {"seen": 0.2, "spooled": 0.8, MOVED: 0.5}
"""The share of runs whose reports are delivered later."""


def make_observed(random: Random) -> list[dict[str, Any]]:
    """Columns of observed jobs. No client edits them."""
    observed: list[dict[str, Any]] = [
        {
            "name": name, "handler": "observed", "target": {},
            "schedule": f"*/{random.choice((3, 4, 10))} * * * * *",
            "grace": s(random.choice((1, 2, 8))), "run_timeout": s(random.choice((4, 20))),
            "queue": random.choice(("default", "narrow")),
        }
        for name in OBSERVED
    ]  # fmt: skip
    return [*observed, make_moved(random)]


@dataclass(eq=False)
class Run:
    """One run. `ended_at` None: its wrapper dies before its end."""

    job: str
    key: str
    started_at: datetime
    ended_at: datetime | None
    exit_status: int
    started: bool = False
    ended: bool = False
    refused: bool = False


class OtherScheduler:
    """Fires one observed job."""

    def __init__(self, cluster: "Cluster", client: "Client", columns: dict[str, Any]) -> None:
        self._cluster, self._client = cluster, client
        self._job = columns["name"]
        self._random = Random(f"reports {cluster.seed} {self._job}")
        self._period = int(columns["schedule"].split()[0].removeprefix("*/"))
        self._spool: list[Run] = []
        self.runs: list[Run] = []
        self.replies: list[tuple[datetime, bool]] = []

    async def live(self, until: float) -> None:
        """Fire until then, and deliver what is left in the spool."""
        while self._cluster.loop.time() < until:
            await self._wait()
            for _ in range(self._random.choice((0, 1, 1, 1, 1, 2))):
                await self._run()
            if self._random.random() < 0.3:
                await self._deliver()
        await self._deliver()

    async def _wait(self) -> None:
        """Wait until a little before, at, or after the next plan_time."""
        now = self._cluster.now()
        seconds = now.second + now.microsecond / 1e6
        to_come = self._period - seconds % self._period
        late = self._random.choice((-0.2, 0.0, 0.01, 0.3, 1.5))
        await asyncio.sleep(max(0.01, to_come + late))

    async def _run(self) -> None:
        start = self._cluster.now()
        if self._job == MOVED and not await self._runs_here(start):
            return
        lasts = self._random.choice((0.0, 0.2, 1.0))
        lost = self._random.random() < 0.1
        run = Run(
            self._job, f"{self._job} {len(self.runs)}", start,
            None if lost else start + s(lasts), self._random.choice((0, 0, 0, 3)),
        )  # fmt: skip
        self.runs.append(run)
        if self._random.random() < _SPOOLED[self._job]:
            self._spool.append(run)
            return
        await self._report(run, start=True)
        await asyncio.sleep(lasts)
        if not lost:
            await self._report(run, start=False)

    async def _runs_here(self, start: datetime) -> bool:
        """Ask the ledger which side runs what starts now."""
        ((runs,),) = await self._client.execute(
            "SELECT runs FROM cronledger.hand_over(%s, %s)", self._job, start
        )
        self.replies.append((start, runs))
        return bool(runs)

    async def _deliver(self) -> None:
        """Empty the spool in any order. Some reports are delivered twice."""
        spool, self._spool = self._spool, []
        self._random.shuffle(spool)
        for run in spool:
            for _ in range(self._random.choice((1, 1, 2))):
                if run.ended_at is None or self._random.random() < 0.5:
                    await self._report(run, start=True)
                if run.ended_at is not None:
                    await self._report(run, start=False)

    async def _report(self, run: Run, *, start: bool) -> None:
        """Report until the ledger has it or refuses it."""
        while True:
            try:
                await (self._send_start(run) if start else self._send_end(run))
                return
            except psycopg.errors.InvalidParameterValue:  # in the future: the clock went back
                run.refused = True
                return
            except (psycopg.OperationalError, psycopg.errors.ObjectNotInPrerequisiteState):
                await self._client.hang_up()
                await asyncio.sleep(0.3)

    async def _send_start(self, run: Run) -> None:
        await self._client.execute(
            "SELECT cronledger.observe_start(%s, %s, started_at => %s)",
            run.job, run.key, run.started_at,
        )  # fmt: skip
        run.started = True

    async def _send_end(self, run: Run) -> None:
        await self._client.execute(
            "SELECT cronledger.observe_end(%s, %s, %s, ended_at => %s, started_at => %s)",
            run.job, run.key, run.exit_status, run.ended_at, run.started_at,
        )  # fmt: skip
        run.ended = True


_EXECUTIONS = (
    "SELECT r.run_key, r.started_at,"
    " coalesce((e.attempts -> 0 ->> 'started_at')::timestamptz, e.started_at),"
    " r.job_name, e.plan_time, e.trigger, e.status, e.runner_id = 'observed' FROM reports r"
    f" LEFT JOIN executions e ON e.id = r.execution_id AND {FIRST_RUNNER} = 'observed'"
)
_MADE = f"SELECT count(*) FROM executions e WHERE {FIRST_RUNNER} = 'observed'"


def judge_reports(cluster: "Cluster", runs: list[Run]) -> None:
    """In the end: each run that was reported has one execution, with its start and its end."""
    found = {row[0]: row for row in cluster.database.eye.execute(_EXECUTIONS).fetchall()}
    for run in runs:
        row = found.get(run.key)
        if row is None:
            if (run.started or run.ended) and not run.refused:
                cluster.wrong(f"the report of {run.key} is lost")
            continue
        _, reported, started, *_, status, observed = row
        if reported != run.started_at or started != run.started_at:
            cluster.wrong(f"{run.key} began at {run.started_at}, and its execution at {started}")
        if observed and status not in _ends(run):
            cluster.wrong(f"{run.key} is {status}; it had to be one of {sorted(_ends(run))}")
    _judge_numbers(cluster, found)


def _judge_numbers(cluster: "Cluster", found: dict[str, Any]) -> None:
    made = cluster.database.eye.execute(_MADE).fetchone()
    if made is None or made[0] != len(found):
        cluster.wrong(f"{len(found)} runs were reported, and {made} became executions")
    plan_times = [row[3:5] for row in found.values() if row[5] == "schedule"]
    if len(plan_times) != len(set(plan_times)):
        cluster.wrong("two runs belong to one plan_time")


def _ends(run: Run) -> set[str]:
    """How the execution of a run may have ended. A client may cancel it before its end."""
    if not run.ended:
        return {"FAILED", "CANCELLED"}
    return {"SUCCESS"} if run.exit_status == 0 else {"FAILED", "CANCELLED"}
