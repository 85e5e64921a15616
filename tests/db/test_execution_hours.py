"""The roll-up of hours: its sums are those of the executions, whatever changes, and whenever."""

import math
import random
from bisect import bisect_right
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from cronledger.audit.verify import verify
from cronledger.rules import outcome
from tests.db.support.engine import HOUR, MINUTE, Ledger, Runner
from tests.db.support.rolled_hours import round_of, totals

COUNTS = ("success", "failed", "cancelled", "retries")


def hours(ledger: Ledger) -> list[dict[str, Any]]:
    return ledger.rows("SELECT * FROM execution_hours ORDER BY job_name, scope_id, hour")


def wrong(ledger: Ledger) -> list[str]:
    return [str(one) for one in verify(ledger.url) if one.kind == "wrong_hour"]


def ended(ledger: Ledger, durations: list[int], job: str = "job") -> None:
    """Executions of the past hour that have ended, one for each duration in milliseconds."""
    base = ledger.now().replace(minute=0, second=0, microsecond=0) - HOUR
    for n, duration in enumerate(durations):
        at = base + timedelta(seconds=n)
        ledger.ended([at], job_name=job, trigger="manual", duration_ms=duration)


async def test_ended_executions_are_counted_when_their_hour_is_over(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(schedule="* * * * *", max_attempts=2, retry_backoff=["0 s"], overlap="wait")
    for minute in range(6):
        ledger.travel(by=MINUTE)
        (start,) = await one.settle()
        how = outcome.success(None) if minute % 3 else outcome.failure(KeyError("x"))
        await one.finish(start, how)
        if not minute % 3:
            (start,) = await one.settle()
            await one.finish(start, outcome.failure(KeyError("x")))
    round_of(ledger)
    assert hours(ledger) == []  # the hour is not over
    assert ledger.one("SELECT rolled_up_before() < db_now()")
    assert totals(ledger) == ("(4,2,0,2)", "(4,2,0,2)")
    ledger.travel(by=HOUR)
    round_of(ledger)
    (row,) = hours(ledger)
    assert tuple(row[name] for name in COUNTS) == (4, 2, 0, 2)
    assert (row["durations"], row["starts"]) == (6, 4)  # starts: without those with two attempts
    assert row["hour"].astimezone(UTC).hour == 12
    assert ledger.one("SELECT rolled_up_before()") == row["hour"] + HOUR
    assert totals(ledger) == ("(4,2,0,2)", "(4,2,0,2)")
    assert wrong(ledger) == []
    round_of(ledger)
    (again,) = hours(ledger)
    assert again | {"rolled_up_at": None} == row | {"rolled_up_at": None}


async def test_an_execution_that_was_released_and_cancelled_has_no_lateness(
    ledger: Ledger, one: Runner
) -> None:
    """Its row does not say any more when it was started."""
    ledger.job(schedule="* * * * *")
    ledger.travel(by=MINUTE)
    (start,) = await one.settle()
    await one.finish(start, release=True)
    (plan_time,) = ledger.values("SELECT plan_time FROM executions WHERE cancel(id) = 'cancelled'")
    for _ in range(2):  # from its row, and from the roll-up
        assert ledger.one(
            "SELECT ROW(cancelled, starts, late_ms_sum)::text"
            " FROM execution_sums('job', 'global', 'global', date_trunc('hour', %s::timestamptz),"
            " %s::timestamptz + interval '1 h')", plan_time, plan_time,
        ) == "(1,0,0)"  # fmt: skip
        ledger.travel(by=2 * HOUR)
        round_of(ledger)
    assert wrong(ledger) == []


@pytest.mark.long
async def test_a_change_after_the_roll_up_is_counted_again(ledger: Ledger) -> None:
    ledger.job(handler="external", target={}, schedule=None, max_attempts=1)
    first, second, third = (ledger.trigger() for _ in range(3))
    id, token = ledger.one("SELECT id, lease_token FROM claim_next('default', 'w')")
    ledger.values("SELECT fail(%s, %s, 'bad', 'no')", id, token)
    ledger.values("SELECT cancel(%s)", second)
    ledger.travel(by=2 * HOUR)
    round_of(ledger)

    def counted() -> tuple[int, ...]:
        assert wrong(ledger) == []
        mixed, direct = totals(ledger)
        assert mixed == direct
        return tuple(row[name] for row in hours(ledger) for name in COUNTS)

    assert counted() == (0, 1, 1, 0)
    ledger.values("SELECT retry(%s)", first)
    assert counted() == (0, 1, 1, 0)  # until the next round
    round_of(ledger)
    assert counted() == (0, 0, 1, 0)
    ledger.values("SELECT retry(%s)", second)
    round_of(ledger)
    assert counted() == ()  # an hour without ended executions has no row
    ledger.values("SELECT retire('job')")
    round_of(ledger)
    assert counted() == (0, 0, 3, 0)
    assert third > second


def test_a_change_that_commits_late_is_not_missed(ledger: Ledger) -> None:
    """Its transaction began first, and other changes were marked and counted meanwhile."""
    ledger.job(handler="external", target={}, schedule=None)
    slow, quick = ledger.trigger(), ledger.trigger()
    ledger.travel(by=2 * HOUR)
    with psycopg.connect(ledger.url) as open_transaction:
        open_transaction.execute("SELECT cronledger.cancel(%s)", [slow])
        ledger.values("SELECT cancel(%s)", quick)
        for _ in range(2):
            round_of(ledger)
            assert [row["cancelled"] for row in hours(ledger)] == [1]
            assert totals(ledger) == ("(0,0,1,0)", "(0,0,1,0)")
    assert totals(ledger) == ("(0,0,2,0)", "(0,0,2,0)")
    round_of(ledger)
    assert [row["cancelled"] for row in hours(ledger)] == [2]
    assert wrong(ledger) == []


def test_the_hours_of_a_restored_dump_are_marked_once(ledger: Ledger) -> None:
    """Its transactions have numbers that the new server reaches in years, if ever."""
    ledger.job(schedule=None)
    ended(ledger, [1] * 7)
    ledger.travel(by=2 * HOUR)
    ledger.values("UPDATE executions SET changed_xact = (9000000000000 + id)::text::xid8")
    ledger.values("UPDATE roll_up_state SET marked_before = '8000000000000'")
    mark = "SELECT cronledger_internal.mark_changed_hours(%s::text::xid8, 3)"
    assert ledger.one(mark, "0") is not None  # the process ends here, and another one begins anew
    assert ledger.one("SELECT restoring FROM roll_up_state")
    round_of(ledger)
    assert not ledger.one("SELECT restoring FROM roll_up_state")
    assert [row["success"] for row in hours(ledger)] == [7]
    assert ledger.one(mark, "0") is None
    assert ledger.one("SELECT count(*) FROM changed_hours") == 0
    ended(ledger, [1, 2])
    ledger.travel(by=2 * HOUR)
    round_of(ledger)
    assert [row["success"] for row in hours(ledger)] == [7, 2]
    assert wrong(ledger) == []
    ledger.values("UPDATE rolled_up_hours SET success = 8 WHERE success = 7")
    assert len(wrong(ledger)) == 1


def test_marks_and_counts_are_bounded_and_go_on(ledger: Ledger) -> None:
    ledger.job(schedule=None)
    ended(ledger, [1] * 7)  # 7 transactions
    with ledger.db.transaction():  # one transaction is never divided
        ended(ledger, [1] * 5, job="other")
    ledger.travel(by=2 * HOUR)
    mark = "SELECT cronledger_internal.mark_changed_hours(%s::text::xid8, 3)"
    after: str | None = "0"
    calls = 0
    while after is not None:
        after = ledger.one(mark, after)
        calls += 1
    assert calls == 5  # 3, 3, 1, 5, and one that finds nothing
    assert ledger.one("SELECT cronledger_internal.roll_up_hours(1)") == 1
    assert ledger.one("SELECT rolled_up_before()") is None
    assert ledger.one("SELECT cronledger_internal.roll_up_hours(1)") == 1
    assert ledger.one("SELECT cronledger_internal.roll_up_hours(1)") == 0
    assert [row["success"] for row in hours(ledger)] == [7, 5]
    assert ledger.one("SELECT rolled_up_before()") is not None


def bounds() -> list[int]:
    """The bounds of the buckets, from their definition."""
    return sorted({math.isqrt(2**n - 1) + 1 for n in range(55)})


@pytest.mark.parametrize("spread", [1.0, 1e7])
def test_quantiles_are_estimated_within_19_percent(ledger: Ledger, spread: float) -> None:
    dice = random.Random(spread)
    spreads = (round(spread ** dice.random() * dice.random() * 9) for _ in range(90))
    durations = [0, 1, 2, 3, *spreads]
    ledger.job(schedule=None)
    ended(ledger, durations)
    ledger.travel(by=2 * HOUR)
    round_of(ledger)
    (row,) = hours(ledger)
    counts = Counter(bisect_right(bounds(), one) for one in durations)
    assert row["duration_counts"] == [counts[n] for n in range(max(counts) + 1)]
    assert (row["duration_ms_min"], row["duration_ms_max"]) == (min(durations), max(durations))
    assert row["duration_ms_sum"] == sum(durations)
    ordered = sorted(durations)
    for share in (0.01, 0.25, 0.5, 0.95, 0.99, 1.0):
        exact = ordered[max(1, math.ceil(len(ordered) * share)) - 1]
        estimate = ledger.one(
            "SELECT estimated_quantile(%s::bigint[], %s)", row["duration_counts"], share
        )
        assert estimate == pytest.approx(exact, rel=0.191, abs=0.01)
    assert row["duration_ms_min"] <= row["duration_ms_p50"] <= row["duration_ms_p95"]
    assert row["duration_ms_p95"] <= row["duration_ms_max"]
    assert ledger.one("SELECT estimated_quantile('{0,0}', 0.5)") is None


def test_hours_are_pruned_with_their_executions(ledger: Ledger) -> None:
    ledger.job(schedule=None)
    ended(ledger, [1])
    ledger.travel(by=2 * HOUR)
    round_of(ledger)
    assert len(hours(ledger)) == 1
    ledger.travel(by=timedelta(days=120))
    ledger.values("SELECT * FROM maintain_partitions()")
    assert ledger.one("SELECT cronledger_internal.prune_hours(10)") == 1
    assert hours(ledger) == []
    assert wrong(ledger) == []


DAMAGES = [
    "UPDATE rolled_up_hours SET success = success + 1",
    "UPDATE rolled_up_hours SET duration_ms_max = 17",
    "UPDATE rolled_up_hours SET duration_counts = '{3}'",
    "UPDATE rolled_up_hours SET hour = hour - interval '1 h'",
    "DELETE FROM rolled_up_hours",
    "UPDATE executions SET status = 'CANCELLED'",
    "DELETE FROM executions",
]


@pytest.mark.long
def test_verify_finds_an_hour_with_wrong_sums(ledger: Ledger) -> None:
    ledger.job(schedule=None)
    ended(ledger, [10, 20, 3000])
    ledger.travel(by=2 * HOUR)
    round_of(ledger)
    # As if no transaction of another test on this server were open.
    ledger.values("UPDATE roll_up_state SET marked_before = pg_current_xact_id()")
    assert wrong(ledger) == []
    tables = ("rolled_up_hours", "executions")
    for table in tables:
        ledger.values(f"CREATE TABLE public.saved_{table} AS TABLE {table}")
    for damage in DAMAGES:
        ledger.values(damage)
        found = [one for one in verify(ledger.url) if one.kind == "wrong_hour"]
        assert {one.job_name for one in found} == {"job"}, damage
        for table in tables:
            ledger.values(f"DELETE FROM {table}")
            ledger.values(f"INSERT INTO {table} OVERRIDING SYSTEM VALUE TABLE public.saved_{table}")
    assert wrong(ledger) == []
    ledger.values(DAMAGES[0])
    later = datetime.now(UTC) + timedelta(days=30)  # noqa: TID251 - outside of every range
    assert [one for one in verify(ledger.url, from_=later) if one.kind == "wrong_hour"] == []


async def test_the_sweeper_keeps_the_roll_up(ledger: Ledger, one: Runner) -> None:
    ledger.job(schedule=None)
    ended(ledger, [5])
    ledger.travel(by=2 * HOUR)
    await one.sweeper.step()
    while one.sweeper._hours.unfinished:
        await one.sweeper.step()
    assert [row["success"] for row in hours(ledger)] == [1]


SUMMED = """
SELECT count(*) FILTER (WHERE status = 'SUCCESS') AS success,
       count(*) FILTER (WHERE status = 'FAILED') AS failed,
       count(*) FILTER (WHERE status = 'CANCELLED') AS cancelled,
       coalesce(sum(attempt - 1), 0)::bigint AS retries, count(duration_ms) AS durations,
       coalesce(sum(duration_ms), 0)::bigint AS duration_ms_sum,
       min(duration_ms) AS duration_ms_min, max(duration_ms) AS duration_ms_max,
       percentile_disc(0.5) WITHIN GROUP (ORDER BY duration_ms) AS p50,
       percentile_disc(0.95) WITHIN GROUP (ORDER BY duration_ms) AS p95
FROM executions
WHERE job_name = 'job' AND scope_id = 'global' AND plan_time >= %s AND plan_time < %s
  AND finished_at IS NOT NULL AND next_attempt_at IS NULL
"""


def test_sums_of_any_range_are_those_of_the_executions(ledger: Ledger) -> None:
    """Counted hours, hours that are not counted yet, and the parts of hours at both ends."""
    ledger.job(handler="external", target={}, schedule=None)
    ledger.travel(by=3 * HOUR)
    chance = random.Random(7)
    now = ledger.now()
    for hour in range(4):  # the current one, and three that are over
        base = now.replace(minute=0, second=0, microsecond=0) - hour * HOUR
        for number in range(20):
            status = ("SUCCESS", "SUCCESS", "FAILED", "CANCELLED")[number % 4]
            ledger.ended(
                [base + number * 3 * MINUTE + timedelta(seconds=1)], status, trigger="manual",
                duration_ms=chance.randrange(90_000), attempt=1 + number % 3, max_attempts=3,
            )  # fmt: skip
    instants = [now - 4 * HOUR + n * 7 * MINUTE for n in range(45)]
    query = "SELECT * FROM execution_sums('job', 'global', 'global', %s, %s)"

    def compare() -> None:
        for _ in range(60):
            first, last = sorted(chance.sample(instants, 2))
            (expected,) = ledger.rows(SUMMED, first, last)
            (sums,) = ledger.rows(query, first, last)
            exact = {name: sums[name] for name in expected if name in sums}
            assert exact == {name: expected[name] for name in exact} and len(exact) == 8
            for name in ("p50", "p95"):
                estimate, true = sums[f"duration_ms_{name}"], expected[name]
                assert (estimate is None) == (true is None)
                assert true is None or abs(estimate - true) <= 0.2 * true + 1

    compare()  # nothing is counted
    round_of(ledger)
    assert hours(ledger) != []
    compare()
