"""What firings cost in commits and statements, counted: times depend on the machine."""

from datetime import timedelta
from typing import Any

import pytest
from psycopg import AsyncCursor

from cronledger.ledger.connections import COMMIT, StepConnection
from tests.db.support.engine import Ledger, Runner, runners

WRITES = "SELECT pg_current_xact_id_if_assigned() IS NOT NULL"


async def fire(ledger: Ledger, runner: Runner, due: int) -> None:
    """A minute passes, and everything that became due starts and succeeds."""
    ledger.pass_time(timedelta(minutes=1))
    await runner.live_through()
    assert len(await runner.settle()) == due
    await runner.finish_all()


@pytest.mark.parametrize("due", [1, 100])
async def test_firings_that_are_due_together_share_their_commits_and_statements(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, due: int
) -> None:
    ends: list[AsyncCursor[Any]] = []
    execute = StepConnection.execute

    async def note_end(c: StepConnection, query: Any, *rest: Any, **more: Any) -> AsyncCursor[Any]:
        if query == COMMIT:
            ends.append(await execute(c, WRITES, prepare=False))
        return await execute(c, query, *rest, **more)

    ledger.stop_clock(ledger.now())
    ledger.job(schedule="* * * * *", scope_kind="shard", scopes=[f"s{n}" for n in range(due)])
    async with runners(ledger.url, {"notified": False}) as (runner,):
        await runner.run_due()
        await fire(ledger, runner, due)  # connections, plans and caches are new
        names = runner.record()
        monkeypatch.setattr(StepConnection, "execute", note_end)
        await fire(ledger, runner, due)
        commits = [await cursor.fetchone() for cursor in ends]
    assert names[1:] == [  # after the check-in of this test
        "claim_look", "try_claim_new", "advance_schedules", "next_due", "finish_executions",
        "rearm_unblocked", "has_waiting",
    ]  # fmt: skip
    # The claim and the finish write. The search for what waited for them does not.
    assert commits == [(True,), (True,), (False,)]
