"""`verify`: names what was planted and only that; finds nothing in what the engine wrote."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from typing import Any, LiteralString

import psycopg
import pytest

from cronledger import Context
from cronledger.audit.verify import verify
from cronledger.ledger.audits import Audits
from cronledger.ledger.queries import text
from tests.database import Databases
from tests.db.support.engine import DAY, HOUR, MINUTE, Ledger, Runner, runners
from tests.db.support.whole_replica import Whole
from tests.marks import first_short


class Past(Ledger):
    """A ledger in which a per-minute job ran for ten minutes, missed 20, and ran for 4."""

    first: datetime
    """The first plan_time of all. The last one is 33 minutes later."""

    def at(self, minute: float) -> datetime:
        return self.first + minute * MINUTE

    def check(self, **options: Any) -> list[tuple[str, float | None]]:
        """Return kind and minute of each violation."""
        found = []
        for violation in verify(self.url, **options):
            at = violation.plan_time
            found.append((violation.kind, None if at is None else (at - self.first) / MINUTE))
        return found

    def accept(self) -> int:
        """Accept the only violation. Return the id of the acceptance."""
        (found,) = verify(self.url)
        accepted: int = self.one(
            "SELECT accept_violation(%s, %s, %s, 'incident 7', %s, %s, %s, %s, 'ann')",
            found.kind, found.job_name, found.plan_time, found.scope_kind, found.scope_id,
            found.through, found.execution_id,
        )  # fmt: skip
        return accepted


@pytest.fixture(scope="module")
def history(databases: Databases) -> Iterator[tuple[str, datetime]]:
    """The name of the database of that ledger, which tests copy, and its present."""
    name = databases.create(databases.template())
    with closing(Ledger(databases.url(name))) as ledger:
        tomorrow = ledger.now() + DAY
        ledger.travel(to=tomorrow.replace(hour=12, minute=0, second=30, microsecond=0))
        ledger.job(schedule="* * * * *", catch_up="skip")

        async def pass_time() -> None:
            at = ledger.now()
            async with runners(ledger.url, {}) as (runner,):
                for leap in (*[MINUTE] * 10, 21 * MINUTE, *[MINUTE] * 3):
                    at += leap  # however long the work took
                    ledger.travel(to=at)
                    await runner.run_due()

        asyncio.run(pass_time())
        assert ledger.skipped() == [("missed", 20)]
        assert ledger.violations() == []
        present = ledger.now()
    yield name, present
    databases.discard(name)


@pytest.fixture
def past(databases: Databases, history: tuple[str, datetime]) -> Iterator[Past]:
    template, present = history
    with databases.lend(template) as name, closing(Past(databases.url(name))) as made:
        made.travel(to=present)
        made.first = made.one("SELECT min(plan_time) FROM executions")
        yield made


@pytest.mark.long
def test_the_checked_rows_and_their_range_are_reported(past: Past) -> None:
    report = verify(past.url)
    assert list(report) == []
    tally = report.tally
    assert (tally.schedules, tally.plan_times, tally.executions, tally.skips) == (1, 34, 14, 1)
    (whole,) = past.values("SELECT created_at, planned_through FROM schedules")
    assert (tally.after, tally.through) == whole
    for first, last, count in ((past.at(1), past.at(5), 5), (past.first + DAY, None, 0)):
        report = verify(past.url, from_=first, to=last)
        assert list(report) == []
        assert (report.tally.plan_times, report.tally.through) == (count, last)
    seen: list[tuple[int, int]] = []
    assert list(verify(past.url, progress=lambda *at: seen.append(at))) == []
    assert seen == [(1, 1)]
    with psycopg.connect(past.url) as connection:  # the caller's own, left open and idle
        assert list(verify(connection, jobs=["job"])) == []
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


@pytest.mark.long
def test_missing_plan_times_are_a_range(past: Past) -> None:
    past.values("DELETE FROM executions WHERE plan_time = %s", past.at(2))
    assert past.check() == [("missing", 2)]
    past.values("DELETE FROM executions WHERE plan_time = %s", past.at(3))
    past.values("DELETE FROM skips")
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
# The kinds that the view `violations` finds are planted in its own tests.
PLANTED: list[tuple[str, list[tuple[str, float]]]] = [
    ("UPDATE schedules SET planned_through = planned_through + interval '2 min'",
     [("missing", 34)]),
    (_copied("plan_time + interval '30 s'", "due_at + interval '30 s'"), [("extra", 0.5)]),
    (_copied("plan_time + interval '50 min'"), [("extra", 50)]),  # behind the cursor
    (_copied("plan_time", scope="'nowhere'"), [("extra", 0)]),
    (f"UPDATE executions SET revision = 7{_OF_FIRST}", [("wrong_revision", 0)]),
    (f"UPDATE executions SET due_at = due_at - interval '1 s'{_OF_FIRST}", [("wrong_due_at", 0)]),
    ("UPDATE skips SET count = 19", [("miscounted", 10)]),
    ("UPDATE skips SET revision = 7", [("wrong_revision", 10)]),
    ("UPDATE skips SET reason = 'paused'", [("untrue_skip", 10)]),
    ("UPDATE skips SET reason = 'retired'", [("untrue_skip", 10)]),
    ("UPDATE skips SET reason = 'overlap', blocked_by = NULL", [("untrue_skip", 10)]),
    ("UPDATE skips SET reason = 'overlap', blocked_by = 3", [("untrue_skip", 10)]),
    (_SKIP.format(at=_at(50), reason="reason") + " FROM skips", [("extra", 50)]),
    (f"WITH gone AS (DELETE FROM executions{_OF_LAST}) "
     + _SKIP.format(at=_at(33), reason="'superseded'") + " FROM skips", [("untrue_skip", 33)]),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "expected"), first_short(PLANTED))
def test_a_planted_violation_is_found_and_no_other(
    past: Past, statement: str, expected: list[tuple[str, float]]
) -> None:
    past._connection.execute(statement.encode(), {"first": past.first})
    assert past.check() == expected


def test_parked_without_reason(past: Past) -> None:
    past.travel(by=HOUR)
    for why in ("paused", "ended"):
        past.values("UPDATE schedules SET parked = %s, next_due_at = NULL", why)
        assert [kind for kind, _ in past.check()] == ["parked"]
    assert past.check() == [("parked", 34)]


def test_a_skip_beside_an_end_that_was_committed_late(past: Past) -> None:
    """finished_at is when the end was written; others saw it at its COMMIT."""
    (before,) = past.values("SELECT id FROM executions WHERE plan_time = %s", past.at(9))
    past.values("UPDATE skips SET reason = 'overlap', blocked_by = %s", before)
    ended = "UPDATE executions SET finished_at = %s WHERE id = %s"
    past.values(ended, past.at(28.5), before)
    assert past.check() == []
    past.values(ended, past.at(27), before)
    assert past.check() == [("untrue_skip", 10)]


@pytest.mark.parametrize("first", [33, 32])
def test_missed_within_grace(past: Past, first: int) -> None:
    """32 was late, whether or not 33 lies in the same skip."""
    last = past.at(33)
    past.values("DELETE FROM executions WHERE plan_time >= %s", past.at(first))
    skip = _SKIP.format(at="%s", reason="'missed'")
    past.values(f"{skip}, %s::timestamptz + interval '30 s' FROM skips", last, last, last)
    ranged = "UPDATE skips SET from_plan_time = %s, count = %s WHERE from_plan_time = %s"
    past.values(ranged, past.at(first), 34 - first, last)
    assert past.check() == [("untrue_skip", 33)]
    # An edit is no excuse for the loss of a plan_time whose revision has other executions.
    past.values("UPDATE jobs SET description = 'edited', retry_on = '{KeyError}'")
    edited = "UPDATE job_revisions SET effective_from = %s::timestamptz + interval '10 s'"
    past.values(edited + " WHERE revision = 2", last)
    past.values("UPDATE schedules SET planned_revision = 2")
    assert ("untrue_skip", 33) in past.check()
    past.values("UPDATE skips SET created_at = created_at + interval '31 s'")
    assert past.check() == []


async def test_plan_times_that_are_missed_at_different_times_lie_in_different_skips(
    ledger: Ledger, one: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But a backlog that takes several steps lies in one."""
    monkeypatch.setattr("cronledger.engine.claiming.decide.MAX_PLAN_TIMES", 2)
    ledger.job(schedule="* * * * *", catch_up="skip", grace="10 s")
    assert await one.settle() == []
    for _ in range(2):
        ledger.travel(by=3 * MINUTE)
        assert await one.settle() == []
    assert ledger.values("SELECT reason, count FROM skips") == [("missed", 3)] * 2
    assert ledger.violations() == []


PRUNED = "SELECT pruned_through()"


@pytest.mark.long
def test_pruned_history_is_not_missing(past: Past) -> None:
    assert past.one(PRUNED) is None
    past.travel(by=30 * DAY)
    past.values("UPDATE schedules SET planned_through = db_now()")
    assert past.check() == [("missing", 34)]
    past.values("SELECT set_retention('1 day')")
    past.values("SELECT maintain_partitions()")
    pruned = past.one(PRUNED)
    assert pruned is not None
    assert past.first < pruned < past.now() - DAY
    assert past.values("SELECT count(*) FROM executions") == [0]
    (found,) = verify(past.url)
    assert found.plan_time is not None
    assert (found.kind, pruned < found.plan_time <= pruned + MINUTE) == ("missing", True)


def test_pruned_skips_are_not_missing(past: Past) -> None:
    """Their partition may stay: it is dropped once its last plan_time is behind retention."""
    past.travel(to=past.at(35) + DAY)
    past.values("SELECT set_retention('1 day')")
    past.values("SELECT maintain_partitions()")
    assert past.skipped() == []
    assert past.one(PRUNED) == past.at(29)
    report = verify(past.url)
    assert list(report) == []
    assert report.tally.plan_times == 4


@pytest.mark.long
def test_nothing_is_dropped_under_a_snapshot(past: Past) -> None:
    """Else its executions would be gone and its pruned_through would not say so."""
    past.travel(by=120 * DAY)
    maintain = "SELECT count(*) FROM maintain_partitions() WHERE action = 'dropped'"
    with psycopg.connect(past.url, autocommit=True) as connection:
        with Audits(connection, "cronledger").snapshot():
            assert past.values(maintain) == [0]
        assert past.one(maintain) > 0


def _drop_partitions(ledger: Ledger, first: datetime, last: datetime) -> None:
    """Somebody drops the partitions of the plan_times from `first` to `last`."""
    for name in ledger.values(
        "SELECT name FROM partitions() WHERE before_plan_time > %s AND from_plan_time <= %s",
        first, last,
    ):  # fmt: skip
        ledger.values(f"DROP TABLE {name}")


@pytest.mark.long
def test_executions_of_a_dropped_partition_are_missing(past: Past) -> None:
    past.values(
        "SELECT cronledger_internal.create_missing_partitions(ARRAY[db_now() - interval '10 days'])"
    )
    _drop_partitions(past, past.first, past.now())
    found = [(one.kind, one.plan_time, one.count) for one in verify(past.url)]
    assert found == [("missing", past.first, 10), ("missing", past.at(30), 4)]


@pytest.mark.long
def test_a_range_that_cannot_be_checked_is_a_violation(past: Past) -> None:
    past.values("UPDATE schedules SET planned_through = planned_through + interval '119 days'")
    past.travel(by=120 * DAY)
    past.values("SELECT maintain_partitions()")
    (found,) = verify(past.url, to=past.at(5))
    assert (found.kind, "were pruned after their retention" in found.detail) == ("unchecked", True)
    past.values("UPDATE schedules SET planned_through = planned_through - interval '119 days'")
    past.travel(by=-120 * DAY)  # the clock was ahead
    (found,) = verify(past.url)
    assert (found.kind, "the database's clock" in found.detail) == ("unchecked", True)


@pytest.mark.long
def test_a_range_of_which_nothing_is_planned_is_a_violation(past: Past) -> None:
    past.travel(by=3 * MINUTE)
    report = verify(past.url)
    assert (list(report), report.tally.behind) == ([], 1)
    last_minutes: dict[str, Any] = {"from_": past.at(34)}
    (found,) = verify(past.url, **last_minutes)
    assert (found.kind, "planning is behind on 1 schedules" in found.detail) == ("unchecked", True)
    assert past.check(to=past.now() - 3 * MINUTE, **last_minutes) == []
    past.values("SELECT pause('job')")
    assert past.check(**last_minutes) != []  # those before the pause were due
    past.values("UPDATE schedules SET parked = 'paused', next_due_at = NULL")
    assert past.check(**last_minutes) == []


@pytest.mark.parametrize("scopes", [None, ["a", "b"]])
def test_a_lost_schedule_is_a_violation(ledger: Ledger, scopes: list[str] | None) -> None:
    kind = "global" if scopes is None else "shard"
    ledger.job(schedule="* * * * *", scope_kind=kind, scopes=scopes)
    assert ledger.violations() == []
    ledger.values("DELETE FROM schedules WHERE scope_id <> 'a'")
    (found,) = verify(ledger.url)
    assert (found.kind, found.scope_id) == ("unchecked", "global" if scopes is None else "b")
    ledger.edit("job", retired_at=ledger.now())
    assert ledger.violations() == []


def test_a_lost_history_is_a_violation(past: Past) -> None:
    past.values("DELETE FROM job_revisions")
    (found,) = verify(past.url)
    assert (found.kind, found.job_name) == ("unchecked", "job")
    assert "job_revisions has no row" in found.detail


EARLY = "UPDATE executions SET started_at = due_at - interval '1 s' WHERE plan_time = %s"


def test_an_accepted_violation_is_shown_as_such_and_no_other(past: Past) -> None:
    past.values(EARLY, past.first)
    ident = past.accept()
    report = verify(past.url)
    (shown,) = report
    assert shown.accepted is not None
    assert (shown.accepted.id, shown.accepted.accepted_by) == (ident, "ann")
    assert (report.violations, report.accepted, dict(report.kinds)) == (0, 1, {})
    past.values(EARLY, past.at(1))  # of the same kind, elsewhere
    report = verify(past.url)
    assert [found.plan_time for found in report if found.accepted is None] == [past.at(1)]
    assert (report.violations, report.accepted) == (1, 1)
    assert past.values("SELECT withdraw_acceptance(%s, 'bob')", ident) == [True]
    assert past.values("SELECT withdraw_acceptance(%s, 'eve')", ident) == [False]
    assert [v.accepted for v in verify(past.url)] == [None, None]
    assert past.values("SELECT withdrawn_by FROM accepted_violations") == ["bob"]


def test_an_acceptance_covers_a_range_and_nothing_beside_it(past: Past) -> None:
    def seen(**options: Any) -> list[tuple[datetime | None, int, bool]]:
        return [(v.plan_time, v.count, v.accepted is not None) for v in verify(past.url, **options)]

    gone = "DELETE FROM executions WHERE plan_time BETWEEN %s AND %s"
    past.values(gone, past.at(2), past.at(4))
    past.accept()
    past.values(gone, past.at(1), past.at(6))
    assert seen() == [(past.at(1), 1, False), (past.at(2), 3, True), (past.at(5), 2, False)]
    assert seen(from_=past.at(3), to=past.at(4)) == [(past.at(3), 2, True)]


def test_a_violation_of_another_execution_is_not_accepted(past: Past) -> None:
    past.values(EARLY, past.first)
    past.accept()
    past.values("UPDATE executions SET id = 4711 WHERE plan_time = %s", past.first)
    assert [v.accepted for v in verify(past.url)] == [None]
    assert past.values("SELECT count(*) FROM violations") == [1]


@pytest.mark.slow
async def test_no_false_alarm_beside_live_replicas(whole: Whole) -> None:
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
            assert await asyncio.to_thread(lambda: list(verify(whole.url))) == []
            rounds += 1
            if rounds == 5:
                edit: LiteralString = "UPDATE cronledger.jobs SET schedule = '*/2 * * * * *'"
                await asyncio.to_thread(whole.rows, edit)  # it waits for their locks
    assert list(verify(whole.url)) == []


def test_the_history_of_one_job_is_read_by_index(ledger: Ledger) -> None:
    explain = f"EXPLAIN {text('list_history_violations', 'cronledger')}"
    with psycopg.connect(ledger.url) as c:
        c.execute("SET enable_seqscan = off")  # an empty table is cheaper to read as a whole
        cursor = psycopg.ClientCursor(c)
        lines = cursor.execute(explain.encode(), {"first": "-infinity", "jobs": ["a"]}).fetchall()
    plan = "\n".join(line for (line,) in lines)
    assert "Index Cond: (job_name = ANY" in plan, plan
