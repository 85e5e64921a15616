"""Claims ahead: schedules are locked and planned before they are due, and rows are written then.

Here a claim looks two minutes ahead instead of 10 ms, and the clock of the ledger travels to the
instant while the claim is between its look and its writes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from cronledger.audit.verify import verify
from cronledger.engine.claiming import request
from cronledger.testing import Travel
from tests.db.support.engine import Ledger, Runner, runners
from tests.db.support.rows import connected, start_blocked
from tests.waiting import eventually

DUE = datetime(2031, 5, 7, 12, 0, tzinfo=UTC)
BEFORE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def far_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "AHEAD", 2 * BEFORE)


@pytest.fixture
async def one(ledger: Ledger, database_url: str) -> AsyncIterator[Runner]:
    """A runner at a minute before noon, and the job `noon`."""
    ledger.travel(to=DUE - timedelta(minutes=5))
    ledger.values("SELECT count(*) FROM maintain_partitions()")
    ledger.job("noon", schedule="0 12 * * *")
    async with runners(database_url, {}) as (runner,):
        await runner.settle()
        ledger.travel(to=DUE - BEFORE)
        await runner.live_through()
        yield runner


def _sent(runner: Runner, before: dict[str, Callable[[], object]] | None = None) -> list[str]:
    """The names of the statements that it sends from now on.

    `before`: what happens before a statement of that name is sent for the first time.
    """
    names: list[str] = []
    actions = dict(before or {})
    statements = runner.statements
    real = statements._send

    async def send(c: Any, name: str, *rest: Any) -> Any:
        names.append(name)
        if name in actions:
            actions.pop(name)()
        return await real(c, name, *rest)

    statements._send = send  # type: ignore[method-assign,assignment]
    return names


async def test_i8_everything_but_the_writes_precedes_the_instant(
    ledger: Ledger, one: Runner
) -> None:
    looked_at: list[datetime] = []

    def travel() -> None:
        looked_at.append(ledger.now())
        ledger.travel(to=DUE)

    names = _sent(one, {"sleep_until": travel})
    (lease,) = await one.step()

    assert looked_at[0] < DUE <= lease.claimed.started_at
    assert names.index("claim_look") < names.index("sleep_until")
    assert names[names.index("sleep_until") :] == [
        "sleep_until", "try_claim_new", "advance_schedules", "next_due",
    ]  # fmt: skip
    assert ledger.accounted("noon") == 1
    await one.settle()
    assert ledger.statuses("noon") == ["RUNNING"]


async def test_i8_a_clock_that_leaps_back_while_it_waits_starts_nothing(
    ledger: Ledger, one: Runner
) -> None:
    before = _schedule(ledger)

    def leap() -> None:
        # The wait ends by the clock before the leap. The statements after it see the time after it.
        ledger.values(
            "CREATE OR REPLACE FUNCTION db_clock() RETURNS timestamptz LANGUAGE sql VOLATILE"
            f" AS $$ SELECT timestamptz '{DUE.isoformat()}' $$"
        )

    names = _sent(one, {"sleep_until": leap})

    assert await one.step() == []
    assert "try_claim_new" in names
    assert ledger.statuses("noon") == []
    assert _schedule(ledger) == before
    assert one.claimer.unknown_commits._executions == {}

    Travel(ledger.url).close()  # puts the clock back
    ledger.travel(to=DUE)
    await one.live_through()
    assert len(await one.settle()) == 1
    assert ledger.accounted("noon") == 1


async def test_a_queue_that_is_paused_meanwhile_starts_nothing(ledger: Ledger, one: Runner) -> None:
    before = _schedule(ledger)

    def pause() -> None:
        ledger.values("SELECT pause_queue('default', 'trouble')")
        ledger.travel(to=DUE)

    names = _sent(one, {"sleep_until": pause})

    assert await one.step() == []
    assert "try_claim_new" in names
    assert ledger.statuses("noon") == []
    assert _schedule(ledger) == before


async def test_i11_a_queue_that_is_limited_meanwhile_keeps_its_limit(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job("other", schedule=None)
    ledger.trigger("other")
    assert len(await one.settle()) == 1

    def limit() -> None:
        ledger.values("INSERT INTO queues (name, max_running) VALUES ('default', 1)")
        ledger.travel(to=DUE)

    names = _sent(one, {"sleep_until": limit})

    assert await one.step() == []
    assert names.count("try_claim_new") == 1
    assert ledger.statuses("noon") == []
    assert ledger.parked("noon") == "limit"


async def test_i2_the_backend_dies_between_the_look_and_the_writes(
    ledger: Ledger, one: Runner
) -> None:
    before = _schedule(ledger)
    for name in ("sleep_until", "try_claim_new", "advance_schedules", "next_due"):
        names = _sent(one, {name: lambda: _terminate_all(ledger)})
        with pytest.raises(psycopg.OperationalError):
            await one.step()
        assert name in names
        assert ledger.statuses("noon") == []
        assert _schedule(ledger) == before
    ledger.travel(to=DUE)
    await one.live_through()
    assert len(await one.settle()) == 1
    assert ledger.accounted("noon") == 1


async def test_i2_a_claim_that_is_cancelled_while_it_waits_writes_nothing(
    ledger: Ledger, one: Runner
) -> None:
    before = _schedule(ledger)
    step = asyncio.create_task(one.step())
    await eventually("it waits for the instant", lambda: _asleep(ledger))
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step

    assert ledger.statuses("noon") == []
    assert _schedule(ledger) == before
    ledger.travel(to=DUE)
    await one.live_through()
    assert len(await one.settle()) == 1
    assert ledger.statuses("noon") == ["RUNNING"]


async def test_an_edit_or_a_pause_waits_and_takes_effect_after_the_start(
    ledger: Ledger, one: Runner, database_url: str
) -> None:
    edits: list[Any] = []
    with connected(database_url) as watcher, connected(database_url) as other:

        def edit() -> None:
            pause = "SELECT cronledger.pause('noon', reason => 'trouble')"
            edits.append(start_blocked(watcher, other, lambda: other.execute(pause.encode())))
            ledger.travel(to=DUE)

        names = _sent(one, {"sleep_until": edit})
        (lease,) = await one.step()
        await asyncio.wrap_future(edits[0])

    assert "sleep_until" in names
    paused_from = ledger.one(
        "SELECT max(effective_from) FROM job_revisions WHERE job_name = 'noon' AND state = 'paused'"
    )
    assert DUE <= lease.claimed.started_at <= paused_from
    await one.finish(lease)
    assert [str(violation) for violation in verify(database_url)] == []
    assert ledger.accounted("noon") == 1


async def test_what_is_due_now_never_waits_for_what_is_due_soon(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job("now", schedule=None)
    await one.settle()
    ledger.travel(to=DUE - BEFORE)
    await one.live_through()
    ledger.trigger("now")
    names = _sent(one)

    (lease,) = await one.step()

    assert lease.claimed.key.job_name == "now"
    assert "sleep_until" not in names
    assert ledger.statuses("noon") == []


async def test_an_overdue_schedule_never_waits_for_the_next_one(
    ledger: Ledger, one: Runner
) -> None:
    ledger.travel(to=DUE - timedelta(minutes=4))
    ledger.job("early", schedule="59 11 * * *")
    await one.settle()
    ledger.travel(to=DUE - BEFORE)
    await one.live_through()
    names = _sent(one)

    started = await one.step()

    assert [x.claimed.key.job_name for x in started] == ["early"]
    assert "sleep_until" not in names


@pytest.mark.parametrize("left", ["limited job", "limited queue", "running", "external", "later"])
async def test_what_may_change_until_then_is_left_to_the_claim_at_that_instant(
    ledger: Ledger, one: Runner, left: str
) -> None:
    if left == "limited job":
        ledger.edit("noon", max_running=3)
    elif left == "limited queue":
        ledger.values("INSERT INTO queues (name, max_running) VALUES ('default', 3)")
    elif left == "external":
        ledger.edit("noon", handler="external", target={})
    elif left == "running":
        ledger.trigger("noon")
        await one.settle()
    else:  # what is due by more than a millisecond after the first one
        ledger.job("first", schedule="59 59 11 * * *")
    await one.settle()
    ledger.travel(to=DUE - BEFORE)
    await one.live_through()
    names = _sent(one, {"sleep_until": lambda: ledger.travel(to=DUE - timedelta(seconds=1))})

    started = await one.step()

    assert [x.claimed.key.job_name for x in started] == (["first"] if left == "later" else [])
    assert ("sleep_until" in names) == (left == "later")
    assert ledger.values("SELECT count(*) FROM skips WHERE job_name = 'noon'") == [0]
    assert ledger.one(
        "SELECT count(*) FROM executions WHERE job_name = 'noon' AND plan_time = %s", DUE
    ) == 0  # fmt: skip


def _schedule(ledger: Ledger) -> list[Any]:
    return ledger.values(
        "SELECT planned_through, next_plan_time, next_due_at, parked FROM schedules"
        " WHERE job_name = 'noon'"
    )


def _asleep(ledger: Ledger) -> bool:
    return bool(
        ledger.values(
            "SELECT pid FROM pg_stat_activity"
            " WHERE wait_event = 'PgSleep' AND datname = current_database()"
        )
    )


def _terminate_all(ledger: Ledger) -> None:
    ledger.values(
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
        " WHERE application_name LIKE 'test r1%%' AND datname = current_database()"
    )
