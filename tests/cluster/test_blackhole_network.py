"""A network that acknowledges what is sent and passes nothing on: no socket ever fails."""

import psycopg
import pytest

from cronledger.ledger import connections
from cronledger.ledger.access import Access
from cronledger.ledger.database_errors import is_unreachable
from cronledger.ledger.transactions import step_transaction
from tests.cluster.support.harness import Cluster, instant
from tests.cluster.support.proxy import Proxy
from tests.waiting import PATIENCE, until

JOBS = ("fenced_async", "fenced_command")
SCOPES = 50


@pytest.mark.long
def test_the_old_handler_has_ended_before_the_thief_starts(cluster: Cluster) -> None:
    """100 trials in one run: 50 async handlers and 50 commands are black-holed at one instant.

    The end of the old one is its last life sign, the start of the thief the instant of the
    database at which it won the lease, which lies before anything its handler does.
    """
    with Proxy(cluster.url) as proxy:
        old = cluster.start("fence", url=proxy.dsn, runner_id="old", slots=2 * SCOPES)
        cluster.trigger(*JOBS)
        until("all are alive", lambda: len(_trials(cluster)) == 2 * SCOPES)
        cluster.start("fence", runner_id="thief", slots=2 * SCOPES)
        proxy.black_hole()
        until("all are stolen", lambda: len(cluster.executions("SUCCESS")) == 2 * SCOPES)
        offset = cluster.clock_offset()
        rows = cluster.executions()
        assert {(row["runner_id"], row["attempt"]) for row in rows} == {("thief", 2)}
        ends = _trials(cluster)
        gaps = {
            (row["job_name"], row["scope_id"]): instant(row["started_at"])
            + offset
            - ends[row["job_name"], row["scope_id"]]
            for row in rows
        }
        print(f"gaps: {min(gaps.values()):.3f} s to {max(gaps.values()):.3f} s")
        late = {trial: gap for trial, gap in gaps.items() if gap <= 0}
        assert len(gaps) == 2 * SCOPES
        assert not late, f"{len(late)} of {len(gaps)} old handlers lived beside the thief: {late}"
        # The old one comes back, and nothing of what it held counts.
        proxy.heal()
        until("the old one reports", lambda: len(old.events("lease_lost")) == 2 * SCOPES)
        assert cluster.executions() == rows


def _trials(cluster: Cluster) -> dict[tuple[str, str], float]:
    """The last life sign of every first attempt."""
    return {(m.job, m.scope): m.at for m in cluster.marks() if m.attempt == 1}


async def test_a_step_does_not_wait_for_ever(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Proxy(database_url) as proxy:
        pool = Access(proxy.dsn).pool("hung", 1)
        await pool.open()
        try:
            async with pool.connection() as c, step_transaction(c):
                await c.execute("SELECT 1")
            proxy.black_hole()
            with monkeypatch.context() as patch:  # only here: a busy machine may be slower
                patch.setattr(connections, "HUNG_SECONDS", 0.2)
                with pytest.raises(psycopg.OperationalError) as raised:
                    async with pool.connection() as c, step_transaction(c):
                        await c.execute("SELECT 1")
            assert is_unreachable(raised.value)
            proxy.heal()
            async with pool.connection(PATIENCE) as c:
                assert await (await c.execute("SELECT 1")).fetchone() == (1,)
        finally:
            await pool.close()
