"""A replica in a process of its own, with handlers that do nothing, until its stdin closes.

    python -m tests.bench.runner DSN SLOTS [PROFILE]

Prints `ready`; with PROFILE a cProfile of the main thread is written there.
"""

import asyncio
import cProfile
import logging
import sys

import structlog

from cronledger.process.daemon import tune_gc
from cronledger.replica import Replica
from cronledger.settings import Settings

FUNCTION = "bench:handler"


async def handler() -> None:
    """What the jobs of the benchmarks run."""


async def _serve(dsn: str, slots: int) -> None:
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        cache_logger_on_first_use=True,
    )
    settings = Settings(slots=slots, queues=("default",))
    async with Replica(url=dsn, settings=settings, functions={FUNCTION: handler}):
        tune_gc()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


def main() -> None:
    """Serve; see above."""
    dsn, slots = sys.argv[1], int(sys.argv[2])
    if len(sys.argv) > 3:
        with cProfile.Profile() as profile:
            asyncio.run(_serve(dsn, slots))
        profile.dump_stats(sys.argv[3])
    else:
        asyncio.run(_serve(dsn, slots))


if __name__ == "__main__":
    main()
