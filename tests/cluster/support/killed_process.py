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
import sys
from collections.abc import Callable, Coroutine
from contextlib import closing
from datetime import timedelta
from typing import Any
from unittest import mock

import psycopg

from cronledger.channels import Function
from cronledger.declaring.app import App, Context
from cronledger.engine.alerting.deliveries import Deliveries
from cronledger.engine.claiming import lead
from cronledger.engine.claiming.claim import Claim
from cronledger.engine.commands.client import Supervisor
from cronledger.engine.lease import Lease
from cronledger.engine.maintenance.alerts import Alerts
from cronledger.engine.running.heartbeats import Heartbeats
from cronledger.engine.running.output import Capture, LiveOutput
from cronledger.engine.running.upstreams import Upstreams
from cronledger.ledger import migrate as migrations
from cronledger.ledger.access import Access
from cronledger.replica import Replica
from cronledger.rules import outcome
from cronledger.settings import Settings
from tests.cluster.support.jobs import say as told
from tests.cluster.support.marks import mark
from tests.cluster.support.watched_statements import Watch, install, names, scripts
from tests.db.support.engine import LONG_AGO, Ledger, Runner
from tests.waiting import eventually

NAME = "killed"
QUEUES = ("default", "narrow")

# -- the steps -------------------------------------------------------------------------------------


def say(what: str, start: Any) -> None:
    key, claimed = start.claimed.key, start.claimed
    mark(what, key.job_name, key.scope_id, claimed.attempt, claimed.id, key.plan_time.isoformat())


async def opened(url: str) -> Runner:
    runner = Runner(url, NAME, queues=QUEUES, traces=True)
    await runner.open()
    return runner


async def claim(url: str, watch: Watch) -> None:
    runner = await opened(url)
    watch.armed = True
    for start in await runner.settle():
        say("start", start)


async def ahead(url: str, watch: Watch) -> None:
    """A claim of what is due a few seconds later."""
    runner = await opened(url)
    for start in await runner.settle():  # what is due now, and the plan of the schedule
        await runner.finish(start)
    with closing(Ledger(url)) as ledger:
        minute = (ledger.now() + timedelta(minutes=1)).replace(second=0, microsecond=0)
        ledger.travel(to=minute - timedelta(seconds=3))
    watch.armed = True
    with mock.patch.object(lead, "MARGIN", timedelta(seconds=20)):
        for start in await runner.step():
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
    watch.statements = ("create_missing_partitions", "set_spec_errors", "park_broken")
    await claim(url, watch)


async def unknown(url: str, watch: Watch) -> None:
    """A claim whose COMMIT lands and whose answer is lost; then the next step."""
    runner = await opened(url)

    async def lost(claim: Claim, c: Any) -> bool:
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    with mock.patch.object(Claim, "_after_commit", lost):
        try:
            await runner.step()
        except psycopg.OperationalError:
            watch.armed = True
    for start in await runner.step():
        say("start", start)


async def lose_one(runner: Runner) -> None:
    """One lease of the runner is gone, and it does not know."""
    released = next(s for s in runner.held if s.claimed.key.job_name == "limited").claimed
    async with runner.pool.connection() as c:
        await c.execute("SELECT cronledger.release(%s, %s)", [released.id, released.token])


async def heartbeat(url: str, watch: Watch) -> None:
    """One round for all leases, one of which is lost, from the thread that it has."""
    runner = await opened(url)
    for start in await runner.settle():
        say("start", start)
    await lose_one(runner)
    beats = Heartbeats(Access(url), runner.statements, runner.leases)
    watch.armed, watch.connections = True, ("cronledger heartbeats",)
    runner.leases.renew_now()
    beats.start()
    await eventually("it is lost", lambda: runner.leases.lost == 1)
    watch.armed = False
    beats.close()


async def written_output(runner: Runner, start: Lease) -> None:
    """A chunk of the output of an execution that runs."""
    output = LiveOutput(runner.pool, runner.statements, 1000)
    capture = Capture(start, output)
    capture.write("half of it")
    await asyncio.sleep(0)  # it is noted
    output.hurry(capture)
    await output.step()


async def finish(url: str, watch: Watch) -> None:
    runner = await opened(url)
    starts = await runner.settle()
    watch.armed = True
    plain = next(start for start in starts if start.claimed.key.job_name == "plain")
    await written_output(runner, plain)
    watch.armed = False
    for start in starts:
        say("start", start)
        runner.awaited.note(f"wait {start.claimed.id}")
    await lose_one(runner)
    for start in starts:
        ended, back = outcome.success({"by": NAME}), False
        match start.claimed.key.job_name:
            case "failed":
                ended = outcome.failure(ValueError("again"))
            case "pushed":
                ended = outcome.success(outcome.Result(None, watermark=3))
            case "again":
                back = True
            case "unready":
                ended = outcome.failure(outcome.NotReady("1m", "no file yet"))
        say("end", start)
        runner.put(start, ended, back, has_chunks=start is plain)
    watch.armed = True
    while runner.finisher.waiting:
        await runner.finisher.step()


async def sweep(url: str, watch: Watch) -> None:
    runner = await opened(url)
    runner.trust()
    watch.armed = True
    await runner.sweeper.step()


async def gates(url: str, watch: Watch) -> None:
    """A claim that inserts what waits, and checks of gates: one opens, one waits, one expires.

    Then the open one runs, and reads the results of the jobs that it requires.
    """
    runner = await opened(url)
    upstreams = Upstreams(runner.pool, runner.statements)
    watch.armed = True
    for _ in range(2):
        for start in await runner.settle():
            say("start", start)
            await upstreams.read(start)
            say("end", start)
            runner.put(start)
        while runner.finisher.waiting:
            await runner.finisher.step()
        await runner.check_gates()


async def alerts(url: str, watch: Watch) -> None:
    runner = await opened(url)
    step = Alerts(runner.pool, runner.statements)
    step.note(watching=True)
    watch.armed = True
    await step.step()


def accept(message: Any) -> None:
    """A channel that accepts each message."""


async def hang(message: Any) -> None:
    """A channel that does not respond to the process that is killed."""
    await asyncio.sleep(60 if os.environ.get("KILLED") else 0)


def deliveries_of(runner: Runner) -> Deliveries:
    made = Deliveries(runner.pool, runner.statements, Supervisor(), runner=runner.name, slots=2)
    made.note(watching=True)
    return made


async def deliver(url: str, watch: Watch) -> None:
    """Two deliveries: one ends, and the other is released by a drain."""
    runner = await opened(url)
    made = deliveries_of(runner)
    watch.armed = True
    await made.step()
    with closing(Ledger(url)) as ledger:
        ended = "SELECT count(*) FROM deliveries WHERE status = 'SUCCESS'"
        await eventually("one has ended", lambda: ledger.one(ended) == 1)
    await made.close(0)


app = App(NAME)
scoped = App("scoped")
older, newer, visitor = (
    App("plugged", deploy=1),
    App("plugged", deploy=2, calendars={"weekdays": {"weekend": ["Saturday", "Sunday"]}}),
    App("visitor", channels={"guest": Function(python="json:dumps")}),
)
began = asyncio.Event()


@visitor.job(name="visiting")
@app.job(name="drained_once")
@app.job(name="drained_again", allow_stale_reentry=True)
async def lasts(ctx: Context) -> None:
    """Until it is stopped."""
    told("start", ctx)
    if ctx.job != "drained_again":
        began.set()
    await asyncio.sleep(60 if os.environ.get("KILLED") else 0)
    told("end", ctx)


@app.job(name="effect_once")
@app.job(name="effect_again", allow_stale_reentry=True, max_attempts=2, retry_backoff=["1m"])
async def effect(ctx: Context) -> None:
    """Its row in `effects` and its SUCCESS are one commit."""
    told("start", ctx)
    async with ctx.transaction() as c:
        await c.execute("INSERT INTO public.effects (id) VALUES (%s)", [ctx.execution_id])


@app.job(name="effect_sync", allow_stale_reentry=True, max_attempts=2, retry_backoff=["1m"])
def effect_sync(ctx: Context) -> None:
    told("start", ctx)
    with ctx.transaction() as c:
        c.execute("INSERT INTO public.effects (id) VALUES (%s)", [ctx.execution_id])


@scoped.job("* * * * *", name="scoped", scope_kind="shard", scopes=lambda: ["b", "c"])
@older.job("0 0 1 1 *", name="kept")
@older.job("0 3 * * *", name="gone")
@newer.job("0 3 * * *", name="kept")
@newer.job("0 3 * * *", name="fresh", requires=["kept"])
async def quick(ctx: Context) -> None:
    told("start", ctx)
    told("end", ctx)


def whole(url: str, name: str = NAME, slots: int = 10) -> Replica:
    """A replica of `app` and `scoped` that works when it is told to."""
    settings = Settings(runner_id=name, slots=slots)
    return Replica(app, scoped, url=url, settings=settings, manual=True, applied=True)


async def drain(url: str, watch: Watch) -> None:
    replica = whole(url)
    await replica.start()
    replica._runtime.components.finisher._gather = (
        0.05  # both ends in one write, however busy the machine is
    )
    await replica._runtime.components.dispatcher.step()
    await began.wait()
    await asyncio.sleep(0)  # and the other one, which was started with it
    watch.armed = True
    await replica.drain(0)


async def transaction(url: str, watch: Watch) -> None:
    """One execution after the other, each with a transaction of its own."""
    await _one_by_one(url, watch, "cronledger transaction")


async def answer_lost(url: str, watch: Watch) -> None:
    """Each of these transactions commits, its answer is lost, and it is looked for."""
    watch.loses = "answer"
    await _one_by_one(url, watch, "cronledger look")


async def commit_lost(url: str, watch: Watch) -> None:
    """No COMMIT of these transactions arrives, and that is looked for."""
    watch.loses = "commit"
    await _one_by_one(url, watch, "cronledger look")


async def _one_by_one(url: str, watch: Watch, connections: str) -> None:
    replica = whole(url, slots=1)
    await replica.start()
    watch.armed, watch.connections = True, (connections,)
    await replica.step()
    await replica.drain(0)


async def scopes(url: str, watch: Watch) -> None:
    replica = whole(url)
    await replica.start()
    watch.armed = True
    await replica._runtime.components.scopes.step()


def plugged(url: str, name: str | None = None) -> Replica:
    """A replica of the newer deploy, which it applies; without `name` it takes one."""
    return Replica(newer, url=url, settings=Settings(runner_id=name, slots=10), manual=True)


async def deploy(url: str, watch: Watch) -> None:
    """A replica of a newer deploy comes, another App comes and goes with it, and it leaves."""
    replica = plugged(url)
    watch.armed = True
    await replica.start()
    await replica.register(visitor)
    watch.armed = False
    await replica._runtime.components.dispatcher.step()
    await began.wait()
    watch.armed = True
    await replica.unregister(visitor)
    await replica.drain(0)


async def migrate(url: str, watch: Watch) -> None:
    """Each script is sent statement by statement, in its one transaction."""
    scripts.cache_clear()
    watch.armed = True
    migrations.migrate(url)


STEPS: dict[str, Callable[[str, Watch], Coroutine[Any, Any, None]]] = {
    step.__name__: step
    for step in (
        claim, ahead, steal, refused, unknown, finish, heartbeat, sweep, gates, alerts,
        deliver,
        drain, transaction,
        answer_lost, commit_lost, scopes, deploy, migrate,
    )
}  # fmt: skip

# -- the warm process ------------------------------------------------------------------------------


def work(order: dict[str, Any], out: int) -> None:
    """The child: does the step and ends, or is killed."""
    os.environ.update(CLUSTER_MARKS=order["marks"], KILLED="1")
    os.environ.pop("CRONLEDGER_DATABASE_URL", None)
    watch = Watch(out, (order.get("name", ""), order.get("nth", 0)), order.get("when", ""))
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
    with os.fdopen(reading) as told:  # to its end first: a child that fills the pipe waits for us
        lines = [json.loads(line) for line in told]
    _, status = os.waitpid(child, 0)
    answer = {key: value for line in lines for key, value in line.items()}
    return {**answer, "killed": os.WIFSIGNALED(status)}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what is logged is no answer
    names()
    for line in sys.stdin:
        print(json.dumps(obey(json.loads(line))), flush=True, file=answers)
