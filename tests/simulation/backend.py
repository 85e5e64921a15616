"""Real connections to PostgreSQL, driven statement by statement on one thread.

A statement that waits for a lock does not block the simulation: it is noticed and polled again when
somebody has released locks. A backend is taken for one transaction, as a pooler in transaction mode
does; so a handful serve a whole cluster, and their plans stay warm from seed to seed.
"""

import select
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg import pq, sql
from psycopg.rows import tuple_row

from tests.simulation.loop import StuckError

PROMPT_MS = 4
"""Real milliseconds in which a statement that waits for no lock has mostly ended."""
STUCK_SECONDS = 30.0
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
       AND OLD.runner_id <> current_setting('sim.who') THEN
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
_CLOCK = """
SELECT setval('cronledger.sim_clock', $1), set_config('sim.now', $2, false),
       set_config('sim.who', $3, false)
"""


def install(url: str) -> None:
    """The database of `url` has the virtual clock and the guards. Never a ledger that matters."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL(_INSTALL).format(schema=sql.Identifier("cronledger")))


class Backend:
    """One server process. At most one statement at a time; it may be waiting for a lock."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(
            url, autocommit=True, prepare_threshold=1, application_name="simulation",
            options="-c deadlock_timeout=1ms -c timezone=UTC -c synchronous_commit=off",
        )  # fmt: skip
        self.connection.prepared_max = None
        self.pid = self.connection.info.backend_pid
        self.notes: list[str] = []
        self._pg = self.connection.pgconn
        self._pg.prepare(b"sim_clock", _CLOCK.encode())
        self._poll = select.poll()
        self._poll.register(self._pg.socket, select.POLLIN)
        self._gen: Generator[Any, Any, None] | None = None
        self._wanted = 1
        self._cursor: psycopg.Cursor[Any] | None = None
        self.rows: list[Any] = []
        self.rowcount = 0
        self.error: psycopg.Error | None = None
        self.connection.add_notify_handler(self._noted)
        self.connection.execute("LISTEN cronledger")

    def _noted(self, note: psycopg.Notify) -> None:
        if note.pid == self.pid:  # its own come with its own commit; others' at any time
            self.notes.append(note.payload)

    @property
    def in_transaction(self) -> bool:
        return self._pg.transaction_status != pq.TransactionStatus.IDLE

    def set_clock(self, now: datetime, who: str) -> None:
        if self._pg.transaction_status == pq.TransactionStatus.INERROR:
            return
        micros = (now - EPOCH) // timedelta(microseconds=1)
        values = (str(micros).encode(), now.isoformat().encode(), who.encode())
        result = self._pg.exec_prepared(b"sim_clock", values)
        assert result.status == pq.ExecStatus.TUPLES_OK, result.get_error_message()

    def begin(self, query: bytes, params: Any, row_factory: Any) -> bool:
        """Send a statement; true: it has ended. False: it waits for a lock."""
        if query in PLAIN:
            self.rows, self.rowcount, self.error = [], -1, None
            self.run(query)
            return True
        self._cursor = self.connection.cursor(row_factory=row_factory or tuple_row)
        self._gen = self._cursor._execute_gen(query, params)
        self.rows, self.rowcount, self.error = [], -1, None
        self._wanted = 0
        return self.poll()

    def poll(self) -> bool:
        """Go on with the statement; true once it has ended."""
        assert self._gen is not None
        try:
            state = next(self._gen) if self._wanted == 0 else self._wanted
            while True:
                self._wanted = int(state)
                events = select.POLLIN if state & 1 else 0
                self._poll.modify(self._pg.socket, events | (select.POLLOUT if state & 2 else 0))
                found = self._poll.poll(PROMPT_MS)
                if not found:
                    return False
                (_, got) = found[0]
                ready = (1 if got & (select.POLLIN | select.POLLHUP | select.POLLERR) else 0) | (
                    2 if got & select.POLLOUT else 0
                )
                state = self._gen.send(ready & state or ready)
        except StopIteration:
            self._ended()
        except psycopg.Error as error:
            self.error = error
            self._gen = None
        return True

    def _ended(self) -> None:
        assert self._cursor is not None
        self._gen = None
        self.rowcount = self._cursor.rowcount
        if self._cursor.description is not None:
            self.rows = self._cursor.fetchall()

    @property
    def busy(self) -> bool:
        return self._gen is not None

    def take_notes(self) -> list[str]:
        while (note := self._pg.notifies()) is not None:
            if note.be_pid == self.pid:
                self.notes.append(note.extra.decode())
        notes, self.notes = self.notes, []
        return notes

    def run(self, statement: bytes) -> None:
        """A short command that waits for nothing. Not through psycopg: after a ROLLBACK it prepares
        everything anew."""
        result = self._pg.exec_(statement)
        if result.status != pq.ExecStatus.COMMAND_OK:
            self.error = psycopg.errors.error_from_result(result)

    def cancel(self) -> None:
        """The statement that waits for a lock ends with an error."""
        self.connection.cancel_safe()
        give_up_at = time.monotonic() + STUCK_SECONDS
        while not self.poll():
            if time.monotonic() > give_up_at:
                raise StuckError("a statement that was cancelled does not end")

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
        self.connection.close()


class Database:
    """One real database for one simulation after the other, and the simulator's own eye on it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.eye = psycopg.connect(url, autocommit=True, prepare_threshold=1)
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
                " AND c.relname NOT IN ('schema_migrations', 'identity') ORDER BY 1"
            ).fetchall()
        ]
        self._used = 0
        self._heard = 0  # idle backends are heard in turn

    def take(self) -> Backend:
        if not self._free:
            made = Backend(self.url)
            self._all.append(made)
            return made
        return self._free.pop()

    def give(self, backend: Backend) -> None:
        self._free.append(backend)
        self._heard = (self._heard + 1) % len(self._free)
        self._free[self._heard].hear()

    def judge(self, now: datetime) -> psycopg.Connection:
        """A connection on which the database's clock says `now`."""
        micros = (now - EPOCH) // timedelta(microseconds=1)
        self._judge.execute(
            "SELECT setval('cronledger.sim_clock', %s), set_config('sim.now', %s, false)",
            (micros, now.isoformat()),
        )
        return self._judge

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
        for backend in self._all:
            backend.reset()
        self._free = list(reversed(self._all))
        with self.eye.transaction():
            for table in self._tables:
                self.eye.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
            self.eye.execute("SELECT setval('execution_id', 1, false)")
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
