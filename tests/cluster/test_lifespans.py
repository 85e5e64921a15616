"""F40: what a lifespan yields is there from before the first claim until after the last handler."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import pytest
from structlog.testing import capture_logs

from cronledger import App, Context
from cronledger.engine.claiming.claim import Claim
from cronledger.engine.claiming.request import ClaimResult
from cronledger.engine.running.executor import Executor
from cronledger.engine.running.heartbeats import Heartbeats
from cronledger.engine.runtime import lifespans
from cronledger.replica import LifespanError
from cronledger.rules.problems import ConfigurationError
from cronledger.testing import Ledger
from tests.cluster.support.live import live
from tests.waiting import PATIENCE, eventually


@dataclass
class Pool:
    """A resource that knows whether it is open, and what it served."""

    open: bool = True
    served: list[str] = field(default_factory=list)

    def serve(self, what: str) -> str:
        assert self.open
        self.served.append(what)
        return what


class Shop:
    """An App with a lifespan, whose pools and steps are noted."""

    def __init__(self, name: str = "shop") -> None:
        self.pools: list[Pool] = []
        self.steps: list[str] = []
        self.app = App(name, lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, app: App) -> AsyncIterator[Pool]:
        assert app is self.app
        self.steps.append("enter")
        task = asyncio.current_task()
        pool = Pool()
        self.pools.append(pool)
        try:
            yield pool
        finally:
            assert asyncio.current_task() is task
            self.steps.append("close")
            pool.open = False


@pytest.fixture
def shop() -> Shop:
    return Shop()


def handler(app: App, name: str, function: Callable[..., Any], **policies: Any) -> None:
    function.__qualname__ = name
    app.job(name=name, **policies)(function)


async def trigger(ledger: Ledger, job: str) -> int:
    return await asyncio.to_thread(ledger.trigger, job)


def status(ledger: Ledger, job: str) -> str:
    (row,) = ledger.executions(job)
    return str(row["status"])


CLOSED = (
    "loops.halt", "deliveries.close", "claimer.unknown_commits.resolve", "pings.close",
    "listener.close", "supervisor.close", "heartbeats.close", "threads.close",
)  # fmt: skip
"""The steps of a drain that may raise."""


@pytest.mark.long
async def test_a_drain_ends_although_a_component_cannot_be_closed(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for the drain as well does not hang, and everything else is closed."""
    for step in CLOSED:
        shop, before = Shop(), asyncio.all_tasks()
        replica = live(ledger, shop.app, runner_id=step)
        await replica.start()
        runtime = replica._runtime
        path, _, name = step.rpartition(".")
        component = attrgetter(path)(runtime.components)
        monkeypatch.setattr(component, name, _failing(getattr(component, name)))
        first, second = (asyncio.ensure_future(replica.drain()) for _ in range(2))
        with pytest.raises(OSError, match="it cannot be closed"):
            await first
        assert (await asyncio.wait_for(second, PATIENCE)).finished == 0
        assert (replica.state, runtime.pool.closed) == ("stopped", True), step
        assert shop.steps == ["enter", "close"], step
        assert asyncio.all_tasks() <= before, step
        (runner,) = ledger.rows("SELECT state FROM runners WHERE id = %s", step)
        assert "unknown_commits" in step or runner["state"] == "stopped", step


def _failing(real: Callable[..., Any]) -> Callable[..., Any]:
    def close(*given: Any, **more: Any) -> Any:
        closing = real(*given, **more)
        if not asyncio.iscoroutine(closing):
            raise OSError("it cannot be closed")
        return _raise_after(closing)

    return close


async def _raise_after(closing: Coroutine[Any, Any, object]) -> None:
    await closing
    raise OSError("it cannot be closed")


@pytest.mark.parametrize("ends", ["in time", "late"])
async def test_a_drain_closes_it_after_the_last_handler(
    ledger: Ledger, shop: Shop, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Executor, "GRACE", 60.0)
    release = threading.Event()

    def works(ctx: Context, pool: Pool) -> str:
        release.wait(90)
        return pool.serve("last")

    handler(shop.app, "works", works)
    replica = live(ledger, shop.app, drain_timeout="60s" if ends == "in time" else "10ms")
    async with replica:
        await trigger(ledger, "works")
        await eventually("it runs", lambda: replica.health().running)
        drain = asyncio.ensure_future(replica.drain())
        if ends == "late":
            requested = replica._runtime.components.executor.executions()[0].cancel
            await asyncio.to_thread(requested.wait)
        assert shop.steps == ["enter"]
        release.set()
        await drain
    assert shop.pools[0].served == ["last"]
    assert shop.steps == ["enter", "close"]


async def fails(app: App) -> AsyncIterator[None]:
    if app.lifespan is not None:
        raise ConnectionRefusedError("no cache at 127.0.0.1")
    yield


async def test_a_lifespan_that_raises_ends_the_start_and_registers_nothing(
    ledger: Ledger, shop: Shop
) -> None:
    broken = App("broken", lifespan=asynccontextmanager(fails))
    handler(broken, "never", lambda: None)
    replica = live(ledger, shop.app, broken)
    said = r"the lifespan \S+:fails of the App 'broken' raised ConnectionRefusedError: no cache at"
    with pytest.raises(LifespanError, match=said) as raised:
        await replica.start()
    assert isinstance(raised.value.__cause__, ConnectionRefusedError)
    assert shop.steps == ["enter", "close"]
    assert ledger.rows("SELECT id FROM runners") == []
    async with live(ledger, App("host")) as host:
        with pytest.raises(LifespanError):
            await host.register(broken)
        assert host.health().ready
    assert ledger.rows("SELECT name FROM jobs") == []


@pytest.mark.long
async def test_a_start_that_fails_later_closes_it(ledger: Ledger, shop: Shop) -> None:
    other, wrong = App("other"), Shop("wrong")
    handler(other, "job", lambda: None)
    async with ledger.replica(other):
        pass
    handler(shop.app, "job", lambda: None)
    with pytest.raises(ConfigurationError, match="belongs to the source 'other'"):
        await live(ledger, shop.app).start()

    def wants(count: float) -> None: ...

    handler(wrong.app, "wants", wants)
    said = r"test_lifespans:wants: the parameter `count: float` matches nothing .* which is Pool\("
    with pytest.raises(ConfigurationError, match=said):
        await live(ledger, wrong.app).start()
    assert shop.steps == wrong.steps == ["enter", "close"]
    assert ledger.rows("SELECT name FROM jobs") == [{"name": "job"}]
    assert {row["state"] for row in ledger.rows("SELECT state FROM runners")} == {"stopped"}


def hanging(steps: list[str], *, start: bool = False) -> App:
    """An App whose lifespan ends only by a cancellation: its start, or else its end."""

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        steps.append("enter")
        try:
            if start:
                await asyncio.sleep(600)
            yield
            steps.append("closing")
            await asyncio.sleep(600)
        finally:
            steps.append("cancelled")

    return App("hangs", lifespan=lifespan)


async def test_a_start_that_is_cancelled_cancels_it(ledger: Ledger) -> None:
    steps = list[str]()
    start = asyncio.ensure_future(live(ledger, hanging(steps, start=True)).start())
    await eventually("it begins", lambda: steps)
    start.cancel()
    await asyncio.wait([start])
    assert start.cancelled()
    assert steps == ["enter", "cancelled"]


@pytest.mark.long
async def test_apps_at_runtime_have_lifespans(ledger: Ledger, shop: Shop) -> None:
    release = asyncio.Event()

    async def works(ctx: Context, pool: Pool) -> str:
        try:
            await release.wait()
        except asyncio.CancelledError:
            await release.wait()  # it takes its time to end
        return pool.serve("last")

    handler(shop.app, "works", works)
    async with live(ledger, App("host"), poll_interval="200ms") as replica:
        await replica.register(shop.app)
        await replica.register(shop.app)  # it is open already
        assert shop.steps == ["enter"]
        await trigger(ledger, "works")
        await eventually("it runs", lambda: replica.health().running)
        await replica.unregister(shop.app)
        await eventually("it was told", lambda: replica.diagnostics().executions[0].stopping)
        assert shop.steps == ["enter"]
        release.set()
        await eventually("it is closed", lambda: shop.steps == ["enter", "close"])
        assert shop.pools[0].served == ["last"]
        # The end is written after that, and `trigger` refuses while it is RUNNING.
        await eventually("its end is written", lambda: status(ledger, "works") != "RUNNING")
        await replica.register(shop.app)
        assert shop.steps == ["enter", "close", "enter"]
        await trigger(ledger, "works")
        await eventually("the new one serves", lambda: shop.pools[1].served == ["last"])
    assert shop.steps == ["enter", "close", "enter", "close"]


@pytest.mark.long
async def test_an_app_that_is_unregistered_during_a_claim_keeps_its_lifespan(
    ledger: Ledger, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed, go_on = asyncio.Event(), asyncio.Event()
    began, end = threading.Event(), threading.Event()
    run = Claim.run

    async def pauses(claim: Claim) -> ClaimResult:
        result = await run(claim)
        if result.leases:
            committed.set()
            await go_on.wait()
        return result

    def works(ctx: Context, pool: Pool) -> str:
        began.set()
        end.wait(90)
        return pool.serve("last")

    handler(shop.app, "works", works)
    # Its first heartbeat brings the request to cancel it, which may come before it begins.
    monkeypatch.setattr(Heartbeats, "added", lambda *_: None)
    async with live(ledger, shop.app) as replica:
        monkeypatch.setattr(Claim, "run", pauses)
        await trigger(ledger, "works")
        await committed.wait()
        await replica.unregister(shop.app)
        go_on.set()
        await eventually("it begins", began.is_set)
        assert shop.steps == ["enter"]
        end.set()
        await eventually("it is closed", lambda: shop.steps == ["enter", "close"])
    assert shop.pools[0].served == ["last"]


async def test_a_lifespan_that_does_not_end_is_cancelled(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifespans, "CANCELLED_SECONDS", 0.05)
    release, steps = asyncio.Event(), list[str]()

    @asynccontextmanager
    async def hangs(app: App) -> AsyncIterator[None]:
        yield
        steps.append("closing")
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                steps.append("cancelled")

    app = App("hangs", lifespan=hangs)
    with capture_logs() as logs:
        replica = live(ledger, app, drain_timeout="10ms")
        await replica.start()
        monkeypatch.setattr("cronledger.engine.runtime.runtime.CLOSE_SECONDS", 0.05)
        await replica.drain()
    assert steps == ["closing", "cancelled"]
    (line,) = [x for x in logs if x["event"] == "lifespan_not_closed"]
    assert (line["app"], line["ended"]) == ("hangs", False)
    assert ledger.rows("SELECT state FROM runners") == [{"state": "stopped"}]
    release.set()


def breaking(
    breaks: asyncio.Event, *, silently: bool
) -> Callable[[App], AbstractAsyncContextManager[None]]:
    """A lifespan with a task that raises once `breaks` is set. `silently`: it suppresses that."""

    async def works_in_the_background() -> None:
        await breaks.wait()
        raise ConnectionResetError("the broker is gone")

    @asynccontextmanager
    async def with_a_task(app: App) -> AsyncIterator[None]:
        with suppress(BaseExceptionGroup) if silently else nullcontext():
            async with asyncio.TaskGroup() as group:
                group.create_task(works_in_the_background())
                yield

    return with_a_task


@pytest.mark.parametrize("silently", [False, True], ids=["with an error", "silently"])
@pytest.mark.long
async def test_of_an_app_whose_lifespan_ends_early_nothing_is_claimed(
    ledger: Ledger, shop: Shop, silently: bool
) -> None:
    breaks = asyncio.Event()
    app = App("breaks", lifespan=breaking(breaks, silently=silently))
    handler(app, "never", lambda: None)
    handler(shop.app, "other", lambda: None)
    with capture_logs() as logs:
        async with live(ledger, app, shop.app, poll_interval="10m") as replica:
            breaks.set()
            await eventually("it is seen", lambda: not replica.health().ready)
            await trigger(ledger, "never")
            await trigger(ledger, "other")
            await eventually("others run", lambda: status(ledger, "other") == "SUCCESS")
            await eventually("it is published", lambda: published(ledger) == ["other"])
            assert status(ledger, "never") == "PENDING"
            (failing,) = replica.health().failing
            assert failing.startswith("lifespan ")
            breaks.clear()
            await replica.register(app)  # which enters it anew
            await eventually("it runs", lambda: status(ledger, "never") == "SUCCESS")
            assert replica.health().ready
            breaks.set()
            await eventually("it is seen again", lambda: not replica.health().ready)
            assert (await replica.unregister(app)).retired == ("never",)
            assert replica.health().ready
    assert [x["app"] for x in logs if x["event"] == "lifespan_failed"] == ["breaks"] * 2


async def test_an_abort_does_not_wait_for_lifespans_that_hang(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = list[str]()
    replica = live(ledger, hanging(steps), drain_timeout="10m")
    await replica.start()
    drain = asyncio.ensure_future(replica.drain())
    await eventually("it closes", lambda: "closing" in steps)
    monkeypatch.setattr("cronledger.engine.runtime.runtime.CLOSE_SECONDS", 0.05)
    async with asyncio.timeout(120):  # less than drain_timeout
        await replica.abort()
    assert steps == ["enter", "closing", "cancelled"]
    await drain


async def test_no_lifespan_begins_after_a_drain(ledger: Ledger, shop: Shop) -> None:
    steps = list[str]()
    async with live(ledger, App("host")) as replica:
        first = asyncio.ensure_future(replica.register(hanging(steps, start=True)))
        await eventually("it begins", lambda: steps)
        second = asyncio.ensure_future(replica.register(shop.app))
        third = asyncio.ensure_future(replica.unregister(shop.app))
        await asyncio.sleep(0)  # they wait for the first one
    ended = await asyncio.gather(first, second, third, return_exceptions=True)
    assert [type(error) for error in ended] == [LifespanError, RuntimeError, RuntimeError]
    assert shop.steps == []


def published(ledger: Ledger) -> list[str]:
    (row,) = ledger.rows("SELECT handlers FROM runners")
    return [name.partition(":")[2] for name in row["handlers"]]
