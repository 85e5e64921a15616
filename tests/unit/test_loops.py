"""What the loops of a replica say of trouble: once, however often it comes back."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from cronledger.engine import log_throttle
from cronledger.engine.maintenance.listener import Listener
from cronledger.engine.runtime import loops as module
from cronledger.engine.runtime.loops import Loops
from cronledger.ledger.access import Access

AWAY = psycopg.OperationalError("the server closed the connection")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "BACKOFF", (0.0,))
    yield


class Steps:
    """A step that raises what it is told to, then waits to be told more."""

    def __init__(
        self,
        *errors: Exception | None,
        before: Callable[[], object] = lambda: None,
        succeeded: Callable[[], object] = lambda: None,
    ) -> None:
        self._errors = list(errors)
        self._before, self._succeeded = before, succeeded
        self.done = asyncio.Event()

    async def __call__(self) -> float | None:
        self._before()
        if not self._errors:
            self.done.set()
            return None
        error = self._errors.pop(0)
        if error is not None:
            raise error
        self._succeeded()
        return 0.0


async def _logged(
    made: Loops,
    step: Callable[[], Awaitable[float | None]],
    done: asyncio.Event,
    observes_clock: bool = False,
) -> list[MutableMapping[str, Any]]:
    """Return what is logged until the step has set `done`."""
    with capture_logs() as logs:
        made.drive("one", step, observes_clock=observes_clock)
        await asyncio.wait_for(done.wait(), 90)
        await made.halt()
    return logs


FULL = psycopg.errors.DiskFull("no space left")


@pytest.mark.parametrize(
    ("results", "errors"),
    [
        ([FULL, None, FULL, None, FULL], ["no space left"]),  # each time it has something to write
        ([FULL, None, ValueError("first\nsecond"), None], ["no space left", "first"]),
        ([AWAY] * 12, [str(AWAY)]),  # it alone keeps failing
    ],
    ids=["repeated", "different", "of one loop"],
)
async def test_each_error_of_a_loop_is_logged_once(
    results: list[Exception | None], errors: list[str]
) -> None:
    steps = Steps(*results)
    logs = await _logged(Loops(), steps, steps.done)
    assert [(entry["event"], entry["error"]) for entry in logs] == [
        ("step_failed", error) for error in errors
    ]


@pytest.mark.long
async def test_an_error_that_lasts_is_reported_for_a_minute_after_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Loops()
    for name, errors in (("once", [FULL]), ("twice", [FULL, FULL]), ("away", [AWAY, AWAY])):
        steps = Steps(*errors, None)
        made.drive(name, steps)
        await asyncio.wait_for(steps.done.wait(), 90)
    assert (list(made.failed()), made.failing()) == (["twice"], {})
    monkeypatch.setattr(module, "FAILED_SECONDS", 0.0)
    assert made.failed() == {}
    await made.halt()


async def test_a_connection_for_listen_that_comes_and_goes_is_logged_once_a_minute() -> None:
    listener = Listener(Access("postgresql:///unused"), "cronledger")
    with capture_logs() as logs:
        for _ in range(3):
            await listener._failed("refused")
            listener._restored()
        await listener._failed("timeout")
    assert [(x["event"], x.get("error")) for x in logs] == [
        ("listen_failed", "refused"), ("listen_restored", None), ("listen_failed", "timeout"),
    ]  # fmt: skip


def observed(events: list[str]) -> Loops:
    """Loops that note when trust in the database's clock is given up, or a connection suspected."""
    made = Loops()
    made.unreachable.then(lambda: events.append("distrusted"))
    made.suspected.then(lambda: events.append("suspected"))
    return made


async def test_a_loop_that_does_not_read_the_clock_costs_no_trust() -> None:
    """Its connection alone may be lost; whether the database is away, the clock's loops find out"""
    events, turn = list[str](), asyncio.Event()
    made = observed(events)

    async def refused() -> float | None:
        if made.stats()["sweeper"].failures == 5:
            turn.set()
        raise AWAY

    with capture_logs() as logs:
        made.drive("sweeper", refused)
        await asyncio.wait_for(turn.wait(), 90)
        assert made.failing() == {"sweeper": str(AWAY)}
        await made.halt()
    assert (set(events), made.away_since) == ({"suspected"}, None)
    assert len(events) >= 5
    assert logs == []


async def test_an_outage_of_one_loop_beside_replies_of_another_is_logged_once() -> None:
    """As a claim whose connection breaks each time, while the check_in is answered."""
    events, turn = list[str](), asyncio.Event()
    made = observed(events)

    async def refused() -> float | None:
        made.answered()  # by the check_in
        if made.stats()["one"].failures == 5:
            turn.set()
        raise AWAY

    logs = await _logged(made, refused, turn, observes_clock=True)
    assert [entry["event"] for entry in logs] == ["database_unreachable", "database_recovered"]
    assert events.count("distrusted") > 1


async def test_each_new_reason_of_an_outage_is_logged_once_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, reasons = [100.0], ["refused", "refused", "starting up", "refused", "refused"]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    monkeypatch.setattr(log_throttle, "monotonic", lambda: now[0])
    made, done = observed([]), asyncio.Event()

    async def refused() -> float | None:
        now[0] += 20
        if not reasons:
            done.set()
            made.answered()
            return None
        raise psycopg.OperationalError(reasons.pop(0))

    logs = await _logged(made, refused, done, observes_clock=True)
    assert [(x["event"], x.get("error"), x["outage_s"]) for x in logs] == [
        ("database_unreachable", "refused", 0.0),
        ("database_unreachable", "starting up", 40.0),
        ("database_unreachable", "refused", 60.0),
        ("database_recovered", None, 100.0),
    ]


async def test_an_outage_right_after_another_is_logged() -> None:
    made = observed([])
    steps = Steps(AWAY, None, AWAY, None, succeeded=made.answered)
    logs = await _logged(made, steps, steps.done, observes_clock=True)
    assert [entry["event"] for entry in logs] == ["database_unreachable", "database_recovered"] * 2


@pytest.mark.parametrize("goes_on", [False, True], ids=["ends", "stands"])
async def test_a_loop_whose_step_swallows_its_cancellation_is_halted(
    monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    """As one that waits for the pool when a connection comes in the tick of its cancellation."""
    monkeypatch.setattr(module, "CANCEL_AGAIN_SECONDS", 0.01)
    made, waits, swallowed = Loops(), asyncio.Event(), asyncio.Event()

    async def deaf() -> float | None:
        waits.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        swallowed.set()
        if goes_on:
            await asyncio.Event().wait()
        return None

    made.drive("deaf", deaf)
    await waits.wait()
    await asyncio.wait_for(made.halt(), 90)
    assert swallowed.is_set()


async def test_a_loop_can_be_made_to_step_earlier_and_not_later() -> None:
    made, steps = Loops(), 0
    stepped = asyncio.Event()

    async def step() -> float | None:
        nonlocal steps
        steps += 1
        stepped.set()
        return None if steps < 3 else 3600.0

    async def next_step() -> None:
        await asyncio.wait_for(stepped.wait(), 90)
        stepped.clear()

    made.drive("one", step)
    await next_step()
    await asyncio.sleep(0)  # it sleeps until it is woken
    made.wake_within("one", 0.001)
    made.wake_within("one", 3600)
    await next_step()
    made.wake_within("one", -1.0)
    await next_step()
    made.wake_within("another", 0.0)
    made.wake("one")
    await next_step()
    assert steps == 4
    await made.halt()


async def test_a_step_that_is_under_way_is_followed_by_the_earlier_one() -> None:
    """What was found meanwhile may be unknown to it."""
    made, steps, goes_on = Loops(), 0, asyncio.Event()
    second = asyncio.Event()

    async def step() -> float | None:
        nonlocal steps
        steps += 1
        if steps == 2:
            second.set()
        await goes_on.wait()
        return None

    made.drive("one", step)
    await asyncio.sleep(0)
    made.wake_within("one", 0.001)
    goes_on.set()
    await asyncio.wait_for(second.wait(), 90)
    await made.halt()


async def test_errors_are_counted_and_the_age_is_that_of_the_last_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    made, ages = Loops(), list[float]()

    def pass_time() -> None:
        now[0] += 10
        ages.append(made.ages()["one"])

    steps = Steps(None, ValueError("no"), None, ValueError("no"), before=pass_time)
    made.drive("one", steps)
    assert made.errors == {"one": 0}
    await asyncio.wait_for(steps.done.wait(), 90)
    assert ages[1:] == [10.0, 20.0, 10.0, 20.0]
    await made.halt()
    assert (made.errors, made.ages()) == ({"one": 2}, {})


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_step_that_follows_at_once_begins_before_other_tasks_run(*, at_once: bool) -> None:
    made, order, over = Loops(), list[str](), asyncio.Event()

    async def other() -> None:
        order.append("other")

    async def step() -> float | None:
        order.append("step")
        if order.count("step") == 1:
            others.append(asyncio.create_task(other()))
            return 0
        await others[0]
        over.set()
        return None

    others: list[asyncio.Task[None]] = []
    made.drive("one", step, at_once=at_once)
    await asyncio.wait_for(over.wait(), 90)
    await made.halt()
    assert order == (["step", "step", "other"] if at_once else ["step", "other", "step"])
