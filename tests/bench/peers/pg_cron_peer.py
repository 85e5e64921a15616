"""pg_cron on a server that preloads it, with its own settings."""

import asyncio

from tests.bench.firing import Calls
from tests.bench.peers.contract import Scheduler

_DECLARE = """
SELECT cron.schedule('job-' || n, %s, 'SELECT 1') FROM generate_series(1, %s) n
"""
_CALLED = """
SELECT jobid, extract(epoch FROM start_time)::float8 FROM cron.job_run_details
WHERE start_time <= to_timestamp(%s)
"""


class PgCronPeer(Scheduler):
    """The background worker of the server fires; this process only reads when it did."""

    async def install(self) -> None:
        self.c.execute("CREATE EXTENSION pg_cron")

    async def fire(self, calls: Calls) -> None:
        firing = calls.firing
        if firing.times > 1:
            raise RuntimeError("Debian's pg_cron 1.4 has no schedules with seconds")
        self.c.execute(_DECLARE, [firing.minute_cron(), firing.schedules])
        firing.require_ahead()
        while not calls.is_complete():
            await asyncio.sleep(1)
            for job, at in self.c.execute(_CALLED, [firing.ends]).fetchall():
                calls.found[job, firing.first] = at
        if not calls.found:
            raise RuntimeError("pg_cron has started nothing")
