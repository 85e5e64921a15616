"""PGQueuer with psycopg and uvloop: one worker on a connection of its own."""

import psycopg
import uvloop
from pgqueuer.db import PsycopgDriver

from tests.bench.peers.pgqueuer_peer import PgQueuerPeer


class PsycopgPeer(PgQueuerPeer):
    """PGQueuer on a psycopg connection."""

    async def connect(self) -> PsycopgDriver:
        return PsycopgDriver(await psycopg.AsyncConnection.connect(self.dsn, autocommit=True))


PEER = PsycopgPeer
RUN = uvloop.run
