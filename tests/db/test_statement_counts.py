"""How many statements a claim takes, whatever the number of jobs and executions."""

from tests.db.support.engine import Ledger, Runner

JOBS = 12


async def test_a_claim_takes_the_same_statements_for_many_as_for_one(
    ledger: Ledger, one: Runner
) -> None:
    for number in range(JOBS):
        ledger.job(f"job{number:02}", schedule="0 * * * *")
    ledger.job("manual", schedule=None, overlap="allow")
    ledger.trigger("manual")
    await one.settle()
    names = one.record()
    for _ in range(2):  # the first hour: the revisions are read, and then known
        await one.finish_all()
        ledger.travel(by="1h")
        names.clear()
        assert len(await one.step()) == JOBS
    assert names == ["claim_look", "try_claim_new", "advance_schedules", "next_due"]
    for _ in range(JOBS):
        ledger.trigger("manual")
    names.clear()
    assert len(await one.step()) == JOBS
    assert names == ["claim_look", "next_due"]
