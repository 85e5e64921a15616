"""`python -m tests.simulation SEED [--trace]` replays one; `--minutes N` runs as many as fit."""

import argparse
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.database import Databases, server
from tests.simulation.support.backend import Database, opened
from tests.simulation.support.cluster import Tell
from tests.simulation.support.run import prepare, simulate

TOLD = (
    "execution_started stolen", "execution_started retried", "execution_swept", "lease_expired",
    "lease_lost", "claim_commit_unknown", "execution_released", "database_clock_jumped",
    "heartbeats_failed", "slots_saturated", "step_failed",
)  # fmt: skip
"""Log events whose numbers are printed: what the faults made the engine do."""


@contextmanager
def fresh_database() -> Iterator[Database]:
    """A database of its own on the tests' server."""
    with (
        tempfile.TemporaryDirectory() as shared,
        server(Path(shared)) as dsn,
        Databases(dsn, uuid.uuid4().hex) as databases,
    ):
        name = databases.create(databases.template())
        try:
            prepare(databases.url(name))
            with opened(databases.url(name)) as database:
                yield database
        finally:
            databases.drop(name)


def printing() -> Tell:
    """What prints the trace: on the stream of now, because the one of a running replica captures
    what is printed beside a handler, and the seed would take another course."""
    return partial(print, file=sys.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", nargs="?", type=int, help="replay this one")
    parser.add_argument("--trace", action="store_true", help="print every statement and event")
    parser.add_argument("--minutes", type=float, help="run seeds for so long")
    parser.add_argument("--seeds", type=int, help="run so many seeds")
    parser.add_argument("--seed0", type=int, default=0, help="the first one")
    asked = parser.parse_args()
    if asked.seed is None and asked.minutes is None and asked.seeds is None:
        parser.error("name a SEED, --seeds N or --minutes N")
    with fresh_database() as database:
        if asked.seed is not None:
            verdict = simulate(asked.seed, database, printing() if asked.trace else None)
            print(verdict if verdict.violations else f"seed {asked.seed}: nothing wrong")
            return 1 if verdict.violations else 0
        return _many(database, asked)


def _many(database: Database, asked: argparse.Namespace) -> int:
    began, cpu = time.monotonic(), time.process_time()
    until = began + (asked.minutes or 1e6) * 60
    last = asked.seed0 + (asked.seeds or 10**9)
    seed, failed = asked.seed0, []
    faults: Counter[str] = Counter()
    events: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    while time.monotonic() < until and seed < last:
        verdict = simulate(seed, database)
        if verdict.violations:
            failed.append(seed)
            print(verdict, flush=True)
        faults += verdict.faults
        events += verdict.events
        totals += Counter(
            executions=verdict.executions, handlers=verdict.spans, waits=verdict.waits,
            statements=verdict.statements, seconds=round(verdict.virtual_seconds),
        )  # fmt: skip
        seed += 1
    took = time.monotonic() - began
    print(
        f"{seed - asked.seed0} seeds ({asked.seed0} to {seed - 1}) in {took:.0f} s"
        f" ({1000 * took / max(1, seed - asked.seed0):.0f} ms each, {time.process_time() - cpu:.0f}"
        f" s of CPU here): {totals['executions']} executions, {totals['handlers']} handlers,"
        f" {totals['statements']} statements, {totals['waits']} waits for locks,"
        f" {totals['seconds'] / 3600:.1f} virtual hours; {len(failed)} seeds failed {failed}"
    )
    print(", ".join(f"{kind} {count}" for kind, count in sorted(faults.items())))
    print(", ".join(f"{event} {events[event]}" for event in TOLD))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
