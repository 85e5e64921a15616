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


async def fenced(ledger: Ledger, runner: Runner, fence: psycopg.Connection) -> Lease:
    """Claim an execution, and assert its lease."""
    ledger.job(allow_stale_reentry=True, max_attempts=3, stale_timeout="60 s")
    ledger.trigger()
    (start,) = await runner.settle()
    assert_lease(fence, start)
    return start


def assert_lease(fence: psycopg.Connection, start: Lease) -> None:
    values = [start.claimed.id, start.claimed.token]
    fence.execute("SELECT cronledger.assert_lease(%s, %s)", values)


async def test_heartbeats_and_the_finish_of_the_holder_pass(
    ledger: Ledger, one: Runner, fence: psycopg.Connection
) -> None:
    start = await fenced(ledger, one, fence)
    before = ledger.one("SELECT heartbeat_at FROM executions")
    key = LeaseKey(start.claimed.key, start.claimed.token, start.job.stale_timeout)
    async with one.pool.connection() as c:
        renewed = await one.statements.heartbeat_leases(c, [key])
        assert len(await renewed.fetchall()) == 1  # it was not passed over as busy
    assert ledger.one("SELECT heartbeat_at FROM executions") > before
    await one.finish(start)
    assert ledger.statuses() == ["SUCCESS"]


async def test_thieves_step_over_until_the_transaction_ends(
    ledger: Ledger, fence: psycopg.Connection
) -> None:
    async with runners(ledger.url, {}, {}) as (holder, thief):
        start = await fenced(ledger, holder, fence)
        ledger.expire()
        assert await thief.steal() == []
        assert ledger.one("SELECT lease_token FROM executions") == start.claimed.token
        fence.commit()
        (stolen,) = await thief.steal()
        assert (stolen.claimed.id, stolen.claimed.how) == (start.claimed.id, "stolen")
    with pytest.raises(psycopg.Error, match="its lease is lost") as caught:
        assert_lease(fence, start)
    assert caught.value.sqlstate == "CL001"


@pytest.mark.parametrize("cancelled", [False, True])
async def test_the_sweeper_steps_over_until_the_transaction_ends(
    ledger: Ledger, fence: psycopg.Connection, cancelled: bool
) -> None:
    """A cancel ends nothing either: the end of the execution stays the holder's to write."""
    async with runners(ledger.url, {}, {}) as (holder, other):
        start = await fenced(ledger, holder, fence)
        ledger.edit(allow_stale_reentry=False)  # nobody may steal it
        ledger.expire()
        if cancelled:
            assert ledger.one("SELECT cancel(%s)", start.claimed.id) == "requested"
        await other.sweep()
        assert ledger.statuses() == ["RUNNING"]
        fence.commit()
        await other.sweep()
    ended = ("CANCELLED" if cancelled else "FAILED", "stale_timeout")
    assert ledger.one("SELECT status, error_code FROM executions") == ended
