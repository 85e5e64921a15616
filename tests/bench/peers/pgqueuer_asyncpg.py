"""PGQueuer with asyncpg and uvloop: one worker on a connection of its own."""

import asyncpg
import uvloop
from pgqueuer.db import AsyncpgDriver

from tests.bench.peers.pgqueuer_peer import PgQueuerPeer


class AsyncpgPeer(PgQueuerPeer):
    """PGQueuer on an asyncpg connection."""

    async def connect(self) -> AsyncpgDriver:
        return AsyncpgDriver(await asyncpg.connect(self.dsn))


PEER = AsyncpgPeer
RUN = uvloop.run
