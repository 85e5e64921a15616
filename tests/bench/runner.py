"""A replica in a process of its own, with handlers that do nothing, until its stdin closes.

    python -m tests.bench.runner DSN SLOTS [--calls FILE] [--profile FILE]

Prints `ready`. At the end it writes to --calls when the handler was called, in seconds since the
epoch by the clock of the host, one call per line, and to --profile a cProfile of the main thread.
"""

import argparse
import asyncio
import cProfile
import sys
import time
from pathlib import Path

from cronledger.logs.output import configure
from cronledger.process.daemon import tune_gc
from cronledger.replica import Replica
from cronledger.settings import Settings

FUNCTION = "bench:handler"

_calls: list[float] = []


async def handler() -> None:
    """What the jobs of the benchmarks run."""


async def recording_handler() -> None:
    """What they run if the instants of the calls are recorded."""
    _calls.append(time.clock_gettime(time.CLOCK_REALTIME))


async def _serve(options: argparse.Namespace) -> None:
    configure("json", "warning")
    functions = {FUNCTION: recording_handler if options.calls else handler}
    settings = Settings(slots=options.slots)
    async with Replica(url=options.dsn, settings=settings, functions=functions):
        tune_gc()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dsn")
    parser.add_argument("slots", type=int)
    parser.add_argument("--calls", type=Path)
    parser.add_argument("--profile", type=Path)
    options = parser.parse_args()
    if options.profile:
        with cProfile.Profile() as profile:
            asyncio.run(_serve(options))
        profile.dump_stats(options.profile)
    else:
        asyncio.run(_serve(options))
    if options.calls:
        options.calls.write_text("".join(f"{at:.6f}\n" for at in _calls), "utf-8")


if __name__ == "__main__":
    main()
