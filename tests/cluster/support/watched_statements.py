"""Every statement that leaves psycopg in this process is counted; at one of them it is killed."""

import json
import os
import re
import signal
from functools import cache
from importlib import resources
from typing import Any, Literal

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor

from cronledger.ledger import migrate as migrations
from cronledger.ledger.connections import StepCursor, shutdown_socket
from cronledger.ledger.queries import text
from cronledger.ledger.round_trips import RoundTrips

DIE_AT = b"SELECT set_config('tests.die_at', %s, true)"
ENDS_THERE = """
    IF current_setting('tests.die_at', true) = 'nowhere' THEN
        INSERT INTO public.reached SELECT place;
    ELSIF place = current_setting('tests.die_at', true) THEN
        PERFORM pg_terminate_backend(pg_backend_pid());
    END IF;
"""
"""What a function does between its statements: the backend ends there. `nowhere`: it notes them."""


class Watch:
    """Lists the statements of the armed step, and kills this process at one of them: the n-th of
    the name."""

    def __init__(self, out: int, at: tuple[str, int], when: str) -> None:
        self._out = out
        self._at = at
        self._when = when
        self.armed = False
        self.connections: tuple[str, ...] = ()  # only these; empty: all
        self.statements: tuple[str, ...] = ()
        self.loses: Literal["commit", "answer"] | None = None  # of a handler's transaction
        self.seen: list[str] = []

    def tell(self, **what: Any) -> None:
        os.write(self._out, json.dumps(what).encode() + b"\n")

    def counts(self, connection: Any) -> bool:
        """Heartbeats come at their own time, and are a step of their own. LISTEN is no step: it
        changes nothing, and its connection sends nothing else."""
        if not self.armed:
            return False
        if self.connections:
            return named_connection(connection) in self.connections
        return named_connection(connection) not in ("cronledger heartbeats", "cronledger listen")

    def cuts(self, name: str, connection: Any) -> bool:
        """The connection breaks at this COMMIT: on its way there, or on the answer's way back."""
        of = "cronledger transaction"
        return self.loses is not None and name == "COMMIT" and named_connection(connection) == of

    def before(self, name: str) -> tuple[str, int] | None:
        """Count a statement about to be sent; `is_sent` and `after` take what this returns."""
        if self.statements and name not in self.statements:
            return None
        self.seen.append(name)
        this = name, self.seen.count(name)
        if this == self._at and self._when == "before":
            self.die(name)
        return this

    def place(self, name: str) -> str | None:
        """Where inside of this statement the backend ends; None: it is interrupted nowhere."""
        if name != "claim_look" or self._when not in ("", "inside"):
            return None
        return self._at[0] or "nowhere"

    def is_sent(self, this: tuple[str, int] | None) -> bool:
        return this == self._at and self._when == "sent"

    def after(self, this: tuple[str, int] | None) -> bool:
        return this == self._at and self._when == "after"

    def die(self, name: str) -> None:
        self.tell(fired=name)
        os.kill(os.getpid(), signal.SIGKILL)


def named_connection(connection: Any) -> str:
    return connection.info.parameter_status("application_name") or ""


@cache
def names() -> dict[bytes, str]:
    folder = resources.files("cronledger.ledger") / "sql"
    stems = [file.name.removesuffix(".sql") for file in folder.iterdir()]
    return {text(stem, "cronledger").encode(): stem for stem in stems}


def named(query: Any, connection: Any) -> str:
    """The name of the statement's file, or its first words."""
    raw = query if isinstance(query, bytes) else (
        query.encode() if isinstance(query, str) else query.as_bytes(connection)
    )  # fmt: skip
    if raw in names():
        return names()[raw]
    words = " ".join(raw.decode().split())
    return "settings" if words.startswith("SELECT pg_catalog.set_config(") else words[:60]


@cache
def scripts() -> frozenset[bytes]:
    return frozenset(m.text.encode() for m in migrations.migrations())


def divided(script: str) -> list[str]:
    """The statements of a script; together they are all of it."""
    parts = re.split(r"(--[^\n]*|'(?:[^']|'')*'|(\$\w*\$).*?\2|;)", script, flags=re.DOTALL)
    found, statement = [], ""
    for number, part in enumerate(parts):
        if number % 3 != 2:  # the tag of a dollar quote, which is in the part before
            statement += part
        if part == ";":
            found.append(statement)
            statement = ""
    assert "".join(found) + statement == script
    assert not re.sub(r"--[^\n]*", "", statement).strip()
    return found


def install(watch: Watch) -> None:
    """From here on every statement of psycopg passes `watch`."""
    execute = Cursor.execute

    def execute_watched_sync(self: Any, query: Any, *args: Any, **more: Any) -> Any:
        if not watch.counts(self.connection):
            return execute(self, query, *args, **more)
        if isinstance(query, bytes) and query in scripts():
            for statement in divided(query.decode()):
                execute_watched_sync(self, statement.encode())
            return self
        name = named(query, self.connection)
        this = watch.before(name)
        answer = execute(self, query, *args, **more)
        if watch.after(this):
            watch.die(name)
        return answer

    Cursor.execute = execute_watched_sync  # type: ignore[method-assign]
    for cursor in (AsyncCursor, StepCursor):
        _install_async(cursor, watch)
    for kind in (AsyncConnection, Connection):
        _install_commands(kind, watch)


def _install_async(kind: Any, watch: Watch) -> None:
    """Statements of handlers, and of steps, where they may wait to be sent with others."""
    execute = kind.execute

    async def watched(self: Any, query: Any, *args: Any, **more: Any) -> Any:
        if not watch.counts(self.connection):
            return await execute(self, query, *args, **more)
        name = named(query, self.connection)
        this = watch.before(name)
        place = watch.place(name)
        if place is not None:
            self.connection.trips.add(DIE_AT, [place], prepare=False)
        answer = await execute(self, query, *args, **more)
        if place is not None:
            await _die_inside(self.connection.trips, watch, place)
        if watch.is_sent(this):
            _send_waiting(self.connection.trips)
            watch.die(name)
        if watch.after(this):
            if kind is StepCursor:
                await self.connection.trips.make()
            watch.die(name)
        return answer

    kind.execute = watched


def _install_commands(kind: Any, watch: Watch) -> None:
    """BEGIN, COMMIT, ROLLBACK, where psycopg sends them by itself."""
    command = kind._exec_command

    def watched(self: Any, query: Any, *args: Any, **more: Any) -> Any:
        name = named(query, self)
        if watch.cuts(name, self):
            if watch.loses == "answer":
                _send(self, query)
            shutdown_socket(self)
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        if not watch.counts(self):
            return (yield from command(self, query, *args, **more))
        this = watch.before(name)
        if watch.is_sent(this):
            _send(self, query)
            watch.die(name)
        answer = yield from command(self, query, *args, **more)
        if watch.after(this):
            watch.die(name)
        return answer

    kind._exec_command = watched


def _send(connection: Any, query: bytes) -> None:
    """`query` has left this process; no answer is read."""
    connection.pgconn.send_query(query)
    while connection.pgconn.flush():
        pass


async def _die_inside(trips: RoundTrips, watch: Watch, place: str) -> None:
    try:
        await trips.make()
    except psycopg.OperationalError:
        watch.die(place)


def _send_waiting(trips: RoundTrips) -> None:
    """The statements that wait have left this process; no answer is read."""
    pgconn = trips._connection.pgconn
    pgconn.enter_pipeline_mode()
    for statement in trips._waiting:
        trips._write(pgconn, statement)
    pgconn.pipeline_sync()
    while pgconn.flush():
        pass
