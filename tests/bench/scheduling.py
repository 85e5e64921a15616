"""Schedules that are due at one instant, and jobs that fire each second, beside peers.

A replica's calls are `started_at` of the ledger. Peers record when their handlers are called, and
the bare loop when it has locked the row.
"""

import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from tests.bench import peer_processes, pg_cron
from tests.bench.bench import Bench
from tests.bench.firing import PATIENCE_SECONDS, PUNCTUAL_SECONDS, Calls, Firing, Outcome, now
from tests.bench.ledger import new_ledger
from tests.bench.peer_processes import PEERS, PeerProcess
from tests.bench.server import Server

OURS, BARE_LOOP, PG_CRON = "cronledger", "bare loop", peer_processes.PG_CRON.name
SLOTS = 10_000
JOBS = 500
"""Jobs that fire each second."""
BATCH = 500
MOST_AT_ONCE = 10_000
"""Schedules of a peer. With more, declaring them takes longer than everything else here."""
AHEAD_SECONDS = 20
DECLARED_PER_SECOND = 5_000
DECLARED_BY_PEERS = 80
"""Schedules in each second: APScheduler 4 adds each one in a transaction of its own."""

_OUTCOME = """
SELECT count(*) AS called, max(extract(epoch FROM started_at))::float8 - %(first)s AS last,
       count(*) FILTER (WHERE started_at - due_at <= %(punctual)s * interval '1 s') AS punctual
FROM cronledger.executions
WHERE due_at BETWEEN to_timestamp(%(first)s) AND to_timestamp(%(last)s)
  AND started_at <= to_timestamp(%(ends)s)
"""
_DONE = """
cronledger.db_now() > to_timestamp(%(last)s)
AND NOT EXISTS (SELECT FROM cronledger.schedules
                WHERE queue = 'default' AND next_due_at <= to_timestamp(%(last)s))
AND NOT EXISTS (SELECT FROM cronledger.executions WHERE status = 'RUNNING')
OR cronledger.db_now() > to_timestamp(%(ends)s)
"""

_DUE = """
SELECT schedule, extract(epoch FROM next_at)::float8 FROM bare
WHERE next_at <= clock_timestamp() ORDER BY next_at LIMIT %s FOR UPDATE SKIP LOCKED
"""

Contestant = tuple[str, Callable[[Firing], Outcome]]


def measure(bench: Bench) -> dict[str, Any]:
    """Return the outcome of each contestant: `at_once` by the number of schedules, `each_second`.

    A peer fires at most 10,000 schedules at one instant.
    """
    form = bench.form
    assert form.each_second is not None
    field = list(_contestants(bench))
    return {
        "at_once": {
            str(schedules): {
                name: _outcome(name, run, schedules, 1)
                for name, run in field
                if schedules <= MOST_AT_ONCE or name in (OURS, BARE_LOOP)
            }
            for schedules in form.at_once
        },
        "each_second": {
            "jobs": JOBS,
            "seconds": form.each_second,
            "outcomes": {
                name: _outcome(name, run, JOBS, form.each_second)
                for name, run in field
                if name != PG_CRON
            },
        },
    }


def _outcome(
    name: str, run: Callable[[Firing], Outcome], schedules: int, times: int
) -> dict[str, Any]:
    """Let a contestant fire from a whole minute on, once it can have declared its schedules.

    Raises what went wrong with cronledger; a peer's error is its outcome.
    """
    per_second = DECLARED_PER_SECOND if name in (OURS, BARE_LOOP) else DECLARED_BY_PEERS
    soonest = now() + AHEAD_SECONDS + schedules / per_second
    try:
        return run(Firing(schedules, times, int(-(-soonest // 60) * 60)))._asdict()
    except (RuntimeError, psycopg.Error) as error:
        if name == OURS:
            raise
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}


def _contestants(bench: Bench) -> Iterator[Contestant]:
    yield OURS, partial(_fire, bench.server)
    yield BARE_LOOP, partial(_loop, bench.server)
    if bench.peers is not None:
        for peer in PEERS:
            yield peer.name, partial(_fire_peer, bench.server.database, bench.peers, peer)
        if pg_cron.is_installed():
            peer = peer_processes.PG_CRON
            yield PG_CRON, partial(_fire_peer, pg_cron.server, bench.peers, peer)
        else:
            print(pg_cron.MISSING, file=sys.stderr)


def _fire(server: Server, firing: Firing) -> Outcome:
    """Let one replica fire. Schedules that are due once are scopes of one job, others are jobs."""
    instants = {"first": firing.first, "last": firing.last, "ends": firing.ends}
    with new_ledger(server) as ledger:
        with ledger.product.replica(ledger.dsn, SLOTS):
            if firing.times == 1:
                ledger.declare("once", firing.minute_cron(), scopes=firing.schedules)
            else:
                for number in range(firing.schedules):
                    ledger.declare(f"each-second-{number:05}", firing.cron())
            firing.require_ahead()
            ledger.wait_for(_DONE, firing.ends + PATIENCE_SECONDS - now(), **instants)
        row = ledger.one(_OUTCOME, punctual=PUNCTUAL_SECONDS, **instants)
    if not row["called"]:
        raise RuntimeError("nothing has started")
    return Outcome(firing.due, **row)


def _loop(server: Server, firing: Firing) -> Outcome:
    """Lock the rows of a table that are due, and move them by a second. No ledger, no handler."""
    calls = Calls(firing)
    with server.database() as dsn, psycopg.connect(dsn, autocommit=True) as c:
        c.execute("CREATE TABLE bare (schedule integer PRIMARY KEY, next_at timestamptz NOT NULL)")
        c.execute("CREATE INDEX ON bare (next_at)")
        c.execute("INSERT INTO bare SELECT n, %s FROM generate_series(1, %s) n",
                  [firing.at, firing.schedules])  # fmt: skip
        c.execute("VACUUM ANALYZE bare")
        firing.require_ahead()
        while not calls.is_complete():
            if not _take_due(c, calls):
                (next_at,) = c.execute(
                    "SELECT extract(epoch FROM min(next_at))::float8 FROM bare"
                ).fetchall()[0]
                time.sleep(max(0.0, next_at - now()))
    return calls.outcome()


def _take_due(c: psycopg.Connection[Any], calls: Calls) -> bool:
    """Fire at most 500 rows that are due, and return whether there were any."""
    with c.transaction():
        due = c.execute(_DUE, [BATCH]).fetchall()
        for schedule, next_at in due:
            calls.add(schedule, next_at)
        c.execute("UPDATE bare SET next_at = next_at + interval '1 s' WHERE schedule = ANY (%s)",
                  [[schedule for schedule, _ in due]])  # fmt: skip
    return bool(due)


def _fire_peer(
    database: Callable[[], AbstractContextManager[str]],
    python: Path,
    peer: PeerProcess,
    firing: Firing,
) -> Outcome:
    with database() as dsn:
        return Outcome(**peer_processes.run(python, peer, dsn, "fire", *firing))
