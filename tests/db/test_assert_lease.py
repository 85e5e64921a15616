"""F31: `assert_lease(id, token)` fences a user's transaction: heartbeats pass, others step over."""

from collections.abc import Iterator

import psycopg
import pytest

from cronledger.engine.lease import Lease
from cronledger.ledger.rows import LeaseKey
from tests.db.support.engine import Ledger, Runner, runners


@pytest.fixture
def fence(database_url: str) -> Iterator[psycopg.Connection]:
    """A user's connection; its transaction is the fence."""
    with psycopg.connect(database_url) as connection:
        yield connection
        connection.rollback()


async def claim(ledger: Ledger, runner: Runner, reentrant: bool) -> Lease:
    ledger.job(allow_stale_reentry=reentrant, max_attempts=3, stale_timeout="60 s")
    ledger.trigger()
    (start,) = await runner.settle()
    return start


def assert_lease(fence: psycopg.Connection, start: Lease) -> None:
    values = [start.claimed.id, start.claimed.token]
    fence.execute("SELECT cronledger.assert_lease(%s, %s)", values)


async def heartbeat(runner: Runner, start: Lease) -> bool:
    """Whether the row was renewed, and not passed over as busy."""
    key = LeaseKey(start.claimed.key, start.claimed.token, start.job.stale_timeout)
    async with runner.pool.connection() as c:
        answer = await runner.statements.heartbeat_leases(c, [key])
        return len(await answer.fetchall()) == 1


async def test_heartbeats_and_the_finish_of_the_holder_pass(
    ledger: Ledger, fence: psycopg.Connection
) -> None:
    async with runners(ledger.url, {}) as (holder,):
        start = await claim(ledger, holder, reentrant=False)
        assert_lease(fence, start)
        before = ledger.one("SELECT heartbeat_at FROM executions")
        assert await heartbeat(holder, start)
        assert ledger.one("SELECT heartbeat_at FROM executions") > before
        await holder.finish(start)
        assert ledger.statuses() == ["SUCCESS"]


async def test_thieves_step_over_until_the_transaction_ends(
    ledger: Ledger, fence: psycopg.Connection
) -> None:
    async with runners(ledger.url, {}, {}) as (holder, thief):
        start = await claim(ledger, holder, reentrant=True)
        assert_lease(fence, start)
        ledger.expire()
        assert await thief.steal() == []
        assert ledger.one("SELECT lease_token FROM executions") == start.claimed.token
        fence.commit()
        (stolen,) = await thief.steal()
        assert (stolen.claimed.id, stolen.claimed.how) == (start.claimed.id, "stolen")
    with pytest.raises(psycopg.Error, match="its lease is lost") as caught:
        assert_lease(fence, start)
    assert caught.value.sqlstate == "CL001"


async def test_the_sweeper_steps_over_until_the_transaction_ends(
    ledger: Ledger, fence: psycopg.Connection
) -> None:
    async with runners(ledger.url, {}, {}) as (holder, other):
        start = await claim(ledger, holder, reentrant=False)
        assert_lease(fence, start)
        ledger.expire()
        await other.sweep()
        assert ledger.statuses() == ["RUNNING"]
        fence.rollback()
        await other.sweep()
        assert ledger.statuses() == ["FAILED"]
        assert ledger.one("SELECT error_code FROM executions") == "stale_timeout"


async def test_cancel_ends_nothing_under_a_fence(ledger: Ledger, fence: psycopg.Connection) -> None:
    """The request reaches the holder; the end of the execution stays the holder's to write."""
    async with runners(ledger.url, {}, {}) as (holder, other):
        start = await claim(ledger, holder, reentrant=False)
        assert_lease(fence, start)
        ledger.expire()
        assert ledger.one("SELECT cancel(%s)", start.claimed.id) == "requested"
        await other.sweep()
        assert ledger.statuses() == ["RUNNING"]
        fence.commit()
        await other.sweep()
        assert ledger.statuses() == ["CANCELLED"]
