"""`verify`: names what was planted and only that; finds nothing in what the engine wrote."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest

from cronledger import Context
from cronledger.audit.compare import Violation
from cronledger.audit.verify import verify
from cronledger.ledger.audits import Audits
from cronledger.rules import cron
from tests.db.support.engine import Ledger, Runner, runners
from tests.db.support.whole_replica import Whole
from tests.marks import first_fast

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
DAY = timedelta(days=1)

Found = list[tuple[str, datetime | None]]


def check(url: str, **options: Any) -> Found:
    """Kind and plan_time of what is wrong."""
    return [(violation.kind, violation.plan_time) for violation in verify(url, **options)]


async def work(ledger: Ledger, runner: Runner, *leaps: timedelta) -> None:
    """After each leap of the clock everything that is due has run."""
    for leap in leaps:
        ledger.travel(by=leap)
        for _ in range(50):
            started = await runner.settle()
            for start in list(runner.held):
                await runner.finish(start)
            if not started and not runner.held:
                break


@pytest.fixture
async def minutes(ledger: Ledger, database_url: str) -> datetime:
    """A per-minute job ran for ten minutes, missed 20, ran for 3; the first plan_time of all."""
    ledger.job(schedule="* * * * *", catch_up="skip")
    async with runners(database_url, {}) as (runner,):
        await work(ledger, runner, *[MINUTE] * 10, 21 * MINUTE, *[MINUTE] * 3)
    assert ledger.skipped() == [("missed", 20)]
    assert check(database_url) == []
    first: datetime = ledger.one("SELECT min(plan_time) FROM executions")
    return first


def test_what_was_looked_at_is_counted(minutes: datetime, database_url: str) -> None:
    report = verify(database_url)
    assert list(report) == []
    tally = report.tally
    assert (tally.schedules, tally.plan_times, tally.executions, tally.skips) == (1, 34, 14, 1)
    seen: list[tuple[int, int]] = []
    assert list(verify(database_url, progress=lambda *at: seen.append(at))) == []
    assert seen == [(1, 1)]
    with psycopg.connect(database_url) as connection:  # the caller's own, left open and idle
        assert list(verify(connection, jobs=["job"])) == []
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_missing(minutes: datetime, database_url: str, ledger: Ledger) -> None:
    ledger.values("DELETE FROM executions WHERE plan_time = %s", minutes + 2 * MINUTE)
    assert check(database_url) == [("missing", minutes + 2 * MINUTE)]
    ledger.values("DELETE FROM executions WHERE plan_time = %s", minutes + 3 * MINUTE)
    (found,) = verify(database_url)
    assert (found.kind, found.plan_time) == ("missing", minutes + 2 * MINUTE)
    assert (found.through, found.count) == (minutes + 3 * MINUTE, 2)
    assert check(database_url, from_=minutes + 3 * MINUTE) == [("missing", minutes + 3 * MINUTE)]
    assert check(database_url, to=minutes + MINUTE) == []
    assert check(database_url, jobs=["other"]) == []


def test_missing_where_the_cursor_leapt(
    minutes: datetime, database_url: str, ledger: Ledger
) -> None:
    ledger.values("UPDATE schedules SET planned_through = planned_through + interval '2 min'")
    ((kind, at),) = check(database_url)
    assert (kind, at) == ("missing", minutes + 34 * MINUTE)


def test_a_lost_skip_is_missing(minutes: datetime, database_url: str, ledger: Ledger) -> None:
    ledger.values("DELETE FROM skips")
    (found,) = verify(database_url)
    assert (found.kind, found.count) == ("missing", 20)


def test_extra(minutes: datetime, database_url: str, ledger: Ledger) -> None:
    _copy(ledger, minutes, "plan_time + interval '30 s'", "due_at + interval '30 s'")
    assert check(database_url) == [("extra", minutes + 30 * SECOND)]


def test_extra_behind_the_cursor(minutes: datetime, database_url: str, ledger: Ledger) -> None:
    _copy(ledger, minutes, "plan_time + interval '50 min'", "due_at")
    assert check(database_url) == [("extra", minutes + 50 * MINUTE)]


def test_extra_of_no_scope(minutes: datetime, database_url: str, ledger: Ledger) -> None:
    _copy(ledger, minutes, "plan_time", "due_at", scope="'nowhere'")
    assert check(database_url) == [("extra", minutes)]


def _copy(
    ledger: Ledger, at: datetime, plan_time: str, due_at: str, scope: str = "scope_id"
) -> None:
    ledger.values(
        "INSERT INTO executions (job_name, scope_kind, scope_id, plan_time, status, trigger,"
        " revision, queue, due_at, attempt, max_attempts, runner_id, lease_token, heartbeat_at,"
        " stale_after, started_at, finished_at, duration_ms) SELECT job_name, scope_kind,"
        f" {scope}, {plan_time}, status, trigger, revision, queue, {due_at}, attempt,"
        " max_attempts, runner_id, gen_random_uuid(), heartbeat_at, stale_after,"
        " greatest(started_at, finished_at), finished_at, 0 FROM executions WHERE plan_time = %s",
        at,
    )


@pytest.mark.parametrize(
    ("columns", "kind"),
    first_fast(
        [
            ("revision = 7", "wrong_revision"),
            ("due_at = due_at - interval '1 s'", "wrong_due_at"),
            ("started_at = due_at - interval '1 s'", "early"),
            ("finished_at = finished_at + interval '5 min'", "overlapping"),
        ]
    ),
)
def test_an_execution_that_is_not_as_it_should_be(
    minutes: datetime, database_url: str, ledger: Ledger, columns: str, kind: str
) -> None:
    ledger.values(f"UPDATE executions SET {columns} WHERE plan_time = %s", minutes)
    found = check(database_url)
    assert {one for one, _ in found} == {kind}
    assert kind == "overlapping" or found == [(kind, minutes)]


def test_attempts_and_unknown_end(minutes: datetime, database_url: str, ledger: Ledger) -> None:
    ledger.values(
        "UPDATE executions SET attempt = 2, max_attempts = 2, attempts = jsonb_build_array("
        "jsonb_build_object('attempt', 1, 'error_code', 'stale_timeout', 'lease_token',"
        " gen_random_uuid(), 'started_at', started_at, 'last_seen', started_at, 'ended_at',"
        " started_at)) WHERE plan_time = %s", minutes,
    )  # fmt: skip
    assert check(database_url) == [("attempts", minutes), ("unknown_end", minutes)]


def test_over_a_limit(ledger: Ledger, database_url: str, minutes: datetime) -> None:
    ledger.values(
        'UPDATE job_revisions SET definition = definition || \'{"max_running": 1,'
        ' "overlap": "allow"}\''
    )
    assert check(database_url) == []
    ledger.values(
        "UPDATE executions SET finished_at = finished_at + interval '61 s' WHERE plan_time = %s",
        minutes,
    )
    assert check(database_url) == [("over_limit", minutes + MINUTE)]


def test_stale_and_parked(minutes: datetime, database_url: str, ledger: Ledger) -> None:
    ledger.values(
        "UPDATE executions SET status = 'RUNNING', finished_at = NULL"
        " WHERE plan_time = (SELECT max(plan_time) FROM executions)"
    )
    ledger.travel(by=HOUR)
    assert check(database_url) == [("stale", minutes + 33 * MINUTE)]
    ledger.values("UPDATE executions SET status = 'SUCCESS', finished_at = started_at")
    ledger.values("UPDATE schedules SET parked = 'paused', next_due_at = NULL")
    assert [kind for kind, _ in check(database_url)] == ["parked"]
    ledger.values("UPDATE schedules SET parked = 'ended'")
    assert check(database_url) == [("parked", minutes + 34 * MINUTE)]


# Skips


def _say(ledger: Ledger, **columns: Any) -> None:
    sets = ", ".join(f"{name} = %s" for name in columns)
    ledger.values(f"UPDATE skips SET {sets}", *columns.values())


@pytest.mark.parametrize(
    ("columns", "kind"),
    first_fast(
        [
            ({"count": 19}, "miscounted"),
            ({"revision": 7}, "wrong_revision"),
            ({"reason": "paused"}, "untrue_skip"),
            ({"reason": "retired"}, "untrue_skip"),
            ({"reason": "overlap", "blocked_by": 99}, "untrue_skip"),
            ({"reason": "overlap", "blocked_by": None}, "untrue_skip"),
            ({"reason": "overlap", "blocked_by": 3}, "untrue_skip"),
        ]
    ),
)
def test_a_skip_that_is_not_true(
    minutes: datetime, database_url: str, ledger: Ledger, columns: dict[str, Any], kind: str
) -> None:
    _say(ledger, **columns)
    assert check(database_url) == [(kind, minutes + 10 * MINUTE)]


def test_a_skip_beside_an_end_that_was_committed_late(
    minutes: datetime, database_url: str, ledger: Ledger
) -> None:
    """finished_at is when the end was written; others saw it at its COMMIT."""
    (before,) = ledger.values(
        "SELECT id FROM executions WHERE plan_time = %s", minutes + 9 * MINUTE
    )
    last = minutes + 29 * MINUTE
    _say(ledger, reason="overlap", blocked_by=before)
    ended = "UPDATE executions SET finished_at = %s WHERE id = %s"
    ledger.values(ended, last - MINUTE / 2, before)
    assert check(database_url) == []
    ledger.values(ended, last - 2 * MINUTE, before)
    assert check(database_url) == [("untrue_skip", minutes + 10 * MINUTE)]


def test_a_skip_of_what_ran_as_well(minutes: datetime, database_url: str, ledger: Ledger) -> None:
    _say(ledger, from_plan_time=minutes + 9 * MINUTE, count=21)
    assert check(database_url) == [("doubled", minutes + 9 * MINUTE)]


def test_a_skip_behind_the_cursor(minutes: datetime, database_url: str, ledger: Ledger) -> None:
    at = minutes + 50 * MINUTE
    ledger.values(
        "INSERT INTO skips SELECT job_name, scope_kind, scope_id, %s, %s, 1, reason, NULL, 1"
        " FROM skips", at, at,
    )  # fmt: skip
    assert check(database_url) == [("extra", at)]


def test_superseded_by_nothing(minutes: datetime, database_url: str, ledger: Ledger) -> None:
    last = minutes + 33 * MINUTE
    ledger.values("DELETE FROM executions WHERE plan_time = %s", last)
    ledger.values(
        "INSERT INTO skips SELECT job_name, scope_kind, scope_id, %s, %s, 1, 'superseded', NULL, 1"
        " FROM skips", last, last,
    )  # fmt: skip
    assert check(database_url) == [("untrue_skip", last)]


def test_missed_within_grace(minutes: datetime, database_url: str, ledger: Ledger) -> None:
    last = minutes + 33 * MINUTE
    ledger.values("DELETE FROM executions WHERE plan_time = %s", last)
    ledger.values(
        "INSERT INTO skips SELECT job_name, scope_kind, scope_id, %s, %s, 1, 'missed', NULL, 1,"
        " %s::timestamptz + interval '30 s' FROM skips", last, last, last,
    )  # fmt: skip
    assert check(database_url) == [("untrue_skip", last)]
    ledger.values("UPDATE skips SET created_at = created_at + interval '31 s'")
    assert check(database_url) == []


# What the engine wrote


WALKS: list[tuple[str, dict[str, Any], datetime]] = [
    ("Europe/Berlin", {"schedule": "*/20 1-3 * * *"}, datetime(2027, 3, 27, 12, tzinfo=UTC)),
    ("Europe/Berlin", {"schedule": "30 2 * * *"}, datetime(2027, 3, 26, 12, tzinfo=UTC)),
    (
        "Europe/Berlin",
        {"schedule": "15,45 2 * * *", "dst_fold": "both", "schedule_delay": "90 s"},
        datetime(2027, 10, 30, 12, tzinfo=UTC),
    ),
    (
        "America/New_York",
        {"schedule": "30 1 * * *", "dst_gap": "skip", "jitter": "30 s"},
        datetime(2027, 11, 6, 12, tzinfo=UTC),
    ),
    (
        "Australia/Lord_Howe",
        {"schedule": "*/10 1-2 * * *", "catch_up": "all", "overlap": "wait"},
        datetime(2027, 4, 3, 0, tzinfo=UTC),
    ),
    ("Australia/Lord_Howe", {"schedule": "15 2 * * *"}, datetime(2027, 10, 1, tzinfo=UTC)),
]


@pytest.mark.parametrize(("zone", "columns", "start"), first_fast(WALKS), ids=lambda x: str(x)[:40])
async def test_clean_over_clock_changes(
    ledger: Ledger, database_url: str, zone: str, columns: dict[str, Any], start: datetime
) -> None:
    await _over_clock_changes(ledger, database_url, zone, columns, start)
    report = verify(database_url)
    assert list(report) == []
    assert report.tally.plan_times > 2


async def _over_clock_changes(
    ledger: Ledger, database_url: str, zone: str, columns: dict[str, Any], start: datetime
) -> None:
    assert ZoneInfo(zone)
    ledger.travel(to=start)
    ledger.job(timezone=zone, **columns)
    async with runners(database_url, {}) as (runner,):
        await runner.repair()
        await work(ledger, runner, *[timedelta(hours=1, minutes=7)] * 60)


@pytest.mark.parametrize(
    ("rule", "walked", "kinds"),
    [
        ("gap", WALKS[1], {"missing"}),
        ("fold", WALKS[3], {"extra"}),
        ("elapsed", WALKS[4], {"missing"}),
    ],
)
async def test_a_planner_with_another_rule_for_clock_changes_is_found(  # noqa: PLR0917
    ledger: Ledger,
    database_url: str,
    unread: None,
    monkeypatch: pytest.MonkeyPatch,
    rule: str,
    walked: tuple[str, dict[str, Any], datetime],
    kinds: set[str],
) -> None:
    _mutate(monkeypatch, rule)
    await _over_clock_changes(ledger, database_url, *walked)
    assert {kind for kind, _ in check(database_url)} & kinds


@pytest.fixture
def unread() -> Iterator[None]:
    """No schedule is known by an earlier reading, neither now nor afterwards."""
    cron._parse.cache_clear()
    yield
    cron._parse.cache_clear()


def _mutate(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    if rule == "gap":
        monkeypatch.setattr(cron._Calendar, "_fires_after_gap", lambda *_: False)
        return
    changed = {"both": True} if rule == "fold" else {"elapsed": False}
    monkeypatch.setattr(cron, "_Calendar", _changing(cron._Calendar, changed))


def _changing(made: Any, changed: dict[str, bool]) -> Callable[..., Any]:
    return lambda *values, **named: replace(made(*values, **named), **changed)


@pytest.mark.slow
async def test_clean_after_edits_pauses_retirements_scopes_and_crashes(
    ledger: Ledger, database_url: str
) -> None:
    ledger.job("skips", schedule="* * * * *", catch_up="skip")
    ledger.job("latest", schedule="*/2 * * * *", schedule_delay="45 s", jitter="10 s")
    ledger.job("all", schedule="*/3 * * * *", overlap="wait", catch_up="all", catch_up_limit=3)
    ledger.job("tenants", schedule="* * * * *", scope_kind="shard", scopes=["a", "b"])
    ledger.job("limited", schedule="* * * * *", scope_kind="shard", scopes=["a", "b", "c"],
               max_running=1)  # fmt: skip
    acts: list[Callable[[], object]] = [
        lambda: ledger.edit("skips", schedule="*/2 * * * *"),
        lambda: ledger.values("SELECT pause('latest')"),
        lambda: ledger.values("SELECT pause('all', until => db_now() + interval '5 min')"),
        lambda: ledger.edit("tenants", scopes=["b", "c"]),
        lambda: ledger.edit("skips", retired_at=ledger.now()),
        lambda: ledger.values("SELECT resume('latest')"),
        lambda: ledger.edit("tenants", scopes=["a", "b", "c"]),
        lambda: ledger.edit("limited", max_running=2),
        lambda: ledger.edit("skips", retired_at=None),
        lambda: ledger.edit("skips", schedule="bad"),
        lambda: ledger.edit("skips", schedule="@every 90s"),
        lambda: ledger.edit("latest", schedule="*/2 * * * *", ends_at=ledger.now()),
        lambda: ledger.trigger("latest"),
        lambda: ledger.edit("all", overlap="replace", catch_up="latest"),
    ]
    async with runners(database_url, {"slots": 2}, {}) as (one, two):
        for n, act in enumerate(acts * 2):
            act()
            assert check(database_url) == [], n  # before it was planned, as well
            await work(ledger, (one, two)[n % 2], 61 * SECOND, 4 * MINUTE)
            await one.repair()
            assert check(database_url) == [], n
            ledger.travel(by=2 * MINUTE)
            await two.step()  # left RUNNING
            await one.steal()
            if n % 5 == 4:
                two.crash()
                ledger.values("UPDATE executions SET stale_after = db_now() WHERE status='RUNNING'")
                ledger.travel(by=SECOND)
                await one.repair()
            else:
                for start in list(two.held):
                    await two.finish(start)
    assert check(database_url) == []
    reasons = set(ledger.values("SELECT DISTINCT reason FROM skips"))
    assert reasons >= {"missed", "superseded", "paused", "retired"}


def _pruned_through(ledger: Ledger) -> datetime | None:
    at: datetime | None = ledger.one("SELECT pruned_through()")
    return at


def test_pruned_history_is_not_missing(
    ledger: Ledger, database_url: str, minutes: datetime
) -> None:
    assert _pruned_through(ledger) is None
    ledger.travel(by=30 * DAY)
    ledger.values("UPDATE schedules SET planned_through = db_now()")
    assert [found.plan_time for found in verify(database_url)] == [minutes + 34 * MINUTE]
    ledger.values("SELECT set_retention('1 day')")
    ledger.values("SELECT maintain_partitions()")
    pruned = _pruned_through(ledger)
    assert pruned is not None
    assert minutes < pruned < ledger.now() - DAY
    assert ledger.values("SELECT count(*) FROM executions") == [0]
    (found,) = verify(database_url)
    assert found.plan_time is not None
    assert (found.kind, pruned < found.plan_time <= pruned + MINUTE) == ("missing", True)


def test_pruned_skips_are_not_missing(ledger: Ledger, database_url: str, minutes: datetime) -> None:
    """Their partition may stay: it is dropped once its last plan_time is behind retention."""
    ledger.travel(to=minutes + DAY + 35 * MINUTE)
    ledger.values("SELECT set_retention('1 day')")
    ledger.values("SELECT maintain_partitions()")
    assert ledger.skipped() == []
    assert _pruned_through(ledger) == minutes + 29 * MINUTE
    report = verify(database_url)
    assert list(report) == []
    assert report.tally.plan_times == 4


def test_nothing_is_dropped_under_a_snapshot(
    minutes: datetime, database_url: str, ledger: Ledger
) -> None:
    """Else its executions would be gone and its pruned_through would not say so."""
    ledger.travel(by=120 * DAY)
    maintain = "SELECT count(*) FROM maintain_partitions() WHERE action = 'dropped'"
    with psycopg.connect(database_url, autocommit=True) as connection:
        with Audits(connection, "cronledger").snapshot():
            assert ledger.values(maintain) == [0]
        assert ledger.one(maintain) > 0


def test_the_range_that_was_checked_is_reported(
    minutes: datetime, database_url: str, ledger: Ledger
) -> None:
    report = verify(database_url)
    assert list(report) == []
    (whole,) = ledger.values("SELECT created_at, planned_through FROM schedules")
    assert (report.tally.after, report.tally.through) == whole
    report = verify(database_url, from_=minutes + MINUTE, to=minutes + 5 * MINUTE)
    assert list(report) == []
    assert report.tally.plan_times == 5
    assert report.tally.through == minutes + 5 * MINUTE
    report = verify(database_url, from_=minutes + DAY)
    assert list(report) == []
    assert (report.tally.after, report.tally.through) == (None, None)


def _drop(ledger: Ledger, at: datetime) -> None:
    """Somebody drops the partition of `at`."""
    name = ledger.one(
        "SELECT name FROM partitions() WHERE %s >= from_plan_time AND %s < before_plan_time", at, at
    )
    ledger.values(f"DROP TABLE {name}")


def test_a_missing_partition_ahead_hides_nothing(
    minutes: datetime, database_url: str, ledger: Ledger
) -> None:
    _drop(ledger, ledger.now() + 14 * DAY)
    ledger.values("DELETE FROM executions WHERE plan_time = %s", minutes + 2 * MINUTE)
    report = verify(database_url)
    assert [found.plan_time for found in report] == [minutes + 2 * MINUTE]
    assert report.tally.plan_times == 34


def test_what_was_in_a_missing_partition_is_missing(
    minutes: datetime, database_url: str, ledger: Ledger
) -> None:
    ledger.values(
        "SELECT cronledger_internal.create_missing_partitions(ARRAY[db_now() - interval '10 days'])"
    )
    for row in ledger.values("SELECT name FROM partitions() WHERE before_plan_time > %s"
                           " AND from_plan_time <= %s", minutes, ledger.now()):  # fmt: skip
        ledger.values(f"DROP TABLE {row}")
    found = [(one.kind, one.plan_time, one.count) for one in verify(database_url)]
    assert found == [("missing", minutes, 10), ("missing", minutes + 30 * MINUTE, 4)]


def test_what_was_pruned_with_a_clock_that_was_ahead_is_not_passed_over(
    minutes: datetime, database_url: str, ledger: Ledger
) -> None:
    ledger.travel(by=120 * DAY)
    ledger.values("SELECT maintain_partitions()")
    ledger.travel(by=-120 * DAY)
    (found,) = verify(database_url)
    assert (found.kind, "the database's clock" in found.detail) == ("unchecked", True)


def test_a_range_that_is_no_longer_kept_is_not_passed_over(
    minutes: datetime, database_url: str, ledger: Ledger
) -> None:
    ledger.travel(by=120 * DAY)
    ledger.values("UPDATE schedules SET planned_through = planned_through + interval '119 days'")
    ledger.values("SELECT maintain_partitions()")
    (found,) = verify(database_url, to=minutes + 5 * MINUTE)
    assert (found.kind, "were pruned after their retention" in found.detail) == ("unchecked", True)


def test_a_range_of_which_nothing_is_planned_is_not_passed_over(
    minutes: datetime, database_url: str, ledger: Ledger
) -> None:
    ledger.travel(by=3 * MINUTE)
    report = verify(database_url)
    assert (list(report), report.tally.behind) == ([], 1)
    last_minutes: dict[str, Any] = {"from_": minutes + 34 * MINUTE}
    (found,) = verify(database_url, **last_minutes)
    assert (found.kind, "planning is behind on 1 schedules" in found.detail) == ("unchecked", True)
    assert check(database_url, to=ledger.now() - 3 * MINUTE, **last_minutes) == []
    ledger.values("SELECT pause('job')")
    assert check(database_url, **last_minutes) != []  # those before the pause were due
    ledger.values("UPDATE schedules SET parked = 'paused', next_due_at = NULL")
    assert check(database_url, **last_minutes) == []


@pytest.mark.parametrize("scopes", [None, ["a", "b"]])
def test_a_lost_schedule_is_not_passed_over(
    ledger: Ledger, database_url: str, scopes: list[str] | None
) -> None:
    kind = "global" if scopes is None else "shard"
    ledger.job(schedule="* * * * *", scope_kind=kind, scopes=scopes)
    assert check(database_url) == []
    ledger.values("DELETE FROM schedules WHERE scope_id <> 'a'")
    (found,) = verify(database_url)
    assert (found.kind, found.scope_id) == ("unchecked", "global" if scopes is None else "b")
    ledger.edit("job", retired_at=ledger.now())
    assert check(database_url) == []


def test_a_lost_history_is_not_passed_over(
    minutes: datetime, database_url: str, ledger: Ledger
) -> None:
    ledger.values("DELETE FROM job_revisions")
    (found,) = verify(database_url)
    assert (found.kind, found.job_name) == ("unchecked", "job")
    assert "job_revisions has no row" in found.detail


# What somebody has accepted


def _accept(ledger: Ledger, found: Violation, reason: str = "incident 7") -> int:
    accepted: int = ledger.one(
        "SELECT accept_violation(%s, %s, %s, %s, %s, %s, %s, %s, requested_by => 'ann')",
        found.kind, found.job_name, found.plan_time, reason, found.scope_kind, found.scope_id,
        found.through, found.execution_id,
    )  # fmt: skip
    return accepted


def test_an_accepted_violation_is_shown_as_such_and_no_other(
    minutes: datetime, database_url: str, ledger: Ledger
) -> None:
    early = "UPDATE executions SET started_at = due_at - interval '1 s' WHERE plan_time = %s"
    ledger.values(early, minutes)
    (found,) = verify(database_url)
    ident = _accept(ledger, found)
    assert ledger.values("SELECT count(*) FROM violations") == [0]
    report = verify(database_url)
    (shown,) = report
    assert shown.accepted is not None
    assert (shown.accepted.id, shown.accepted.accepted_by) == (ident, "ann")
    assert (report.violations, report.accepted, dict(report.kinds)) == (0, 1, {})
    ledger.values(early, minutes + MINUTE)  # of the same kind, elsewhere
    report = verify(database_url)
    assert [found.plan_time for found in report if found.accepted is None] == [minutes + MINUTE]
    assert (report.violations, report.accepted) == (1, 1)
    assert ledger.values("SELECT plan_time FROM violations") == [minutes + MINUTE]
    assert ledger.values("SELECT withdraw_acceptance(%s, 'bob')", ident) == [True]
    assert ledger.values("SELECT withdraw_acceptance(%s, 'eve')", ident) == [False]
    assert [v.accepted for v in verify(database_url)] == [None, None]
    assert ledger.values("SELECT count(*) FROM violations") == [2]
    assert ledger.values("SELECT withdrawn_by FROM accepted_violations") == ["bob"]


def test_accepted_is_a_range_and_not_what_comes_to_lie_beside_it(
    minutes: datetime, database_url: str, ledger: Ledger
) -> None:
    gone = "DELETE FROM executions WHERE plan_time BETWEEN %s AND %s"
    ledger.values(gone, minutes + 2 * MINUTE, minutes + 4 * MINUTE)
    (found,) = verify(database_url)
    _accept(ledger, found)
    ledger.values(gone, minutes + MINUTE, minutes + 6 * MINUTE)
    report = verify(database_url)
    seen = [(v.plan_time, v.count, v.accepted is not None) for v in report]
    assert seen == [
        (minutes + MINUTE, 1, False),
        (minutes + 2 * MINUTE, 3, True),
        (minutes + 5 * MINUTE, 2, False),
    ]
    part = verify(database_url, from_=minutes + 3 * MINUTE, to=minutes + 4 * MINUTE)
    assert [(v.plan_time, v.count, v.accepted is not None) for v in part] == [
        (minutes + 3 * MINUTE, 2, True)
    ]


def test_an_accepted_skip_stays_accepted_where_only_its_end_is_looked_at(
    minutes: datetime, database_url: str, ledger: Ledger
) -> None:
    _say(ledger, reason="paused")
    (found,) = verify(database_url)
    assert found.through == minutes + 29 * MINUTE
    _accept(ledger, found)
    (part,) = verify(database_url, from_=minutes + 20 * MINUTE)
    assert (part.plan_time, part.accepted is not None) == (minutes + 20 * MINUTE, True)


def test_a_violation_of_another_execution_is_not_accepted(
    minutes: datetime, database_url: str, ledger: Ledger
) -> None:
    ledger.values("UPDATE executions SET started_at = due_at - interval '1 s' WHERE plan_time = %s",
                minutes)  # fmt: skip
    (found,) = verify(database_url)
    _accept(ledger, found)
    ledger.values("UPDATE executions SET id = 4711 WHERE plan_time = %s", minutes)
    assert verify_counts(database_url) == (1, 0)
    assert ledger.values("SELECT count(*) FROM violations") == [1]


def verify_counts(url: str) -> tuple[int, int]:
    report = verify(url)
    list(report)
    return report.violations, report.accepted


def test_viewers_may_verify(minutes: datetime, database_url: str, ledger: Ledger) -> None:
    ledger.values("UPDATE skips SET reason = 'overlap', blocked_by = 3")
    ledger.values("CREATE SCHEMA nothing")
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("SET ROLE cronledger_viewer")
        assert [v.kind for v in verify(connection)] == ["untrue_skip"]


def _execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


@pytest.mark.slow
async def test_no_false_alarm_beside_live_replicas(database_url: str) -> None:
    whole = Whole(database_url)
    seconds = {"schedule": "* * * * * *", "scope_kind": "shard", "scopes": ("a", "b", "c")}

    async def waits() -> None:
        await asyncio.sleep(0.3)

    async def skips() -> None:
        await asyncio.sleep(1.2)

    async def fails(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("once")

    whole.job(waits, overlap="wait", catch_up="all", max_running=2, **seconds)
    whole.job(skips, overlap="skip", **seconds)
    whole.job(fails, overlap="wait", max_attempts=2, retry_backoff=("200ms",), **seconds)
    rounds = 0
    async with whole.replica(runner_id="one"), whole.replica(runner_id="two"):
        while rounds < 10 or whole.one("SELECT count(*) FROM cronledger.executions") < 60:
            assert await asyncio.to_thread(lambda: list(verify(database_url))) == []
            rounds += 1
            if rounds == 5:
                edit = "UPDATE cronledger.jobs SET schedule = '*/2 * * * * *'"
                await asyncio.to_thread(_execute, database_url, edit)  # it waits for their locks
    assert list(verify(database_url)) == []
    whole.close()
