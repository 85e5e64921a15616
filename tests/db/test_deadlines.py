"""Deadlines: which plan_times have them, when a breach is recorded and closed, and what is counted."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cronledger.audit.verify import verify
from cronledger.rules import outcome
from tests.db.support.engine import Ledger, Runner, runners

MINUTE = timedelta(minutes=1)
BERLIN, SANTIAGO = "Europe/Berlin", "America/Santiago"
SPRING, AUTUMN = datetime(2027, 3, 27, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)


@pytest.fixture
async def one(ledger: Ledger, database_url: str) -> AsyncIterator[Runner]:
    async with runners(database_url, {}) as (made,):
        yield made


def breaches(ledger: Ledger, *columns: str) -> list[Any]:
    listed = ", ".join(columns or ("kind", "plan_time", "deadline"))
    return ledger.values(f"SELECT {listed} FROM breaches ORDER BY plan_time, kind")


def compliance(ledger: Ledger) -> list[Any]:
    return ledger.values(
        "SELECT month::text, deadlines, met, met_late, missed FROM compliance ORDER BY 1"
    )


def wrong(url: str) -> list[str]:
    return [str(one) for one in verify(url) if one.kind == "wrong_breach"]


async def look(ledger: Ledger, runner: Runner, at: datetime) -> None:
    """Time has come to `at`, and the sweeper has looked."""
    ledger.travel(to=at)
    await runner.repair()


async def test_f67_a_start_in_time_is_met_and_a_late_one_is_a_breach(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(schedule="* * * * *", start_by="10s", grace="1 h", overlap="wait")
    await one.settle()
    first = ledger.travel(by=MINUTE).replace(second=0, microsecond=0)
    ledger.travel(to=first + timedelta(seconds=5))
    (start,) = await one.settle()
    await one.finish(start)
    second = first + MINUTE
    await look(ledger, one, second + timedelta(seconds=5))
    assert breaches(ledger) == []
    await look(ledger, one, second + timedelta(seconds=12))
    deadline = second + timedelta(seconds=10)
    assert breaches(ledger) == [("start_by", second, deadline)]
    await one.settle()
    await look(ledger, one, second + timedelta(seconds=30))
    assert breaches(ledger, "closed_at IS NULL") == [False]
    assert [row[1:] for row in compliance(ledger)] == [(2, 1, 1, 0)]
