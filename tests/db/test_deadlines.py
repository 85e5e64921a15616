"""Deadlines: which plan_times have them, and when a breach is recorded and closed."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from cronledger.audit.verify import verify
from cronledger.engine.maintenance import deadlines
from tests.db.support.commands import read
from tests.db.support.engine import HOUR, MINUTE, Ledger, Runner, runners


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def breaches(ledger: Ledger, *columns: str) -> list[Any]:
    listed = ", ".join(columns or ("kind", "plan_time", "deadline"))
    return ledger.values(f"SELECT {listed} FROM breaches ORDER BY plan_time, kind")


def compliance(ledger: Ledger) -> list[Any]:
    return ledger.values(
        "SELECT month::text, deadlines, met, met_late, missed FROM compliance ORDER BY 1"
    )


def wrong(ledger: Ledger) -> list[str]:
    return [str(one) for one in verify(ledger.url) if one.kind == "wrong_breach"]


async def look(ledger: Ledger, runner: Runner, at: datetime) -> list[Any]:
    """Time has come to `at`, and the sweeper has looked. Return the breaches."""
    ledger.travel(to=at)
    await runner.repair()
    return breaches(ledger)


async def next_look(runner: Runner) -> datetime:
    """When a check-in wakes the step."""
    at = (await runner.poll()).deadline
    assert at is not None
    return at


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def stored(ledger: Ledger, table: str) -> int:
    return int(ledger.one(f"SELECT count(*) FROM {table}"))


# -- what is judged --------------------------------------------------------------------------------


@pytest.mark.long
async def test_a_start_in_time_is_met_and_a_late_one_is_closed(ledger: Ledger, one: Runner) -> None:
    ledger.job(
        schedule="0 * * * *", start_by="10m", grace="1 h", overlap="wait", stale_timeout="1 h"
    )
    first = ledger.now().replace(minute=0, second=0, microsecond=0) + HOUR
    ledger.travel(to=first + 5 * MINUTE)
    (start,) = await one.settle()
    await one.finish(start)
    second = first + HOUR
    assert await look(ledger, one, second + 5 * MINUTE) == []
    await look(ledger, one, second + 12 * MINUTE)
    assert breaches(ledger) == [("start_by", second, second + 10 * MINUTE)]
    assert breaches(ledger, "closed_at") == [None]
    ledger.travel(to=second + 20 * MINUTE)
    (late,) = await one.settle()
    await look(ledger, one, second + 30 * MINUTE)
    assert breaches(ledger, "closed_at") == [late.claimed.started_at]
    assert [row[1:] for row in compliance(ledger)] == [(2, 1, 1, 0)]
    assert wrong(ledger) == []


@pytest.mark.long
async def test_a_run_is_compared_with_a_multiple_of_a_quantile_of_earlier_ones(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(
        schedule="* * * * *", expect_duration="2*p95", stale_timeout="1 h", catch_up="all",
        catch_up_window="2 h", overlap="wait",
    )  # fmt: skip
    begin = ledger.now().replace(second=0, microsecond=0) + MINUTE
    for number in range(20):
        ledger.travel(to=begin + number * MINUTE + seconds(1))
        (start,) = await one.settle()
        await one.finish(start)
        await one.repair()
    # 19 runs of 300 s and one of 500 s: the quantile is 310 s.
    ledger.values("UPDATE executions SET duration_ms = CASE id WHEN 1 THEN 500000 ELSE 300000 END")
    at = begin + 20 * MINUTE
    ledger.travel(to=at + seconds(1))
    (start,) = await one.settle()
    began = start.claimed.started_at
    assert await look(ledger, one, began + seconds(400)) == []
    await look(ledger, one, began + seconds(900))
    assert breaches(ledger) == [("expect_duration", at, began + seconds(620))]
    ledger.travel(to=began + seconds(1100))
    await one.finish(start)
    assert wrong(ledger) == []
    ledger.values("UPDATE deadline_breaches SET closed_at = %s, look_at = NULL, deadline = %s",
                  began + seconds(3000), began + seconds(2000))  # fmt: skip
    (found,) = wrong(ledger)
    assert "was met, but breaches has a row" in found


async def test_a_cancelled_execution_has_no_finish_by(ledger: Ledger, one: Runner) -> None:
    ledger.job(schedule="* * * * *", start_by="40s", finish_by="45s", handler="external", target={})
    at = ledger.now().replace(second=0, microsecond=0) + MINUTE
    ledger.travel(to=at + seconds(2))
    await one.settle()
    ledger.values("SELECT cancel(id) FROM executions")
    assert await look(ledger, one, at + seconds(50)) == []
    assert compliance(ledger) == []
    assert wrong(ledger) == []


@pytest.mark.long
async def test_a_backfill_closes_and_adds_nothing(ledger: Ledger, one: Runner) -> None:
    ledger.job(schedule="* * * * *", finish_by="10s", catch_up="skip", grace="0 s")
    at = ledger.now().replace(second=0, microsecond=0) + MINUTE
    ledger.travel(to=at + seconds(30))
    await one.settle()
    ledger.edit(schedule="0 0 1 1 *")
    await one.repair()
    assert breaches(ledger, "plan_time") == [at]
    ledger.values("SELECT backfill('job', ARRAY[%s, %s]::timestamptz[])", at - 5 * MINUTE, at)
    while started := await one.settle():
        for start in started:
            await one.finish(start)
    await look(ledger, one, at + 2 * MINUTE)
    assert breaches(ledger, "closed_at IS NULL") == [False]
    assert [row[1:] for row in compliance(ledger)] == [(1, 0, 1, 0)]
    assert wrong(ledger) == []


async def test_the_deadlines_of_a_manual_run_count_from_its_creation(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(start_by="10s", finish_by="13:00", timezone="UTC")
    ledger.travel(to=ledger.now().replace(hour=12, minute=0, second=0, microsecond=0))
    made = ledger.trigger()
    created = ledger.one("SELECT created_at FROM executions")
    await look(ledger, one, created + seconds(20))
    plan_time = ledger.one("SELECT plan_time FROM executions WHERE id = %s", made)
    assert breaches(ledger) == [("start_by", plan_time, created + seconds(10))]
    assert ledger.values("SELECT kind, deadline FROM unjudged_deadlines") == [
        ("finish_by", created.replace(hour=13, minute=0, second=0, microsecond=0))
    ]
    assert wrong(ledger) == []


async def test_messages_and_manual_runs_without_a_valid_time_zone_have_no_deadlines(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job("manual", start_by="06:00", finish_by="15m", timezone="Mars/X")
    ledger.trigger("manual")
    ledger.job("messages", start_by="10s")
    ledger.values("SELECT enqueue('messages')")
    assert await look(ledger, one, ledger.now() + 20 * MINUTE) == []
    assert stored(ledger, "deadlines") == 0
    assert wrong(ledger) == []


# -- edits, clocks, scopes -------------------------------------------------------------------------


@pytest.mark.long
async def test_the_revision_in_force_at_plan_time_decides(ledger: Ledger, one: Runner) -> None:
    ledger.job(schedule="* * * * *", finish_by="10m", grace="1 h", overlap="allow")
    at = ledger.now().replace(second=0, microsecond=0)
    ledger.travel(to=at + MINUTE + seconds(1))
    ledger.edit(finish_by="10s")
    await look(ledger, one, at + 2 * MINUTE + seconds(20))
    assert breaches(ledger) == [("finish_by", at + 2 * MINUTE, at + 2 * MINUTE + seconds(10))]
    ledger.edit(finish_by=None)
    await look(ledger, one, at + 12 * MINUTE)
    assert breaches(ledger, "plan_time", "deadline")[0] == (at + MINUTE, at + 11 * MINUTE)
    assert stored(ledger, "deadlines") == stored(ledger, "deadline_cursors") == 0
    assert len(breaches(ledger)) == 2
    assert wrong(ledger) == []


async def test_months_are_those_of_the_zone(ledger: Ledger, one: Runner) -> None:
    ledger.travel(to=utc("2027-01-31T22:30"))
    ledger.job(schedule="0 * * * *", timezone="Europe/Berlin", finish_by="10s")
    await look(ledger, one, utc("2027-01-31T23:01"))
    assert compliance(ledger) == [("2027-02-01", 1, 0, 0, 1)]


async def test_a_broken_schedule_stops_no_other_job(ledger: Ledger, one: Runner) -> None:
    ledger.job("bad", schedule="99 * * * *", start_by="10s")
    ledger.job("good", schedule="* * * * *", start_by="10s")
    at = ledger.now().replace(second=0, microsecond=0) + MINUTE
    await look(ledger, one, at + seconds(20))
    assert breaches(ledger, "job_name") == ["good"]
    ledger.edit("bad", schedule="* * * * *")
    await look(ledger, one, at + MINUTE + seconds(20))
    assert breaches(ledger, "job_name", "plan_time")[1:] == [
        ("bad", at + MINUTE), ("good", at + MINUTE)
    ]  # fmt: skip
    assert wrong(ledger) == []


# -- exactly once ----------------------------------------------------------------------------------


async def test_a_success_that_becomes_visible_late_is_no_breach(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(schedule="* * * * *", finish_by="10s", stale_timeout="1 h")
    at = ledger.now().replace(second=0, microsecond=0) + MINUTE
    ledger.travel(to=at + seconds(2))
    (start,) = await one.settle()
    await look(ledger, one, at + seconds(12))
    assert len(breaches(ledger)) == 1
    await one.finish(start)
    ledger.values("UPDATE executions SET finished_at = %s", at + seconds(9))
    assert await look(ledger, one, at + seconds(20)) == []
    assert [row[1:] for row in compliance(ledger)] == [(1, 1, 0, 0)]
    assert wrong(ledger) == []


@pytest.mark.long
async def test_verify_finds_what_is_wrong(ledger: Ledger, one: Runner) -> None:
    ledger.job(schedule="* * * * *", start_by="30s", overlap="wait", grace="1 h")
    at = ledger.now().replace(second=0, microsecond=0)
    ledger.travel(to=at + MINUTE + seconds(1))
    (start,) = await one.settle()
    await one.finish(start)
    await look(ledger, one, at + 2 * MINUTE + seconds(40))
    assert wrong(ledger) == []
    ledger.values("UPDATE deadline_breaches SET deadline = deadline - interval '1 s'")
    (found,) = wrong(ledger)
    assert "but it was" in found
    ledger.values("DELETE FROM deadline_breaches")
    (found,) = wrong(ledger)
    assert "was missed, and breaches has no row" in found
    ledger.values(
        "INSERT INTO deadline_breaches (job_name, scope_kind, scope_id, plan_time, kind, revision,"
        " deadline, month, breached_at, closed_at)"
        " SELECT job_name, scope_kind, scope_id, p, k, 1, p + interval '30 s', '2030-01-01', p,"
        " p + interval '1 h' FROM schedules, (VALUES (%s::timestamptz, 'start_by'), (%s,"
        " 'start_by'), (%s, 'finish_by')) v(p, k)", at + MINUTE, at + 2 * MINUTE, at + 2 * MINUTE,
    )  # fmt: skip
    met, extra = sorted(wrong(ledger), key=lambda text: "has no such" in text)
    assert "was met, but breaches has a row" in met
    assert "a row of finish_by, but the plan_time has no such deadline" in extra


# -- idle, bounds, retention -----------------------------------------------------------------------


async def test_an_edit_while_a_plan_time_is_delayed_delays_no_deadline(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(schedule="0 * * * *", finish_by="20m", schedule_delay="10m")
    at = ledger.now().replace(minute=0, second=0, microsecond=0) + 60 * MINUTE
    await look(ledger, one, at + MINUTE)
    ledger.edit(grace="2 h")
    await look(ledger, one, at + 2 * MINUTE)
    assert await next_look(one) <= at + 10 * MINUTE
    assert await look(ledger, one, at + 21 * MINUTE) == [("finish_by", at, at + 20 * MINUTE)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step is one transaction, which plans three scopes, two of them at once."""
    for name, value in (("SCOPES", 3), ("SLICE", 2), ("MOST", 6), ("TRANSACTIONS", 1)):
        monkeypatch.setattr(deadlines, name, value)


MANY = [f"s{n}" for n in range(10)]


@pytest.mark.usefixtures("small")
@pytest.mark.long
async def test_many_scopes_are_planned_in_parts_by_any_replica(ledger: Ledger) -> None:
    ledger.job("big", schedule="* * * * *", start_by="5s", scope_kind="shard", scopes=MANY)
    ledger.job("small", schedule="* * * * *", start_by="5s")
    begin = ledger.now().replace(second=0, microsecond=0) + MINUTE
    async with runners(ledger.url, {}, {}) as made:
        ledger.travel(to=begin + 5 * MINUTE + seconds(30))
        cursor = "SELECT through FROM deadline_cursors WHERE job_name = 'big'"
        first, parts = ledger.one(cursor), 0
        while ledger.one(cursor) == first:
            await made[parts % 2].repair()
            assert wrong(ledger) == []
            parts += 1
        assert parts >= 4
        # The other job did not wait for all scopes of the first one.
        assert ledger.one("SELECT through FROM deadline_cursors WHERE job_name = 'small'") > first
        ledger.edit("big", start_by="6s")
        ledger.edit("big", start_by="5s")
        due = (
            "SELECT (SELECT count(*) FROM deadline_cursors WHERE next_at <= db_now())"
            " + (SELECT count(*) FROM deadlines WHERE look_at <= db_now())"
        )
        while ledger.one(due):
            await made[parts % 2].repair()
            assert wrong(ledger) == []
            parts += 1
    judged = ledger.values(
        "SELECT job_name, count(*) / count(DISTINCT plan_time), count(DISTINCT plan_time) >= 6"
        " FROM breaches GROUP BY 1 ORDER BY 1"
    )
    assert judged == [("big", 10, True), ("small", 1, True)]
    assert ledger.one("SELECT sum(missed) FROM deadline_months") == stored(ledger, "breaches")
    assert ledger.one("SELECT num_nonnulls(upto, after_id, following) FROM deadline_cursors"
                      " WHERE job_name = 'big'") == 0  # fmt: skip


@pytest.mark.usefixtures("small")
@pytest.mark.long
async def test_an_edit_in_a_pass_is_planned_after_it(ledger: Ledger, one: Runner) -> None:
    ledger.job("big", schedule="0 0 1 1 *", start_by="5s", scope_kind="shard", scopes=MANY)
    for _ in range(10):
        await one.repair()
    ledger.edit("big", grace="2 h")  # begins a pass
    await one.repair()
    assert ledger.one("SELECT after_id FROM deadline_cursors") == "s2"
    ledger.edit("big", schedule="0 * * * *", scopes=MANY[:3])  # which the pass has passed
    at = ledger.now().replace(minute=0, second=0, microsecond=0) + HOUR
    for _ in range(10):
        await one.repair()
    assert await next_look(one) <= at + seconds(5)
    ledger.edit("big", start_by=None)
    for _ in range(10):
        await one.repair()
    assert stored(ledger, "deadline_cursors") == 0


async def test_breaches_are_pruned_and_months_are_kept(ledger: Ledger, one: Runner) -> None:
    ledger.job(schedule="* * * * *", start_by="1s")
    ledger.travel(by=2 * MINUTE)
    await one.repair()
    found = compliance(ledger)
    ledger.values("UPDATE pruned SET through = db_now()")
    await one.sweeper._deadlines.prune()
    assert (breaches(ledger), compliance(ledger)) == ([], found)


# -- what people see -------------------------------------------------------------------------------


@pytest.mark.long
async def test_commands_list_breaches_and_compliance(ledger: Ledger, one: Runner) -> None:
    ledger.travel(to=utc("2027-03-28T00:00:30"))
    ledger.job("report", schedule="* * * * *", start_by="5s", owner="data")
    ledger.job("tidy", schedule="* * * * *", finish_by="5s")
    await look(ledger, one, utc("2027-03-28T00:01:30"))

    listed = partial(read, ledger.url)
    assert [row["job_name"] for row in listed("deadlines")] == ["report", "tidy"]
    assert [row["kind"] for row in listed("deadlines", "--owner", "data", "--open")] == ["start_by"]
    assert [row["job_name"] for row in listed("deadlines", "--job", "tidy")] == ["tidy"]
    (row,) = listed("compliance", "--month", "2027-03", "--job", "report")
    assert (row["month"], row["deadlines"], row["missed"]) == ("2027-03", 1, 1)
    assert listed("compliance", "--month", "2027-04") == []
