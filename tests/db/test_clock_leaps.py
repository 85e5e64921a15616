"""A leap of the database's clock makes every live lease look stale before anybody has noticed it;
and a process that stood still past its lease begins nothing. Found by the simulation.
"""

from collections.abc import Sequence
from datetime import timedelta

from cronledger.engine.lease import Lease
from tests.db.support.engine import LONG_AGO, Ledger, runners
from tests.db.support.whole_replica import Whole

HOUR = timedelta(hours=1)


async def test_i6_i7_a_leap_that_nobody_has_noticed_steals_and_sweeps_nothing(
    ledger: Ledger,
) -> None:
    ledger.job("again", allow_stale_reentry=True)
    ledger.job("once")
    for name in ("again", "once"):
        ledger.trigger(name)
    async with runners(ledger.url, {}, {}) as (one, two):
        await one.settle()
        two.trust()
        two.dispatcher.steal_at = LONG_AGO
        ledger.travel(by=HOUR)
        assert await two.step() == []
        assert ledger.values("SELECT runner_id, attempt FROM executions") == [("r1", 1)] * 2
        assert two.clock.trusted_since is not None
        assert two.clock.trusted_since > ledger.now() - timedelta(minutes=1)
        two.trust()
        ledger.travel(by=HOUR)
        for _ in range(2):
            await two.sweeper.sweep()
            assert ledger.statuses("once") == ["RUNNING"]
            two.trust()


async def test_i7_a_claim_that_is_older_than_its_lease_starts_no_handler(whole: Whole) -> None:
    begun: list[int] = []

    async def late() -> None:
        begun.append(1)

    job = whole.job(late, stale_timeout=timedelta(seconds=60), allow_stale_reentry=True)
    async with whole.replica() as replica:
        parts = replica._runtime.components
        start = parts.executor.start

        def delayed(leases: Sequence[Lease]) -> None:
            # SIGSTOP between the COMMIT of the claim and here, for longer than the lease.
            parts.dispatcher.leased.then(start)
            start([Lease(x.claimed, x.job, x.sent - 60) for x in leases])

        parts.dispatcher.leased.then(delayed)
        ended = await whole.run(job)
    assert (ended["status"], ended["attempt"]) == ("SUCCESS", 2)
    assert begun == [1], "the first attempt was past its lease when it was to begin"
