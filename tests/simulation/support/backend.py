"""Real connections to PostgreSQL, driven statement by statement on one thread.

A statement that waits for a lock does not block the simulation: it is noticed and polled again when
somebody has released locks. A backend is taken for one transaction, as a pooler in transaction mode
does; so a handful serve a whole cluster, and their plans stay warm from seed to seed.
"""

import select
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import psycopg
from psycopg import pq, sql
from psycopg.adapt import Transformer
from psycopg.rows import tuple_row

from tests import interruptions
from tests.simulation.support.loop import StuckError
from tests.simulation.support.mistakes.text_anchors import definition, replaced
from tests.simulation.support.row_order import Orderly, break_ties

PROMPT_MS = 4
"""Real milliseconds in which a statement that waits for no lock has mostly ended."""
STUCK_SECONDS = 120.0
PLAIN = (b"BEGIN", b"COMMIT", b"ROLLBACK")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# The virtual clock. db_now() is that of the statement's start and stands still in it; db_clock() is
# that of now, also after a lock wait: a sequence is the one thing that shows through a snapshot.
_INSTALL = """
CREATE SEQUENCE {schema}.sim_clock MINVALUE 0;
CREATE OR REPLACE FUNCTION {schema}.db_now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
    AS 'SELECT current_setting(''sim.now'')::timestamptz';
CREATE OR REPLACE FUNCTION {schema}.db_clock() RETURNS timestamptz
    LANGUAGE sql VOLATILE PARALLEL SAFE
    AS 'SELECT timestamptz ''1970-01-01 00:00+00''
        + (SELECT last_value FROM {schema}.sim_clock) * interval ''1 microsecond''';
CREATE FUNCTION {schema}.sim_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.status = 'SUCCESS' AND (NEW.status, NEW.lease_token, NEW.finished_at, NEW.attempt)
            IS DISTINCT FROM (OLD.status, OLD.lease_token, OLD.finished_at, OLD.attempt) THEN
        RAISE EXCEPTION 'I4: SUCCESS of % % became %', OLD.job_name, OLD.plan_time, NEW.status
            USING ERRCODE = 'SIM04';
    END IF;
    IF OLD.status = 'RUNNING' AND OLD.lease_token = NEW.lease_token
       AND NEW.error_code IS DISTINCT FROM 'stale_timeout'
       AND (NEW.status <> 'RUNNING' OR NEW.heartbeat_at <> OLD.heartbeat_at)
       AND OLD.runner_id NOT IN (current_setting('sim.who'), 'observed') THEN
        RAISE EXCEPTION 'I3: % wrote % (% %), which % holds', current_setting('sim.who'),
            NEW.status, OLD.job_name, OLD.plan_time, OLD.runner_id USING ERRCODE = 'SIM03';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER sim_guard BEFORE UPDATE ON {schema}.executions
    FOR EACH ROW EXECUTE FUNCTION {schema}.sim_guard();
UPDATE {schema}.identity
SET database_oid = (SELECT oid FROM pg_database WHERE datname = current_database());
"""
_CLOCK = b"""
SELECT setval('cronledger.sim_clock', $1), set_config('sim.now', $2, false),
       set_config('sim.who', $3, false), set_config('sim.place', $4, false)
"""
_HORIZON = (
    "pg_snapshot_xmin(pg_current_snapshot())",
    "coalesce((SELECT min(a.backend_xid::text::numeric)::text::xid8 FROM pg_stat_activity a"
    " WHERE a.datname = current_database()), pg_snapshot_xmax(pg_current_snapshot()))",
)
"""The oldest open transaction of the server, and that of this database alone: other databases of
the server do not decide how often a seed counts an hour again."""
_AT_PLACE = """
    IF place = current_setting('sim.place', true) THEN
        BEGIN
            PERFORM pg_advisory_xact_lock_shared(0, pg_backend_pid());
            RAISE SQLSTATE 'SIM01';
        EXCEPTION
            WHEN SQLSTATE 'SIM01' THEN NULL;
        END;
    END IF;
"""
"""The error releases the lock. A lock of the session would stay, and block the next `hold` of this
backend for ever, if the statement were cancelled between its lock and its unlock."""
Clock = tuple[datetime, str]
"""An instant of the database's clock, and the name of who asks at it."""


class Step(Enum):
    """What one answer of the server belongs to."""

    ASIDE = "what travels with the statement"
    ASKED = "the statement itself"
    SYNC = "the end of a packet, or of its part"


def is_lock_timeout(query: bytes) -> bool:
    """Whether it is the statement that begins a step: it sets what holds for the transaction, reads
    nothing, and nobody reads its answer."""
    begins = query.startswith(b"SELECT pg_catalog.set_config(")
    return begins and b"set_config('lock_timeout', %s" in query


def _micros(now: datetime) -> int:
    return (now - EPOCH) // timedelta(microseconds=1)


def install(url: str) -> None:
    """The database of `url` has the virtual clock and the guards. Never a ledger that matters."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL(_INSTALL).format(schema=sql.Identifier("cronledger")))
        break_ties(connection)
        hours = replaced(definition(connection, "mark_changed_hours"), _HORIZON)
        connection.execute(hours.encode())
        interruptions.install(connection, _AT_PLACE)


class Backend:
    """One server process. At most one statement at a time; it may be waiting for a lock.

    What tells nobody anything by itself (the virtual clock, BEGIN, a transaction's settings)
    travels in one packet with the next statement, in libpq's pipeline mode: one round trip.
    """

    def __init__(self, url: str, orderly: Orderly) -> None:
        self._orderly = orderly
        self._connection = psycopg.connect(
            url, autocommit=True, application_name="simulation",
            options="-c deadlock_timeout=1ms -c timezone=UTC -c synchronous_commit=off",
        )  # fmt: skip
        self._connection.execute("LISTEN cronledger")
        self._pg = self._connection.pgconn
        self.pid = self._pg.backend_pid
        self._pg.prepare(b"sim_clock", _CLOCK)
        self._pg.enter_pipeline_mode()
        self._poll = select.poll()
        self._poll.register(self._pg.socket, select.POLLIN)
        self._cursor = self._connection.cursor()
        self._cursor._tx = Transformer(self._cursor)
        self._names: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        self._new_names: list[tuple[bytes, tuple[int, ...]]] = []  # of this packet
        self._named = 0
        self._put_off: list[tuple[bytes, Any]] = []
        self._opening: list[tuple[bytes, Any]] | None = None
        self._to_come: list[Step] = []
        self._status = pq.TransactionStatus.IDLE
        self._result: pq.abc.PGresult | None = None
        self.notes: list[str] = []
        self.rows: list[Any] = []
        self.rowcount = 0
        self.error: psycopg.Error | None = None

    @property
    def in_transaction(self) -> bool:
        return bool(self._put_off) or self._status != pq.TransactionStatus.IDLE

    @property
    def busy(self) -> bool:
        return bool(self._to_come)

    def begin(
        self, query: bytes, params: Any, row_factory: Any, clock: Clock | None, place: str = ""
    ) -> bool:
        """Send a statement; true: it has ended. False: it may wait for a lock.

        `clock`: what the virtual clock says to it, and who sends it. `place`: in a function, where
        it waits if the database holds it.
        """
        self.rows, self.rowcount, self.error, self._result = [], -1, None, None
        if query == b"BEGIN" or is_lock_timeout(query):
            self._put_off.append((query, params))
            self.rowcount = -1 if query == b"BEGIN" else 1
            return True
        if query in PLAIN and self._put_off and self._status == pq.TransactionStatus.IDLE:
            self._put_off.clear()  # an empty transaction
            return True
        fresh = bool(self._put_off) or self._status == pq.TransactionStatus.IDLE
        self._opening = self._put_off if fresh else None
        for put_off in self._put_off:
            self._send(*put_off, Step.ASIDE)
        opened, self._put_off = bool(self._put_off), []
        if clock is not None and self._status != pq.TransactionStatus.INERROR:
            now, who = clock
            said = (str(_micros(now)), now.isoformat(), who, place)
            self._pg.send_query_prepared(b"sim_clock", [text.encode() for text in said])
            self._to_come.append(Step.ASIDE)
            if not opened and self._status == pq.TransactionStatus.IDLE:
                self._sync()  # in autocommit the statement is a transaction of its own
        self._cursor._reset()
        self._cursor.row_factory = row_factory or tuple_row
        self._send(query, params, Step.ASKED)
        self._sync()
        while self._pg.flush():
            select.select([], [self._pg.socket], [])
        return self.poll()

    def _send(self, query: bytes, params: Any, step: Step) -> None:
        asked = self._cursor._convert_query(self._orderly(query), params)
        key = (asked.query, asked.types)
        name = self._names.get(key)
        if name is None:
            self._named += 1
            name = self._names[key] = b"sim_%d" % self._named
            self._new_names.append(key)
            self._pg.send_prepare(name, asked.query, param_types=asked.types or None)
            self._to_come.append(Step.ASIDE)
        self._pg.send_query_prepared(name, asked.params, param_formats=asked.formats)
        self._to_come.append(step)

    def _sync(self) -> None:
        self._pg.pipeline_sync()
        self._to_come.append(Step.SYNC)

    def poll(self) -> bool:
        """Go on with the statement; true once it has ended."""
        while True:
            while not self._pg.is_busy():
                result = self._pg.get_result()
                if result is not None and self._took(result):
                    return True
                if result is None and self._pg.status == pq.ConnStatus.BAD:
                    raise psycopg.OperationalError("the server has gone")
            if not self._poll.poll(PROMPT_MS):
                return False
            self._pg.consume_input()

    def _took(self, result: pq.abc.PGresult) -> bool:
        """Note what came; true: it was the last of it."""
        step, status = self._to_come.pop(0), result.status
        if step is Step.SYNC:
            assert status == pq.ExecStatus.PIPELINE_SYNC, status
        elif status == pq.ExecStatus.FATAL_ERROR:
            self.error = psycopg.errors.error_from_result(result)
        elif step is Step.ASKED and status != pq.ExecStatus.PIPELINE_ABORTED:
            self._result = result
        if self._to_come:
            return False
        self._ended()
        return True

    def _ended(self) -> None:
        self._status = pq.TransactionStatus(self._pg.transaction_status)
        new, self._new_names = self._new_names, []
        if self.error is not None:
            for key in new:  # what follows an error in a packet is not prepared
                self._names.pop(key, None)
            return
        assert self._result is not None
        self._cursor._set_results([self._result])
        self.rowcount = self._cursor.rowcount
        if self._result.nfields:
            self.rows = self._cursor.fetchall()

    def take_notes(self) -> list[str]:
        while (note := self._pg.notifies()) is not None:
            if note.be_pid == self.pid:  # its own come with its own commit; others' at any time
                self.notes.append(note.extra.decode())
        notes, self.notes = self.notes, []
        return notes

    def run(self, statement: bytes) -> None:
        """One of PLAIN, to its end."""
        if not self.begin(statement, None, None, None):
            self._wait("a transaction does not end")

    def cancel(self) -> None:
        """The statement that waits for a lock ends with an error."""
        self._connection.cancel_safe()
        self._wait("a statement that was cancelled does not end")

    def take_back(self) -> bool:
        """The statement that waits for a lock was never sent; false where it cannot be so, because
        its transaction has done something before."""
        opening = self._opening
        if opening is None:
            return False
        self.cancel()
        if self.in_transaction:
            self.run(b"ROLLBACK")
        self._put_off = opening
        return True

    def _wait(self, what: str) -> None:
        give_up_at = time.monotonic() + STUCK_SECONDS
        while not self.poll():
            if time.monotonic() > give_up_at:
                raise StuckError(what)

    def hear(self) -> None:
        """Read what others notified. Some hundred unread ones fill the socket; then the server's
        process hangs in its write, and with it, for one, every DROP DATABASE on that server."""
        self._pg.consume_input()
        self.take_notes()

    def reset(self) -> None:
        """No transaction, no statement: as the server leaves it when its client is gone."""
        if self.busy:
            self.cancel()
        if self.in_transaction:
            self.run(b"ROLLBACK")
        self.hear()

    def close(self) -> None:
        self._connection.close()


class Database:
    """One real database for one simulation after the other, and the simulator's own eye on it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._orderly = Orderly()
        patience = f"-c lock_timeout={STUCK_SECONDS:.0f}s"
        self.eye = psycopg.connect(url, autocommit=True, prepare_threshold=1, options=patience)
        self.eye.execute(
            "SET search_path = cronledger; SET session_replication_role = replica;"
            " SET synchronous_commit = off"
        )
        self._judge = psycopg.connect(url, autocommit=True, options="-c timezone=UTC")
        self._free: list[Backend] = []
        self._all: list[Backend] = []
        self._tables = [
            row[0]
            for row in self.eye.execute(
                "SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'cronledger'::regnamespace"
                " AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
                " AND c.relname NOT IN ('schema_migrations', 'identity', 'roll_up_state', 'turns',"
                " 'retention') ORDER BY 1"
            ).fetchall()
        ]
        self._held: set[int] = set()
        self.places = interruptions.places(self.eye)
        self._used = 0
        self._heard = 0  # idle backends are heard in turn

    def take(self) -> Backend:
        if not self._free:
            made = Backend(self.url, self._orderly)
            self._all.append(made)
            return made
        return self._free.pop()

    def give(self, backend: Backend) -> None:
        self._free.append(backend)
        self._heard = (self._heard + 1) % len(self._free)
        self._free[self._heard].hear()

    def judge(self, now: datetime) -> psycopg.Connection:
        """A connection on which the database's clock says `now`."""
        self._judge.execute(
            "SELECT setval('cronledger.sim_clock', %s), set_config('sim.now', %s, false)",
            (_micros(now), now.isoformat()),
        )
        return self._judge

    def hold(self, backend: Backend) -> None:
        """Its next statement waits at its place between the statements of a function, if it comes
        there."""
        self._held.add(backend.pid)
        self.eye.execute("SELECT pg_advisory_lock(0, %s)", (backend.pid,))

    def holds(self, backend: Backend) -> bool:
        """Whether it waits at its place, and for no lock of another one."""
        row = self.eye.execute(
            "SELECT pg_backend_pid() = ANY (pg_blocking_pids(%s))", (backend.pid,)
        ).fetchone()
        assert row is not None
        return bool(row[0])

    def let_go(self, backend: Backend, now: datetime) -> None:
        """It goes on, if it was held, and for its clock it is `now`."""
        if backend.pid in self._held:
            self._held.remove(backend.pid)
            self.eye.execute(
                "SELECT setval('cronledger.sim_clock', %s), pg_advisory_unlock(0, %s)",
                (_micros(now), backend.pid),
            )

    def blocked(self, backend: Backend) -> bool:
        """Whether its statement waits for a lock that another one holds."""
        row = self.eye.execute(
            "SELECT cardinality(pg_blocking_pids(%s)) > 0", (backend.pid,)
        ).fetchone()
        assert row is not None
        return bool(row[0])

    def settle(self, backend: Backend) -> bool:
        """True: its statement has ended; false: it certainly waits for a lock."""
        give_up_at = time.monotonic() + STUCK_SECONDS
        while time.monotonic() < give_up_at:
            if backend.poll():
                return True
            if not self.blocked(backend):
                continue
            # Once more, after the deadlock detector had its time.
            if backend.poll():
                return True
            if self.blocked(backend):
                return False
        raise StuckError("a statement neither ends nor waits for a lock")

    def clear(self) -> None:
        """An empty ledger; ids begin at 1. The tables keep their plans: no TRUNCATE."""
        self.eye.execute("SELECT pg_advisory_unlock_all()")
        self._held.clear()
        for backend in self._all:
            backend.reset()
        self._free = list(reversed(self._all))
        with self.eye.transaction():
            for table in self._tables:
                self.eye.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
            self.eye.execute("DELETE FROM turns WHERE step LIKE 'scopes of %'")
            for ids in ("execution", "pause", "planned_skip", "unsettled_pause", "report"):
                self.eye.execute("SELECT setval(%s::regclass, 1, false)", [f"{ids}_id"])
        self._used += 1
        if self._used % 25 == 0:
            names: Sequence[sql.Composable] = [sql.Identifier(t) for t in self._tables]
            self.eye.execute(sql.SQL("VACUUM {}").format(sql.SQL(", ").join(names)))

    def close(self) -> None:
        for backend in self._all:
            backend.close()
        self._judge.close()
        self.eye.close()


@contextmanager
def opened(url: str) -> Iterator[Database]:
    """A prepared database; its connections are closed afterwards."""
    database = Database(url)
    try:
        yield database
    finally:
        database.close()
