"""The jobs, and the resources that their handlers share."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel, Field

from cronledger import App, Context, Result

BERLIN = ZoneInfo("Europe/Berlin")


class Invoice(BaseModel):
    """The payload of `send`, and the body of a request."""

    number: int
    customer: str
    cents: int = Field(gt=0)


class MailServerError(Exception):
    """The mail server does not respond."""


@dataclass
class Mailer:
    """Stands for a mail server: `sent` has the keys of the mails, and each key is sent once."""

    sent: dict[str, Invoice] = field(default_factory=dict)

    async def send(self, invoice: Invoice, key: str) -> None:
        """Send an invoice. Raises MailServerError."""
        self.sent.setdefault(key, invoice)


@dataclass
class Resources:
    """What handlers receive by the types of their parameters."""

    pool: AsyncConnectionPool
    mailer: Mailer


@asynccontextmanager
async def resources(app: App) -> AsyncIterator[Resources]:
    """Open the resources of a replica."""
    url = os.environ["CRONLEDGER_DATABASE_URL"]
    async with AsyncConnectionPool(url, min_size=1, open=False) as pool:
        yield Resources(pool, Mailer())


app = App("invoicing", lifespan=resources)


@app.job(max_attempts=4, retry_backoff=["1m", "10m"], retry_on=[MailServerError, "timeout"])
async def send(ctx: Context, payload: Invoice, pool: AsyncConnectionPool, mailer: Mailer) -> str:
    """Send an invoice. The id of the execution is the same in each attempt."""
    await mailer.send(payload, key=str(ctx.execution_id))
    async with pool.connection() as conn:
        await conn.execute(
            "UPDATE invoices SET sent_at = now() WHERE number = %s", [payload.number]
        )
    return f"sent {payload.number}"


@app.job("30 2 * * *", timezone="Europe/Berlin", max_attempts=3, allow_stale_reentry=True)
async def close_day(ctx: Context) -> Result:
    """Close a day exactly once: its row commits together with the SUCCESS."""
    day = ctx.plan_time.astimezone(BERLIN).date()
    async with ctx.transaction() as conn:
        made = await conn.execute(
            "INSERT INTO closed_days SELECT %s, count(*) FROM invoices", [day]
        )
    return Result(day.isoformat(), rows_affected=made.rowcount)
