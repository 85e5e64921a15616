"""A network that acknowledges what is sent and passes nothing on: no socket ever fails."""

import psycopg
import pytest

from cronledger.ledger import connections
from cronledger.ledger.access import Access
from cronledger.ledger.database_errors import is_unreachable
from cronledger.ledger.transactions import step_transaction
from tests.cluster.support.proxy import Proxy


async def test_a_step_does_not_wait_for_ever(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HUNG_SECONDS", 0.2)
    with Proxy(database_url) as proxy:
        pool = Access(proxy.dsn).pool("hung", 1)
        await pool.open()
        try:
            async with pool.connection() as c, step_transaction(c):
                await c.execute("SELECT 1")
            proxy.black_hole()
            with pytest.raises(psycopg.OperationalError) as raised:
                async with pool.connection() as c, step_transaction(c):
                    await c.execute("SELECT 1")
            assert is_unreachable(raised.value)
            proxy.heal()
            async with pool.connection() as c:
                assert await (await c.execute("SELECT 1")).fetchone() == (1,)
        finally:
            await pool.close()
