"""A process that sends the statements of one step, and is killed at one of them.

A process in `main` stays warm: each line on its stdin is an order (JSON), for which it forks a
child that does the work; it answers a line when the child has ended. The child runs the real
engine. Where a statement leaves psycopg it is counted, and where the order says so the child
sends itself SIGKILL: before the statement is sent, after the server has executed it, or, for a
COMMIT, when it is sent and its answer not read.
"""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import cache
from importlib import resources
from typing import Any

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor

from cronledger.app import App, Context
from cronledger.ledger import migrate as migrations
from cronledger.ledger.statements import text
from cronledger.replica import Replica
from cronledger.rules import outcome
from cronledger.settings import Settings
from tests.cluster.marks import mark
from tests.db.engine import LONG_AGO, Runner

NAME = "killed"
QUEUES = ("default", "narrow")

# -- where statements are seen ---------------------------------------------------------------------


class Watch:
    """Lists the statements of the armed step, and kills this process at one of them."""

    def __init__(self, out: int, at: int | None, when: str) -> None:
        self._out = out
        self._at = at
        self._when = when
        self.armed = False
        self.connections: tuple[str, ...] = ()  # only these; empty: all
        self.statements: tuple[str, ...] = ()
        self.seen: list[str] = []

    def tell(self, **what: Any) -> None:
        os.write(self._out, json.dumps(what).encode() + b"\n")

    def counts(self, connection: Any) -> bool:
        """Heartbeats and LISTEN are others' steps, at their own time."""
        name: str = connection.info.parameter_status("application_name") or ""
        if not self.armed or (self.connections and name not in self.connections):
            return False
        return name not in ("cronledger heartbeats", "cronledger listen")

    def before(self, name: str) -> int:
        if self.statements and name not in self.statements:
            return -1
        self.seen.append(name)
        number = len(self.seen) - 1
        if number == self._at and self._when == "before":
            self.die(name)
        return number

    def is_sent(self, number: int) -> bool:
        return number == self._at and self._when == "sent"

    def after(self, number: int) -> bool:
        return number == self._at and self._when == "after"

    def die(self, name: str) -> None:
        self.tell(fired=name)
        os.kill(os.getpid(), signal.SIGKILL)


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
    return "settings" if words.startswith("SELECT set_config(") else words[:60]


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
    execute_async, execute = AsyncCursor.execute, Cursor.execute

    async def execute_watched(self: Any, query: Any, *args: Any, **more: Any) -> Any:
        connection = self.connection
        if not watch.counts(connection):
            return await execute_async(self, query, *args, **more)
        name = named(query, connection)
        number = watch.before(name)
        answer = await execute_async(self, query, *args, **more)
        if watch.after(number):
            if connection._pipeline is not None:  # queued, until somebody asks
                await connection.wait(connection._pipeline._sync_gen())
            watch.die(name)
        return answer

    def execute_watched_sync(self: Any, query: Any, *args: Any, **more: Any) -> Any:
        if not watch.counts(self.connection):
            return execute(self, query, *args, **more)
        if isinstance(query, bytes) and query in scripts():
            for statement in divided(query.decode()):
                execute_watched_sync(self, statement.encode())
            return self
        name = named(query, self.connection)
        number = watch.before(name)
        answer = execute(self, query, *args, **more)
        if watch.after(number):
            watch.die(name)
        return answer

    AsyncCursor.execute = execute_watched  # type: ignore[method-assign]
    Cursor.execute = execute_watched_sync  # type: ignore[method-assign]
    for kind in (AsyncConnection, Connection):
        _install_commands(kind, watch)


def _install_commands(kind: Any, watch: Watch) -> None:
    """BEGIN, COMMIT, ROLLBACK: psycopg sends them by itself."""
    command = kind._exec_command

    def watched(self: Any, query: Any, *args: Any, **more: Any) -> Any:
        if not watch.counts(self):
            return (yield from command(self, query, *args, **more))
        name = named(query, self)
        number = watch.before(name)
        if watch.is_sent(number):
            _send(self, query)
            watch.die(name)
        answer = yield from command(self, query, *args, **more)
        if watch.after(number):
            if self._pipeline is not None:
                yield from self._pipeline._sync_gen()
            watch.die(name)
        return answer

    kind._exec_command = watched


def _send(connection: Any, query: bytes) -> None:
    """Everything that is queued, and `query`, has left this process; no answer is read."""
    pgconn = connection.pgconn
    if connection._pipeline is None:
        pgconn.send_query(query)
    else:
        for queued in connection._pipeline.command_queue:
            queued()
        pgconn.send_query_params(query, None)
        pgconn.pipeline_sync()
    while pgconn.flush():
        pass


# -- the steps -------------------------------------------------------------------------------------


def say(what: str, start: Any) -> None:
    key, claimed = start.claimed.key, start.claimed
    mark(what, key.job_name, key.scope_id, claimed.attempt, claimed.id, key.plan_time.isoformat())


async def opened(url: str) -> Runner:
    runner = Runner(url, NAME, queues=QUEUES)
    await runner.open()
    return runner


async def claim(url: str, watch: Watch) -> None:
    runner = await opened(url)
    watch.armed = True
    for start in await runner.settle():
        say("start", start)


async def steal(url: str, watch: Watch) -> None:
    runner = await opened(url)
    runner.trust()
    runner.dispatcher.steal_at = LONG_AGO
    watch.armed = True
    for start in await runner.step():
        say("start", start)


async def refused(url: str, watch: Watch) -> None:
    """A claim of a value that the database refuses, for a week that has no partition."""
    # How much of a pipeline that fails is sent depends on when its error comes.
    watch.statements = ("make_partitions", "set_spec_errors", "park_broken")
    await claim(url, watch)


async def unknown(url: str, watch: Watch) -> None:
    """A claim whose COMMIT lands and whose answer is lost; then the next step."""
    runner = await opened(url)
    read = runner.claimer._after

    async def lost(c: Any, begun: Any) -> bool:
        runner.claimer._after = read  # type: ignore[method-assign]
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    runner.claimer._after = lost  # type: ignore[method-assign]
    try:
        await runner.step()
    except psycopg.OperationalError:
        watch.armed = True
    for start in await runner.step():
        say("start", start)


async def finish(url: str, watch: Watch) -> None:
    runner = await opened(url)
    starts = await runner.settle()
    for start in starts:
        say("start", start)
    released = next(s for s in starts if s.claimed.key.job_name == "limited")
    async with runner.pool.connection() as c:
        await c.execute(
            "SELECT cronledger.release(%s, %s)", [released.claimed.id, released.claimed.token]
        )
    for start in starts:
        ended, back = outcome.success({"by": NAME}), False
        match start.claimed.key.job_name:
            case "failed":
                ended = outcome.failure(ValueError("again"))
            case "pushed":
                ended = outcome.success(outcome.Result(None, watermark=3))
            case "again":
                back = True
        say("end", start)
        runner.put(start, ended, back)
    watch.armed = True
    while runner.finisher.waiting:
        await runner.finisher.step()


async def sweep(url: str, watch: Watch) -> None:
    runner = await opened(url)
    runner.trust()
    watch.armed = True
    await runner.sweeper.step()


app = App(NAME)
began = asyncio.Event()


def _told(what: str, ctx: Context) -> None:
    at = ctx.plan_time.isoformat()
    mark(what, ctx.job, ctx.scope_id, ctx.attempt, ctx.execution_id, at)


@app.job(name="drained_once")
@app.job(name="drained_again", allow_stale_reentry=True)
async def lasts(ctx: Context) -> None:
    """Until it is stopped."""
    _told("start", ctx)
    if ctx.job == "drained_once":
        began.set()
    await asyncio.sleep(60 if os.environ.get("KILLED") else 0)
    _told("end", ctx)


@app.job(name="effect_once")
@app.job(name="effect_again", allow_stale_reentry=True)
async def effect(ctx: Context) -> None:
    """Its row in `effects` and its SUCCESS are one commit."""
    _told("start", ctx)
    async with ctx.transaction() as c:
        await c.execute("INSERT INTO public.effects (id) VALUES (%s)", [ctx.execution_id])


@app.job(name="effect_sync", allow_stale_reentry=True)
def effect_sync(ctx: Context) -> None:
    _told("start", ctx)
    with ctx.transaction() as c:
        c.execute("INSERT INTO public.effects (id) VALUES (%s)", [ctx.execution_id])


def whole(url: str, name: str = NAME, slots: int = 10) -> Replica:
    """A replica of `app` that works when it is told to."""
    settings = Settings(runner_id=name, slots=slots)
    return Replica(app, url=url, settings=settings, manual=True, applied=True)


async def drain(url: str, watch: Watch) -> None:
    replica = whole(url)
    await replica.start()
    replica._parts.finisher._gather = 0.05  # both ends in one write, however busy the machine is
    await replica._parts.dispatcher.step()
    await began.wait()
    await asyncio.sleep(0)  # and the other one, which was started with it
    watch.armed = True
    await replica.drain(0)


async def transaction(url: str, watch: Watch) -> None:
    """One execution after the other, each with a transaction of its own."""
    replica = whole(url, slots=1)
    await replica.start()
    watch.armed, watch.connections = True, ("cronledger transaction",)
    await replica.step()
    await replica.drain(0)


async def migrate(url: str, watch: Watch) -> None:
    """Each script is sent statement by statement, in its one transaction."""
    scripts.cache_clear()
    watch.armed = True
    migrations.migrate(url)


STEPS: dict[str, Callable[[str, Watch], Coroutine[Any, Any, None]]] = {
    step.__name__: step
    for step in (claim, steal, refused, unknown, finish, sweep, drain, transaction, migrate)
}

# -- the warm process ------------------------------------------------------------------------------


def work(order: dict[str, Any], out: int) -> None:
    """The child: does the step and ends, or is killed."""
    os.environ.update(CLUSTER_MARKS=order["marks"], KILLED="1")
    os.environ.pop("CRONLEDGER_DATABASE_URL", None)
    watch = Watch(out, order.get("at"), order.get("when", ""))
    install(watch)
    try:
        asyncio.run(STEPS[order["step"]](order["url"], watch))
        watch.tell(seen=watch.seen)
    except BaseException as error:  # noqa: BLE001 - told to the test, whatever it is
        watch.tell(seen=watch.seen, error=repr(error))
    os._exit(0)


def obey(order: dict[str, Any]) -> dict[str, Any]:
    """What the child told, and whether it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        work(order, writing)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading) as told:
        lines = [json.loads(line) for line in told]
    answer = {key: value for line in lines for key, value in line.items()}
    return {**answer, "killed": os.WIFSIGNALED(status)}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what is logged is no answer
    names()
    for line in sys.stdin:
        print(json.dumps(obey(json.loads(line))), flush=True, file=answers)
