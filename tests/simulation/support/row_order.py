"""What PostgreSQL leaves open, decided: which of several rows that are due at the same instant come
first, and which token a function mints.

In production the heap and the plan decide; both depend on what ran on the server before, so that a
seed would have several ways to go. Here a hash of the row and the instant does: any order, another
one each time, and the same one in each run of the seed.
"""

import psycopg

from cronledger.ledger.queries import text
from tests.simulation.support.mistakes.text_anchors import definition, replaced

_ANY = "md5({key} || current_setting('sim.now'))"
_SCHEDULE = "{0}.next_plan_time, " + _ANY.format(key="{0}.job_name || '/' || {0}.scope_id")
_EXECUTION = _ANY.format(key="{0}.id")
STATEMENTS = {
    "sleep_until": (("pg_sleep(w.seconds)", "NULL"),),  # the session waits, in virtual time
}  # fmt: skip
"""Of the files of sql/: what is not left to the server, and what takes its place."""
FUNCTIONS = {
    "lock_due_schedules": (
        ("ORDER BY s.next_due_at LIMIT", f"ORDER BY s.next_due_at, {_SCHEDULE.format('s')} LIMIT"),
    ),
    "lock_due_existing": (
        ("AS forced\n", "AS forced, e.next_attempt_at AS at_\n"),
        ("ORDER BY e.next_attempt_at LIMIT",
         f"ORDER BY e.next_attempt_at, {_EXECUTION.format('e')} LIMIT"),
        ("    LIMIT max_rows::bigint",
         f"    ORDER BY s.job_name, x.at_, {_EXECUTION.format('x')} LIMIT max_rows::bigint"),
    ),
    "lock_stale": (
        ("ORDER BY e.stale_after\n", f"ORDER BY e.stale_after, {_EXECUTION.format('e')}\n"),
    ),
    "rearm_unblocked": (
        ("ORDER BY s.next_plan_time LIMIT", f"ORDER BY {_SCHEDULE.format('s')} LIMIT"),
        ("ORDER BY n.next_plan_time LIMIT", f"ORDER BY {_SCHEDULE.format('n')} LIMIT"),
    ),
    "unblocked_schedules": (
        ("ORDER BY s.next_plan_time LIMIT", f"ORDER BY {_SCHEDULE.format('s')} LIMIT"),
    ),
    "claim_next": (
        ("gen_random_uuid()", "md5(current_setting('sim.who') || current_setting('sim.now')"
         " || generate_series)::uuid"),
    ),
}  # fmt: skip
"""Of the functions of the schema."""
UNORDERED = frozenset(
    {"heartbeat_leases", "finish_executions", "release_executions", "sweep_stale", "resume_paused",
     "read_leases", "end_orphans", "rearm_left_behind", "rearm_unblocked", "read_unclaimed",
     "read_runnable_jobs"}
)  # fmt: skip
"""Statements whose rows come in no order: here in that of their text."""


class Orderly:
    """What is sent for a statement. Made once for a database, before a mistake is made in it."""

    def __init__(self) -> None:
        self._changes = [
            (old.encode(), new.encode()) for pairs in STATEMENTS.values() for old, new in pairs
        ]
        self._known: dict[bytes, bytes] = {}
        for name, pairs in STATEMENTS.items():
            replaced(text(name, "cronledger"), *pairs)

    def __call__(self, query: bytes) -> bytes:
        """The query as it is, or with its ties broken."""
        known = self._known.get(query)
        if known is None:
            known = query
            for old, new in self._changes:
                known = known.replace(old, new)
            self._known[query] = known
        return known


def break_ties(connection: psycopg.Connection) -> None:
    """The functions of the schema break their ties as the simulator says."""
    for name, pairs in FUNCTIONS.items():
        connection.execute(replaced(definition(connection, name), *pairs).encode())
