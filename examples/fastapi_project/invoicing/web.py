"""The web application: `uvicorn invoicing.web:api`.

Each of its processes runs a replica, and serves the page of the ledger below /ops/cron.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, TypedDict

from fastapi import Depends, FastAPI, HTTPException, Request
from psycopg_pool import AsyncConnectionPool
from starlette.requests import HTTPConnection

from cronledger.contrib.starlette import cronledger_lifespan
from cronledger.web import create_app
from cronledger.web.access.identity import Identity, Role
from invoicing.jobs import Invoice, app, send

CREDIT = 100_000


class State(TypedDict):
    """What requests share."""

    pool: AsyncConnectionPool


def identify(request: HTTPConnection) -> Identity | None:
    """Return who opens the page: the user whom the proxy in front of this program signed in."""
    user = request.headers.get("x-user")
    return None if user is None else Identity(user, Role.OPERATOR)


page = create_app(identify=identify)


@asynccontextmanager
async def own(web: FastAPI) -> AsyncIterator[State]:
    """Start the page, and open the pool of the requests.

    Handlers have a pool of their own, also beside a web server.
    """
    url = os.environ["CRONLEDGER_DATABASE_URL"]
    async with (
        page.router.lifespan_context(page),
        AsyncConnectionPool(url, min_size=1, open=False) as pool,
    ):
        yield {"pool": pool}


api = FastAPI(lifespan=cronledger_lifespan(app, lifespan=own))
api.mount("/ops/cron", page)


def pool_of(request: Request) -> AsyncConnectionPool:
    """Return the pool of the requests."""
    pool: AsyncConnectionPool = request.state.pool
    return pool


@api.post("/invoices", status_code=202)
async def create(
    invoice: Invoice, pool: Annotated[AsyncConnectionPool, Depends(pool_of)]
) -> dict[str, int]:
    """Store an invoice and enqueue its mail: both, or none of them if this raises."""
    async with pool.connection() as conn:
        await conn.execute(
            "INSERT INTO invoices (number, customer, cents) VALUES (%s, %s, %s)",
            [invoice.number, invoice.customer, invoice.cents],
        )
        made = await send.enqueue_async(invoice, conn=conn)
        cursor = await conn.execute(
            "SELECT sum(cents) > %s FROM invoices WHERE customer = %s", [CREDIT, invoice.customer]
        )
        if await cursor.fetchone() == (True,):
            raise HTTPException(409, "no more credit")
    return {"execution": made}
