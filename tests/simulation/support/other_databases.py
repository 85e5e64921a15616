"""The database becomes another one in the middle of a seed, as one restored elsewhere: nobody may
plan, start, steal or sweep in it until it is accepted; what runs may go on."""

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tests.simulation.support.clients import Client
from tests.simulation.support.record import Span

if TYPE_CHECKING:
    from tests.simulation.support.cluster import Cluster

REFUSED = ("CL005", "CL006")
_HERE = "(SELECT oid FROM pg_database WHERE datname = current_database())"


class Elsewhere:
    """`began`: whether it has happened in this seed; `active`: and nobody has accepted it yet."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._random = Random(f"elsewhere {cluster.seed}")
        self.began = False
        self.active = False
        self._held: set[UUID] = set()
        self._cursors: dict[tuple[Any, ...], Any] = {}
        self._swept: set[int] = set()

    async def happen(self, client: Client, until: float) -> None:
        """It changes and is accepted, both before `until`."""
        left = until - self._cluster.loop.time()
        await asyncio.sleep(left * self._random.uniform(0.2, 0.5))
        self._change()
        await asyncio.sleep(left * self._random.uniform(0.2, 0.4))
        self._judge()
        skip_missed = self._random.random() < 0.5
        while not await client.accept(skip_missed=skip_missed):  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        self.active = False
        self._cluster.trace("accepted", skip_missed)
        if skip_missed:
            self._restart_strangers()

    def _restart_strangers(self) -> None:
        """The accepted copy is a ledger of its own. Replicas that were refused in it go on; those
        that were not there meanwhile do nothing in it until an operator restarts them."""
        ((here,),) = self._execute("SELECT ledger_id FROM identity")
        waited = {
            sim.process
            for sim in self._cluster.replicas
            if sim.replica._runtime.expected.id == here
            or sim.replica._runtime.components.dispatcher.refused is not None
        }
        for process in tuple(self._cluster.processes):
            if process.is_replica and process not in waited:
                self._cluster.kill(process)

    def _change(self) -> None:
        """All connections are lost: in the restored copy none of them is in a transaction."""
        self._cluster.trace("moved")
        self._cluster.break_connections("the database is restored elsewhere")
        self._execute("UPDATE identity SET database_oid = 0, recorded_at = db_clock()")
        self.began = self.active = True
        self._held, self._cursors, self._swept = self._now()

    def _now(self) -> tuple[set[UUID], dict[tuple[Any, ...], Any], set[int]]:
        held = self._execute("SELECT lease_token FROM executions WHERE status = 'RUNNING'")
        cursors = self._execute(
            "SELECT job_name, scope_kind, scope_id, planned_through FROM schedules"
        )
        swept = self._execute("SELECT id FROM executions WHERE error_code = 'stale_timeout'")
        return {x for (x,) in held}, {(*k,): at for *k, at in cursors}, {x for (x,) in swept}

    def judge_start(self, span: Span) -> None:
        """A handler starts: under a lease from before, or the database is the ledger's own."""
        if not self.active or span.token in self._held:
            return
        # Who accepted it may not have the answer yet.
        if self._execute("SELECT FROM identity WHERE database_oid = 0"):
            self._cluster.wrong(f"{span} started in another database")

    def _judge(self) -> None:
        held, cursors, swept = self._now()
        if held - self._held:
            self._cluster.wrong("something was claimed in another database")
        if any(cursors.get(key, at) != at for key, at in self._cursors.items()):
            self._cluster.wrong("something was planned in another database")
        if swept - self._swept:
            self._cluster.wrong("something was swept in another database")

    def restore(self) -> None:
        """For the next seed it is the ledger's own."""
        if self.active:
            self._execute(f"UPDATE identity SET database_oid = {_HERE}")

    def _execute(self, statement: str) -> list[Any]:
        cursor = self._cluster.database.eye.execute(statement.encode())
        return cursor.fetchall() if cursor.description is not None else []
