"""A network that acknowledges what is sent and passes nothing on: no socket ever fails."""

import psycopg
import pytest

from cronledger.ledger import connections
from cronledger.ledger.access import Access
from cronledger.ledger.database_errors import is_unreachable
from cronledger.ledger.transactions import step_transaction
from tests.cluster.support.proxy import Proxy
from tests.waiting import PATIENCE


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
