"""What the judge of leases counts as trouble."""

import asyncio

import pytest

from tests.simulation.support.backend import Database
from tests.simulation.support.cluster import Cluster
from tests.simulation.support.loop import Process, virtual_loop
from tests.simulation.support.network import Connection

pytestmark = pytest.mark.tools

LOCKED = 2.0


def test_who_waits_for_the_turn_of_another_is_not_well(simulated: Database) -> None:
    """Of two statements that wait for a lock, the simulator takes one back until the other has
    ended. A lease may run out meanwhile, through no fault of its holder."""
    simulated.clear()
    with virtual_loop() as loop:
        cluster = Cluster(0, simulated, loop, None)
        cluster.chance.settle_down()
        waiting = [Process(name, name) for name in ("one", "two")]

        async def lock(connection: Connection, seconds: float) -> None:
            async with connection.transaction():
                await connection.execute("SELECT FROM cronledger.turns FOR UPDATE")
                await asyncio.sleep(seconds)

        async def course() -> None:
            holder = asyncio.create_task(lock(cluster.connect(Process("h", "h"), "pool"), LOCKED))
            await asyncio.sleep(LOCKED / 4)
            waits = [lock(cluster.connect(process, "pool"), 0) for process in waiting]
            await asyncio.gather(holder, *waits)

        try:
            loop.run_until_complete(course())
            assert cluster.waits
            since, until = LOCKED * 3 / 4, LOCKED
            assert all(cluster.calm.troubled(since, until, process) for process in waiting)
        finally:
            cluster.bury()
