"""`verify`: names what was planted and only that; finds nothing in what the engine wrote."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
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
from tests.database import Databases
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
    """After each leap of the clock everything that is due has run.

    A leap begins at the instant to which the one before it led, however long the work took.
    """
    at = ledger.now()
    for leap in leaps:
        at += leap
        ledger.travel(to=at)
        for _ in range(50):
            started = await runner.settle()
            for start in list(runner.held):
                await runner.finish(start)
            if not started and not runner.held:
                break


@dataclass
class Past:
    """A ledger in which a per-minute job ran for ten minutes, missed 20, and ran for 4."""

    url: str
    ledger: Ledger
    first: datetime
    """The first plan_time of all. The last one is 33 minutes later."""

    def at(self, minute: float) -> datetime:
        return self.first + minute * MINUTE

    def check(self, **options: Any) -> list[tuple[str, float | None]]:
        """Return kind and minute of each violation."""
        return [
            (kind, None if at is None else (at - self.first) / MINUTE)
            for kind, at in check(self.url, **options)
        ]


@pytest.fixture(scope="module")
def history(databases: Databases) -> Iterator[tuple[str, datetime]]:
    """The name of the database of that ledger, which tests copy, and its present."""
    name = databases.create(databases.template())
    with closing(Ledger(databases.url(name))) as ledger:
        tomorrow = ledger.now() + DAY
        ledger.travel(to=tomorrow.replace(hour=12, minute=0, second=30, microsecond=0))
        ledger.job(schedule="* * * * *", catch_up="skip")

        async def pass_time() -> None:
            async with runners(ledger.url, {}) as (runner,):
                await work(ledger, runner, *[MINUTE] * 10, 21 * MINUTE, *[MINUTE] * 3)

        asyncio.run(pass_time())
        assert ledger.skipped() == [("missed", 20)]
        assert check(ledger.url) == []
        present = ledger.now()
    yield name, present
    databases.discard(name)


@pytest.fixture
def past(databases: Databases, history: tuple[str, datetime]) -> Iterator[Past]:
    template, present = history
    with databases.lend(template) as name, closing(Ledger(databases.url(name))) as ledger:
        ledger.travel(to=present)
        yield Past(ledger.url, ledger, ledger.one("SELECT min(plan_time) FROM executions"))


def test_the_checked_rows_are_counted(past: Past) -> None:
    report = verify(past.url)
    assert list(report) == []
    tally = report.tally
    assert (tally.schedules, tally.plan_times, tally.executions, tally.skips) == (1, 34, 14, 1)
    seen: list[tuple[int, int]] = []
    assert list(verify(past.url, progress=lambda *at: seen.append(at))) == []
    assert seen == [(1, 1)]
    with psycopg.connect(past.url) as connection:  # the caller's own, left open and idle
        assert list(verify(connection, jobs=["job"])) == []
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_missing_plan_times_are_a_range(past: Past) -> None:
    past.ledger.values("DELETE FROM executions WHERE plan_time = %s", past.at(2))
    assert past.check() == [("missing", 2)]
    past.ledger.values("DELETE FROM executions WHERE plan_time = %s", past.at(3))
    past.ledger.values("DELETE FROM skips")
    found = [(one.kind, one.plan_time, one.through, one.count) for one in verify(past.url)]
    assert found == [
        ("missing", past.at(2), past.at(3), 2), ("missing", past.at(10), past.at(29), 20),
    ]  # fmt: skip
    assert past.check(from_=past.at(3), to=past.at(9)) == [("missing", 3)]
    assert past.check(to=past.at(1)) == []
    assert past.check(jobs=["other"]) == []


def _at(minute: float) -> str:
    return f"%(first)s::timestamptz + interval '{minute} min'"


def _copied(plan_time: str, due_at: str = "due_at", scope: str = "scope_id") -> str:
    """Return the INSERT of a copy of the first execution."""
    return (
        "INSERT INTO executions (job_name, scope_kind, scope_id, plan_time, status, trigger,"
        " revision, queue, due_at, attempt, max_attempts, runner_id, lease_token, heartbeat_at,"
        " stale_after, started_at, finished_at, duration_ms) SELECT job_name, scope_kind,"
        f" {scope}, {plan_time}, status, trigger, revision, queue, {due_at}, attempt,"
        " max_attempts, runner_id, gen_random_uuid(), heartbeat_at, stale_after,"
        f" greatest(started_at, finished_at), finished_at, 0 FROM executions{_OF_FIRST}"
    )


_OF_FIRST = " WHERE plan_time = %(first)s"
_OF_LAST = f" WHERE plan_time = {_at(33)}"
_SKIP = "INSERT INTO skips SELECT job_name, scope_kind, scope_id, {at}, {at}, 1, {reason}, NULL, 1"
# Most of the kinds that the view `violations` finds are planted in its own tests.
PLANTED: list[tuple[str, list[tuple[str, float]]]] = [
    ("UPDATE schedules SET planned_through = planned_through + interval '2 min'",
     [("missing", 34)]),
    (_copied("plan_time + interval '30 s'", "due_at + interval '30 s'"), [("extra", 0.5)]),
    (_copied("plan_time + interval '50 min'"), [("extra", 50)]),  # behind the cursor
    (_copied("plan_time", scope="'nowhere'"), [("extra", 0)]),
    (f"UPDATE executions SET revision = 7{_OF_FIRST}", [("wrong_revision", 0)]),
    (f"UPDATE executions SET due_at = due_at - interval '1 s'{_OF_FIRST}", [("wrong_due_at", 0)]),
    (f"UPDATE executions SET started_at = due_at - interval '1 s'{_OF_FIRST}", [("early", 0)]),
    ("UPDATE skips SET count = 19", [("miscounted", 10)]),
    ("UPDATE skips SET revision = 7", [("wrong_revision", 10)]),
    ("UPDATE skips SET reason = 'paused'", [("untrue_skip", 10)]),
    ("UPDATE skips SET reason = 'retired'", [("untrue_skip", 10)]),
    ("UPDATE skips SET reason = 'overlap', blocked_by = 99", [("untrue_skip", 10)]),
    ("UPDATE skips SET reason = 'overlap', blocked_by = NULL", [("untrue_skip", 10)]),
    ("UPDATE skips SET reason = 'overlap', blocked_by = 3", [("untrue_skip", 10)]),
    (f"UPDATE skips SET count = 21, from_plan_time = {_at(9)}", [("doubled", 9)]),
    (_SKIP.format(at=_at(50), reason="reason") + " FROM skips", [("extra", 50)]),
    (f"WITH gone AS (DELETE FROM executions{_OF_LAST}) "
     + _SKIP.format(at=_at(33), reason="'superseded'") + " FROM skips", [("untrue_skip", 33)]),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "expected"), PLANTED)
def test_a_planted_violation_is_found_and_no_other(
    past: Past, statement: str, expected: list[tuple[str, float]]
) -> None:
    past.ledger._connection.execute(statement.encode(), {"first": past.first})
    assert past.check() == expected


def test_parked_without_reason(past: Past) -> None:
    past.ledger.travel(by=HOUR)
    for why in ("paused", "ended"):
        past.ledger.values("UPDATE schedules SET parked = %s, next_due_at = NULL", why)
        assert [kind for kind, _ in past.check()] == ["parked"]
    assert past.check() == [("parked", 34)]


def test_a_skip_beside_an_end_that_was_committed_late(past: Past) -> None:
    """finished_at is when the end was written; others saw it at its COMMIT."""
    (before,) = past.ledger.values("SELECT id FROM executions WHERE plan_time = %s", past.at(9))
    past.ledger.values("UPDATE skips SET reason = 'overlap', blocked_by = %s", before)
    ended = "UPDATE executions SET finished_at = %s WHERE id = %s"
    past.ledger.values(ended, past.at(28.5), before)
    assert past.check() == []
    past.ledger.values(ended, past.at(27), before)
    assert past.check() == [("untrue_skip", 10)]


def test_missed_within_grace(past: Past) -> None:
    last = past.at(33)
    past.ledger.values("DELETE FROM executions WHERE plan_time = %s", last)
    skip = _SKIP.format(at="%s", reason="'missed'")
    past.ledger.values(f"{skip}, %s::timestamptz + interval '30 s' FROM skips", last, last, last)
    assert past.check() == [("untrue_skip", 33)]
    # An edit is no excuse for the loss of a plan_time whose revision has other executions.
    past.ledger.values("UPDATE jobs SET description = 'edited', retry_on = '{KeyError}'")
    edited = "UPDATE job_revisions SET effective_from = %s::timestamptz + interval '10 s'"
    past.ledger.values(edited + " WHERE revision = 2", last)
    past.ledger.values("UPDATE schedules SET planned_revision = 2")
    assert ("untrue_skip", 33) in past.check()
    past.ledger.values("UPDATE skips SET created_at = created_at + interval '31 s'")
    assert past.check() == []


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
    ledger: Ledger, zone: str, columns: dict[str, Any], start: datetime
) -> None:
    await _over_clock_changes(ledger, zone, columns, start)
    report = verify(ledger.url)
    assert list(report) == []
    assert report.tally.plan_times > 2


async def _over_clock_changes(
    ledger: Ledger, zone: str, columns: dict[str, Any], start: datetime
) -> None:
    assert ZoneInfo(zone)
    ledger.travel(to=start)
    ledger.job(timezone=zone, **columns)
    async with runners(ledger.url, {}) as (runner,):
        await runner.repair()
        await work(ledger, runner, *[timedelta(hours=2, minutes=13)] * 31)


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
    unread: None,
    monkeypatch: pytest.MonkeyPatch,
    rule: str,
    walked: tuple[str, dict[str, Any], datetime],
    kinds: set[str],
) -> None:
    _mutate(monkeypatch, rule)
    await _over_clock_changes(ledger, *walked)
    assert {kind for kind, _ in check(ledger.url)} & kinds


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
async def test_clean_after_edits_pauses_retirements_scopes_and_crashes(ledger: Ledger) -> None:
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
    async with runners(ledger.url, {"slots": 2}, {}) as (one, two):
        for n, act in enumerate(acts * 2):
            act()
            assert check(ledger.url) == [], n  # before it was planned, as well
            await work(ledger, (one, two)[n % 2], 61 * SECOND, 4 * MINUTE)
            await one.repair()
            assert check(ledger.url) == [], n
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
    assert check(ledger.url) == []
    reasons = set(ledger.values("SELECT DISTINCT reason FROM skips"))
    assert reasons >= {"missed", "superseded", "paused", "retired"}


def _pruned_through(ledger: Ledger) -> datetime | None:
    at: datetime | None = ledger.one("SELECT pruned_through()")
    return at


def test_pruned_history_is_not_missing(past: Past) -> None:
    ledger = past.ledger
    assert _pruned_through(ledger) is None
    ledger.travel(by=30 * DAY)
    ledger.values("UPDATE schedules SET planned_through = db_now()")
    assert past.check() == [("missing", 34)]
    ledger.values("SELECT set_retention('1 day')")
    ledger.values("SELECT maintain_partitions()")
    pruned = _pruned_through(ledger)
    assert pruned is not None
    assert past.first < pruned < ledger.now() - DAY
    assert ledger.values("SELECT count(*) FROM executions") == [0]
    (found,) = verify(past.url)
    assert found.plan_time is not None
    assert (found.kind, pruned < found.plan_time <= pruned + MINUTE) == ("missing", True)


def test_pruned_skips_are_not_missing(past: Past) -> None:
    """Their partition may stay: it is dropped once its last plan_time is behind retention."""
    past.ledger.travel(to=past.at(35) + DAY)
    past.ledger.values("SELECT set_retention('1 day')")
    past.ledger.values("SELECT maintain_partitions()")
    assert past.ledger.skipped() == []
    assert _pruned_through(past.ledger) == past.at(29)
    report = verify(past.url)
    assert list(report) == []
    assert report.tally.plan_times == 4


def test_nothing_is_dropped_under_a_snapshot(past: Past) -> None:
    """Else its executions would be gone and its pruned_through would not say so."""
    past.ledger.travel(by=120 * DAY)
    maintain = "SELECT count(*) FROM maintain_partitions() WHERE action = 'dropped'"
    with psycopg.connect(past.url, autocommit=True) as connection:
        with Audits(connection, "cronledger").snapshot():
            assert past.ledger.values(maintain) == [0]
        assert past.ledger.one(maintain) > 0


def test_the_range_that_was_checked_is_reported(past: Past) -> None:
    report = verify(past.url)
    assert list(report) == []
    (whole,) = past.ledger.values("SELECT created_at, planned_through FROM schedules")
    assert (report.tally.after, report.tally.through) == whole
    report = verify(past.url, from_=past.at(1), to=past.at(5))
    assert list(report) == []
    assert (report.tally.plan_times, report.tally.through) == (5, past.at(5))
    report = verify(past.url, from_=past.first + DAY)
    assert list(report) == []
    assert (report.tally.after, report.tally.through) == (None, None)


def _drop_partitions(ledger: Ledger, first: datetime, last: datetime) -> None:
    """Somebody drops the partitions of the plan_times from `first` to `last`."""
    for name in ledger.values(
        "SELECT name FROM partitions() WHERE before_plan_time > %s AND from_plan_time <= %s",
        first, last,
    ):  # fmt: skip
        ledger.values(f"DROP TABLE {name}")


def test_a_missing_partition_ahead_hides_nothing(past: Past) -> None:
    ahead = past.ledger.now() + 14 * DAY
    _drop_partitions(past.ledger, ahead, ahead)
    past.ledger.values("DELETE FROM executions WHERE plan_time = %s", past.at(2))
    report = verify(past.url)
    assert [found.plan_time for found in report] == [past.at(2)]
    assert report.tally.plan_times == 34


def test_executions_of_a_dropped_partition_are_missing(past: Past) -> None:
    past.ledger.values(
        "SELECT cronledger_internal.create_missing_partitions(ARRAY[db_now() - interval '10 days'])"
    )
    _drop_partitions(past.ledger, past.first, past.ledger.now())
    found = [(one.kind, one.plan_time, one.count) for one in verify(past.url)]
    assert found == [("missing", past.first, 10), ("missing", past.at(30), 4)]


def test_a_range_that_cannot_be_checked_is_a_violation(past: Past) -> None:
    ledger = past.ledger
    ledger.values("UPDATE schedules SET planned_through = planned_through + interval '119 days'")
    ledger.travel(by=120 * DAY)
    ledger.values("SELECT maintain_partitions()")
    (found,) = verify(past.url, to=past.at(5))
    assert (found.kind, "were pruned after their retention" in found.detail) == ("unchecked", True)
    ledger.values("UPDATE schedules SET planned_through = planned_through - interval '119 days'")
    ledger.travel(by=-120 * DAY)  # the clock was ahead
    (found,) = verify(past.url)
    assert (found.kind, "the database's clock" in found.detail) == ("unchecked", True)


def test_a_range_of_which_nothing_is_planned_is_a_violation(past: Past) -> None:
    ledger = past.ledger
    ledger.travel(by=3 * MINUTE)
    report = verify(past.url)
    assert (list(report), report.tally.behind) == ([], 1)
    last_minutes: dict[str, Any] = {"from_": past.at(34)}
    (found,) = verify(past.url, **last_minutes)
    assert (found.kind, "planning is behind on 1 schedules" in found.detail) == ("unchecked", True)
    assert past.check(to=ledger.now() - 3 * MINUTE, **last_minutes) == []
    ledger.values("SELECT pause('job')")
    assert past.check(**last_minutes) != []  # those before the pause were due
    ledger.values("UPDATE schedules SET parked = 'paused', next_due_at = NULL")
    assert past.check(**last_minutes) == []


@pytest.mark.parametrize("scopes", [None, ["a", "b"]])
def test_a_lost_schedule_is_a_violation(ledger: Ledger, scopes: list[str] | None) -> None:
    kind = "global" if scopes is None else "shard"
    ledger.job(schedule="* * * * *", scope_kind=kind, scopes=scopes)
    assert check(ledger.url) == []
    ledger.values("DELETE FROM schedules WHERE scope_id <> 'a'")
    (found,) = verify(ledger.url)
    assert (found.kind, found.scope_id) == ("unchecked", "global" if scopes is None else "b")
    ledger.edit("job", retired_at=ledger.now())
    assert check(ledger.url) == []


def test_a_lost_history_is_a_violation(past: Past) -> None:
    past.ledger.values("DELETE FROM job_revisions")
    (found,) = verify(past.url)
    assert (found.kind, found.job_name) == ("unchecked", "job")
    assert "job_revisions has no row" in found.detail


# Accepted violations

EARLY = "UPDATE executions SET started_at = due_at - interval '1 s' WHERE plan_time = %s"


def _accept(ledger: Ledger, found: Violation, reason: str = "incident 7") -> int:
    accepted: int = ledger.one(
        "SELECT accept_violation(%s, %s, %s, %s, %s, %s, %s, %s, requested_by => 'ann')",
        found.kind, found.job_name, found.plan_time, reason, found.scope_kind, found.scope_id,
        found.through, found.execution_id,
    )  # fmt: skip
    return accepted


def test_an_accepted_violation_is_shown_as_such_and_no_other(past: Past) -> None:
    ledger = past.ledger
    ledger.values(EARLY, past.first)
    (found,) = verify(past.url)
    ident = _accept(ledger, found)
    assert ledger.values("SELECT count(*) FROM violations") == [0]
    report = verify(past.url)
    (shown,) = report
    assert shown.accepted is not None
    assert (shown.accepted.id, shown.accepted.accepted_by) == (ident, "ann")
    assert (report.violations, report.accepted, dict(report.kinds)) == (0, 1, {})
    ledger.values(EARLY, past.at(1))  # of the same kind, elsewhere
    report = verify(past.url)
    assert [found.plan_time for found in report if found.accepted is None] == [past.at(1)]
    assert (report.violations, report.accepted) == (1, 1)
    assert ledger.values("SELECT plan_time FROM violations") == [past.at(1)]
    assert ledger.values("SELECT withdraw_acceptance(%s, 'bob')", ident) == [True]
    assert ledger.values("SELECT withdraw_acceptance(%s, 'eve')", ident) == [False]
    assert [v.accepted for v in verify(past.url)] == [None, None]
    assert ledger.values("SELECT count(*) FROM violations") == [2]
    assert ledger.values("SELECT withdrawn_by FROM accepted_violations") == ["bob"]


def test_an_acceptance_covers_a_range_and_nothing_beside_it(past: Past) -> None:
    def seen(**options: Any) -> list[tuple[datetime | None, int, bool]]:
        return [(v.plan_time, v.count, v.accepted is not None) for v in verify(past.url, **options)]

    gone = "DELETE FROM executions WHERE plan_time BETWEEN %s AND %s"
    past.ledger.values(gone, past.at(2), past.at(4))
    (found,) = verify(past.url)
    _accept(past.ledger, found)
    past.ledger.values(gone, past.at(1), past.at(6))
    assert seen() == [(past.at(1), 1, False), (past.at(2), 3, True), (past.at(5), 2, False)]
    assert seen(from_=past.at(3), to=past.at(4)) == [(past.at(3), 2, True)]


def test_an_accepted_skip_stays_accepted_where_only_its_end_is_checked(past: Past) -> None:
    past.ledger.values("UPDATE skips SET reason = 'paused'")
    (found,) = verify(past.url)
    assert found.through == past.at(29)
    _accept(past.ledger, found)
    (part,) = verify(past.url, from_=past.at(20))
    assert (part.plan_time, part.accepted is not None) == (past.at(20), True)


def test_a_violation_of_another_execution_is_not_accepted(past: Past) -> None:
    past.ledger.values(EARLY, past.first)
    (found,) = verify(past.url)
    _accept(past.ledger, found)
    past.ledger.values("UPDATE executions SET id = 4711 WHERE plan_time = %s", past.first)
    assert [v.accepted for v in verify(past.url)] == [None]
    assert past.ledger.values("SELECT count(*) FROM violations") == [1]


def test_viewers_may_verify(past: Past) -> None:
    past.ledger.values("UPDATE skips SET reason = 'overlap', blocked_by = 3")
    with psycopg.connect(past.url, autocommit=True) as connection:
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
