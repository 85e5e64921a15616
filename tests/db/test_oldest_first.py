"""What is due longest starts first, whichever queue it is in."""

from datetime import timedelta

import pytest

from tests.db.support.engine import Ledger, runners


@pytest.mark.parametrize("older", ["a", "b"])
@pytest.mark.parametrize("queues", [("a", "b"), ("b", "a")])
async def test_of_two_queues_with_one_slot_the_older_schedule_starts(
    ledger: Ledger, database_url: str, older: str, queues: tuple[str, ...]
) -> None:
    now = ledger.now()
    for queue in "ab":
        due = now + timedelta(minutes=10 if queue == older else 20)
        ledger.job(queue, schedule=f"{due.minute} * * * *", queue=queue)
    async with runners(database_url, {"queues": queues, "slots": 1}) as (one,):
        assert await one.settle() == []
        ledger.travel(by=timedelta(minutes=30))
        await one.step()
    assert [x.claimed.key.job_name for x in one.held] == [older]
