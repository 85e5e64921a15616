"""Every view shows each kind of row that it is for."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from tests.bench.plans import nodes
from tests.db.support.engine import DAY, HOUR, MINUTE, SECOND, Ledger
from tests.db.support.rows import (
    Db,
    execution,
    insert,
    job,
    now,
    one,
    runner,
    schedule,
    skip,
    travel,
    value,
)


def rows(db: Db, view: str, order: str = "job_name") -> list[dict[str, Any]]:
    statement = sql.SQL("SELECT * FROM cronledger.{} ORDER BY {}")
    return db.execute(statement.format(sql.Identifier(view), sql.Identifier(order))).fetchall()


@pytest.fixture
def still(ledger: Ledger) -> None:
    """Both clocks stand still: nothing becomes overdue while the test works."""
    ledger.stop_clock(ledger.now())


def test_ledger_shows_executions_of_every_status(db: Db) -> None:
    start = now(db) - HOUR
    for n, status in enumerate(("PENDING", "RUNNING", "SUCCESS", "FAILED", "FAILED", "CANCELLED")):
        columns: dict[str, Any] = {"plan_time": start + n * SECOND}
        if n == 3:
            columns["next_attempt_at"] = now(db)
        if status == "CANCELLED":
            columns["cancel_requested_by"] = "alice"
        execution(db, status, **columns)
    found = rows(db, "ledger", "plan_time")
    assert {r["kind"] for r in found} == {"execution"}
    assert [r["outcome"] for r in found] == [
        "PENDING", "RUNNING", "SUCCESS", "FAILED", "FAILED", "CANCELLED",
    ]  # fmt: skip
    assert [r["reason"] for r in found] == [None, None, None, "boom", "boom", None]
    assert [r["duration"] for r in found] == [None, None] + [2 * SECOND] * 4
    assert all(r["plan_time"] == r["through_plan_time"] and r["count"] == 1 for r in found)
    due, *words = [r["detail"] for r in found]
    assert due.startswith("due ")
    assert words.pop(2).startswith("attempt 1 of 3 failed on r1: it broke; retried from 2")
    assert words == [
        "attempt 1 of 3 runs on r1", "attempt 1 of 3 succeeded on r1",
        "attempt 1 of 3 failed on r1: it broke; not retried", "cancelled by alice",
    ]  # fmt: skip


SKIPS = [
    ("overlap", 1, "1 plan_time did not run: execution 7 was RUNNING"),
    ("superseded", 2, "2 plan_times did not run: a newer plan_time ran instead"),
    ("missed", 3, "3 plan_times did not run: grace passed before a start, and catch_up"),
    ("paused", 4, "4 plan_times did not run: the job was paused"),
    ("retired", 5, "5 plan_times did not run: the job or its scope was retired"),
]


def test_ledger_shows_skips(db: Db) -> None:
    start = now(db) - HOUR
    for n, (reason, count, _) in enumerate(SKIPS):
        at = start + n * MINUTE
        blocker = 7 if reason == "overlap" else None
        skip(db, at, at + (count - 1) * SECOND, count, reason, blocked_by=blocker)
    found = rows(db, "ledger", "plan_time")
    for n, (row, (reason, count, detail)) in enumerate(zip(found, SKIPS, strict=True)):
        at = start + n * MINUTE
        assert (row["kind"], row["outcome"], row["reason"]) == ("skip", "SKIPPED", reason)
        assert (row["plan_time"], row["through_plan_time"]) == (at, at + (count - 1) * SECOND)
        assert (row["count"], row["id"], row["attempt"]) == (count, None, None)
        assert row["detail"].startswith(detail)


VIEWS_OF_JOBS = ("job_overview", "job_details")


def status_of(db: Db, name: str = "job") -> dict[str, Any]:
    return one(db.execute("SELECT * FROM cronledger.job_status WHERE job_name = %s", [name]))


def test_job_status_shows_the_reason_of_parking(db: Db) -> None:
    job(db)
    for parked in (
        "waiting", "limit", "no_runner", "ended", "unscheduled", "boot", "spec_error", "retired",
    ):  # fmt: skip
        schedule(db, parked=parked, next_due_at=None)
        found = status_of(db)
        assert (found["state"], found["parked"]) == (parked, parked)


def test_all_views_show_the_same_state_of_a_job(db: Db) -> None:
    def state() -> str:
        found = {
            value(db, f"SELECT state FROM cronledger.{view}") for view in VIEWS_OF_JOBS
        } | {status_of(db)["state"].replace("spec_error", "broken")}  # fmt: skip
        (same,) = found
        return str(same)

    job(db)
    assert state() == "active"
    db.execute("SELECT cronledger.pause_queue('default')")
    assert state() == "queue_paused"
    db.execute("SELECT cronledger.pause('job', 'why', cronledger.db_now() + '1 h', 'alice')")
    found = status_of(db)
    shown = (state(), found["paused_by"], found["paused_reason"])
    assert shown == ("paused", "alice", "why")
    db.execute("SELECT cronledger.resume_queue('default')")
    travel(db, 2 * HOUR)
    assert state() == "active"  # the pause has ended by itself
    db.execute("UPDATE cronledger.jobs SET spec_error = 'bad'")
    assert state() == "broken"
    db.execute("SELECT cronledger.retire('job')")
    assert state() == "retired"
    db.execute("DELETE FROM cronledger.jobs")
    assert status_of(db)["state"] == "retired"


def test_job_status_shows_the_last_runs(db: Db) -> None:
    job(db)
    found = status_of(db)
    assert (found["last_execution_id"], found["last_success_at"]) == (None, None)
    assert (found["consecutive_failures"], found["running"], found["pending"]) == (0, 0, 0)

    start = now(db) - HOUR
    execution(db, "FAILED", plan_time=start)
    success = execution(db, "SUCCESS", plan_time=start + MINUTE)
    for n in (2, 3):
        execution(db, "FAILED", plan_time=start + n * MINUTE, next_attempt_at=now(db))
    execution(db, "CANCELLED", plan_time=start + 4 * MINUTE)
    execution(db, "RUNNING", plan_time=start + 5 * MINUTE)
    last = execution(db, "PENDING", plan_time=start + 6 * MINUTE)
    execution(db, "FAILED", "other", plan_time=start + 7 * MINUTE)
    found = status_of(db)
    assert (found["last_execution_id"], found["last_status"]) == (last["id"], "PENDING")
    assert (found["last_plan_time"], found["last_finished_at"]) == (last["plan_time"], None)
    assert found["last_success_at"] == success["finished_at"]
    assert (found["consecutive_failures"], found["running"], found["pending"]) == (2, 1, 3)


def test_running_shows_ages_and_requests(db: Db) -> None:
    at = now(db) - MINUTE
    execution(db, "RUNNING", "a", started_at=at, heartbeat_at=at + 50 * SECOND)
    execution(db, "RUNNING", "b", stale_after=now(db) - SECOND)
    execution(
        db, "RUNNING", "c", cancel_requested_at=now(db), cancel_requested_by="alice", attempt=2
    )
    for status in ("PENDING", "SUCCESS", "FAILED", "CANCELLED"):
        execution(db, status, "d", plan_time=now(db) - HOUR)
    a, b, c = rows(db, "running")
    assert MINUTE <= a["running_for"] < 2 * MINUTE
    assert 10 * SECOND <= a["heartbeat_age"] < MINUTE
    assert timedelta() < a["lease_left"] <= MINUTE
    assert b["lease_left"] < timedelta()
    assert (c["cancel_requested_by"], c["runner_id"], c["attempt"]) == ("alice", "r1", 2)


def late(db: Db, name: str = "job", **columns: Any) -> None:
    """The schedule has been due for a minute."""
    at = now(db) - MINUTE
    schedule(db, name, **{"next_plan_time": at, "next_due_at": at} | columns)


def parked(db: Db, why: str, **columns: Any) -> None:
    late(db, parked=why, next_due_at=None, **columns)


def overdue(db: Db) -> dict[str, Any]:
    (found,) = rows(db, "overdue")
    return found


def why(db: Db) -> tuple[str, str]:
    found = overdue(db)
    return found["reason"], found["detail"]


@pytest.mark.usefixtures("still")
def test_nothing_is_overdue_that_is_on_time(db: Db) -> None:
    runner(db)
    for name in ("new", "ahead", "edited", "retired", "gone", "unscheduled"):
        job(db, name, schedule=None if name == "unscheduled" else "@hourly")
    schedule(db, "ahead", next_plan_time=now(db) + HOUR, next_due_at=now(db) + HOUR)
    late(db, "edited", next_plan_time=now(db) + HOUR)
    for name in ("retired", "gone", "unscheduled"):
        late(db, name)
    db.execute("SELECT cronledger.retire('retired')")
    db.execute("DELETE FROM cronledger.jobs WHERE name = 'gone'")
    execution(db, "PENDING", "new", due_at=now(db) + HOUR)
    assert rows(db, "overdue") == []


def test_overdue_names_the_missing_runner_and_since_when(db: Db) -> None:
    job(db)
    travel(db, MINUTE)
    assert (overdue(db)["reason"], overdue(db)["plan_time"]) == ("no_runner", None)  # not planned
    late(db)
    runner(db, "elsewhere", queues=["other"])
    runner(db, "dead", stale_after=now(db) - SECOND)
    runner(db, "leaving", state="draining")
    found = overdue(db)
    at = value(db, "SELECT next_due_at FROM cronledger.schedules")
    assert (found["plan_time"], found["due_at"], found["id"]) == (at, at, None)
    assert MINUTE <= found["overdue_for"] < 2 * MINUTE
    assert (found["reason"], found["queue"]) == ("no_runner", "default")
    assert found["detail"] == "no live runner has queue default"


def test_overdue_names_what_the_live_runners_lack(db: Db) -> None:
    job(db, handler="python", target='{"python": "a.b"}')
    late(db)
    runner(db, handlers=["c.d"])
    assert why(db) == ("no_runner", "no live runner has queue default and function a.b")
    db.execute("UPDATE cronledger.runners SET handlers = '{a.b}', running = slots")
    assert overdue(db)["reason"] == "no_slot"
    failing = Jsonb({"failing": {"dispatcher": "DiskFull: no space"}})
    db.execute("UPDATE cronledger.runners SET running = 1, diagnostics = %s", [failing])
    assert overdue(db)["reason"] == "behind"
    assert overdue(db)["detail"].endswith("; r1 is failing (dispatcher: DiskFull: no space)")
    parked(db, "no_runner")
    detail = "a live runner can run it, and has not taken it up yet"
    assert why(db) == ("no_runner", detail)  # until it is rearmed


def test_overdue_in_another_database(db: Db) -> None:
    job(db)
    late(db)
    runner(db)
    db.execute("UPDATE cronledger.identity SET system_identifier = 1")
    reason, detail = why(db)
    assert reason == "database"
    assert "system identifier 1, and this server has" in detail


def test_overdue_names_the_pause_or_the_error_of_the_job(db: Db) -> None:
    job(db)
    runner(db)
    late(db)
    db.execute("SELECT cronledger.pause_queue('default', NULL, 'alice')")
    assert why(db) == ("queue_paused", "queue default paused by alice")
    db.execute("SELECT cronledger.resume_queue('default')")
    db.execute("SELECT cronledger.pause('job', 'why', NULL, 'alice')")
    late(db)
    assert why(db) == ("paused", "paused by alice: why")
    parked(db, "paused")
    assert why(db) == ("paused", "paused by alice: why")
    db.execute("SELECT cronledger.resume('job')")
    db.execute("UPDATE cronledger.jobs SET spec_error = 'unknown zone'")
    for next_plan_time in (None, "2001-01-01"):
        parked(db, "spec_error", next_plan_time=next_plan_time, planned_through=now(db) - HOUR)
        assert why(db) == ("spec_error", "unknown zone")
    db.execute("SELECT cronledger.pause('job', NULL, %s)", [now(db) + MINUTE])
    travel(db, HOUR)
    runner(db, "r2")
    parked(db, "spec_error", next_plan_time=None, planned_through=now(db) - HOUR)
    detail = "its definition was corrected, and it is not planned again yet"
    assert why(db) == ("spec_error", detail)


@pytest.mark.usefixtures("still")
def test_overdue_waiting(db: Db) -> None:
    job(db, overlap="wait")
    runner(db)
    running = execution(db, "RUNNING")
    late(db)
    waits = "waiting", f"execution {running['id']} of this scope is RUNNING"
    assert (why(db), overdue(db)["blocked_by"]) == (waits, running["id"])
    parked(db, "waiting")
    assert (why(db), overdue(db)["blocked_by"]) == (waits, running["id"])
    db.execute("UPDATE cronledger.executions SET stale_after = %s", [now(db) - SECOND])
    found = overdue(db)
    assert (found["reason"], found["blocked_by"]) == ("waiting", running["id"])
    assert " is RUNNING, but its lease ended at " in found["detail"]


def test_overdue_limit(db: Db) -> None:
    job(db, overlap="allow", max_running=1)
    runner(db)
    late(db)
    execution(db, "RUNNING")
    assert (overdue(db)["reason"], overdue(db)["blocked_by"]) == ("limit", None)
    db.execute("UPDATE cronledger.jobs SET max_running = NULL")
    late(db)
    assert overdue(db)["reason"] == "behind"
    parked(db, "limit")
    assert overdue(db)["reason"] == "limit"  # until it is rearmed
    late(db)
    insert(db, "queues", name="default", max_running=1)
    assert (overdue(db)["reason"], overdue(db)["blocked_by"]) == ("limit", None)


@pytest.mark.usefixtures("still")
def test_overdue_executions(db: Db) -> None:
    job(db, handler="python", target='{"python": "a.b"}')
    job(db, "other", schedule=None)
    waiting = execution(db, "PENDING")
    retried = execution(db, "FAILED", "other", plan_time=now(db) - HOUR, next_attempt_at=now(db))
    db.execute("UPDATE cronledger.executions SET next_attempt_at = due_at")
    schedule(db, "job", next_plan_time=now(db) + HOUR, next_due_at=now(db) + HOUR)
    assert [r["id"] for r in rows(db, "overdue")] == [waiting["id"], retried["id"]]
    db.execute("DELETE FROM cronledger.executions WHERE id = %s", [retried["id"]])
    assert overdue(db)["reason"] == "no_runner"
    runner(db, handlers=["a.b"])
    assert overdue(db)["reason"] == "behind"
    running = execution(db, "RUNNING", plan_time=now(db) - HOUR)
    assert (overdue(db)["reason"], overdue(db)["blocked_by"]) == ("waiting", running["id"])
    db.execute("UPDATE cronledger.jobs SET overlap = 'allow'")
    schedule(db, "job", next_due_at=now(db) + HOUR)
    assert overdue(db)["reason"] == "behind"
    db.execute("UPDATE cronledger.jobs SET handler = 'external'")
    assert overdue(db)["reason"] == "external"
    db.execute("SELECT cronledger.pause('job')")
    assert overdue(db)["reason"] == "paused"


def test_an_execution_forced_in_a_pause_is_not_overdue_for_the_pause(db: Db) -> None:
    job(db)
    runner(db)
    db.execute("SELECT cronledger.pause('job')")
    db.execute("SELECT cronledger.trigger('job', force => true)")
    schedule(db, parked="paused", next_due_at=None)
    travel(db, 10 * SECOND)
    assert overdue(db)["reason"] == "behind"


@pytest.mark.usefixtures("still")
def test_an_expired_lease_is_overdue_and_names_the_missing_runner(db: Db) -> None:
    job(db, handler="python", target='{"python": "jobs:resumable"}', allow_stale_reentry=True)
    running = execution(db, "RUNNING", stale_after=now(db) - MINUTE)
    found = overdue(db)
    assert (found["reason"], found["id"]) == ("lease_expired", running["id"])
    assert found["due_at"] == running["stale_after"]
    assert re.fullmatch(
        r"its lease ended at [0-9-]+ [0-9:]+ UTC \(attempt 1 on r1\);"
        r" no live runner has queue default and function jobs:resumable",
        found["detail"],
    )
    runner(db, "r2", handlers=["jobs:other"])
    assert overdue(db)["detail"].endswith("has queue default and function jobs:resumable")
    runner(db, "r3", handlers=["jobs:resumable"], slots=1, running=1)
    assert overdue(db)["detail"].endswith("no live runner of queue default has a free slot")
    db.execute("UPDATE cronledger.runners SET running = 0")
    assert overdue(db)["detail"].endswith("live runners have not taken it over yet")
    db.execute("SELECT cronledger.pause('job', 'why', NULL, 'alice')")
    reason, detail = why(db)
    assert reason == "paused"
    assert detail.endswith("; paused by alice: why")
    db.execute("SELECT cronledger.resume('job')")
    at = now(db) - SECOND
    db.execute("UPDATE cronledger.executions SET stale_after = %s", [at])
    assert rows(db, "overdue") == []


@pytest.mark.usefixtures("still")
def test_an_expired_lease_that_may_not_be_stolen_waits_for_any_replica(db: Db) -> None:
    job(db, handler="python", target='{"python": "jobs:once"}')
    execution(db, "RUNNING", stale_after=now(db) - MINUTE)
    db.execute("SELECT cronledger.pause('job')")  # the sweeper ends it nevertheless
    assert overdue(db)["reason"] == "lease_expired"
    runner(db, "w", version="external", queues=[], handlers=["external:default"])
    assert overdue(db)["detail"].endswith("; no replica is alive to end it")
    runner(db, "r2", queues=["other"])
    assert overdue(db)["detail"].endswith("; live replicas have not ended it yet")


def test_recent_failures_newest_first(db: Db) -> None:
    start = now(db) - HOUR
    final = execution(db, "FAILED", plan_time=start, output="tail")
    retried = execution(
        db, "FAILED", plan_time=start + MINUTE, next_attempt_at=now(db) + HOUR, max_attempts=5
    )
    execution(db, "FAILED", plan_time=start + 2 * MINUTE, finished_at=now(db) - 8 * DAY)
    execution(db, "SUCCESS", plan_time=start + 3 * MINUTE, error_code="result_invalid")
    found = db.execute("SELECT * FROM cronledger.recent_failures").fetchall()
    assert [r["id"] for r in found] == [retried["id"], final["id"]]
    assert [r["will_retry"] for r in found] == [True, False]
    assert found[0]["next_attempt_at"] == retried["next_attempt_at"]
    assert (found[1]["error_code"], found[1]["error_msg"]) == ("boom", "it broke")
    assert (found[1]["output"], found[1]["duration"]) == ("tail", 2 * SECOND)


def test_upcoming_in_order_with_local_times(db: Db) -> None:
    for name, zone in (("a", "Asia/Tokyo"), ("b", "Nowhere/At_all"), ("c", "UTC")):
        job(db, name, timezone=zone)
    at = datetime(2030, 1, 1, 12, tzinfo=UTC)
    for name, hours in (("a", 2), ("b", 1), ("c", 3)):
        schedule(db, name, next_plan_time=at, next_due_at=at + hours * HOUR)
    job(db, "d")
    # It is due earlier than that to skip the plan_times of an excluded date.
    schedule(db, "d", next_plan_time=at + 4 * HOUR, next_due_at=at)
    for name in ("parked", "unplanned", "retired"):
        job(db, name)
        schedule(db, name, next_plan_time=at)
    schedule(db, "parked", parked="waiting", next_due_at=None)
    schedule(db, "unplanned", next_plan_time=None)
    db.execute("UPDATE cronledger.jobs SET retired_at = cronledger.db_now() WHERE name = 'retired'")
    found = db.execute("SELECT * FROM cronledger.upcoming").fetchall()
    assert [r["job_name"] for r in found] == ["b", "a", "c", "d"]
    noon = at.replace(tzinfo=None)
    assert [r["local_time"] for r in found[:3]] == [None, noon + 9 * HOUR, noon]
    assert [r["due_at"] for r in found] == [at + n * HOUR for n in (1, 2, 3, 4)]
    assert found[0]["due_in"] > DAY


def test_lateness_per_job_and_hour(db: Db) -> None:
    hour = (now(db) - 3 * HOUR).replace(minute=0, second=0, microsecond=0)
    for n in range(5):
        at = hour + n * SECOND
        execution(db, plan_time=at, started_at=at + timedelta(milliseconds=n + 1))
    late_start = hour + HOUR
    execution(db, "FAILED", plan_time=late_start, started_at=late_start + SECOND)
    left_out: list[dict[str, Any]] = [{"trigger": t} for t in ("manual", "backfill", "enqueue")]
    for n, columns in enumerate([*left_out, {"attempt": 2}]):
        execution(db, plan_time=hour + (200 + n) * SECOND, **columns)
    execution(db, "PENDING", plan_time=hour + 300 * SECOND)
    first, second = rows(db, "lateness", "hour")
    assert (first["hour"], first["count"]) == (hour, 5)
    assert (first["p50_ms"], first["p99_ms"]) == pytest.approx((3, 4.96))
    assert (first["max_ms"], second["max_ms"]) == (5, 1000)
    assert second["count"] == 1


def test_runner_status_shows_every_state(db: Db) -> None:
    past = now(db) - SECOND
    job(db)
    runner(db, "alive", slots=4, running=4, clock_skew="-3 s", deploy=7)
    execution(db, "RUNNING", runner_id="alive")
    execution(db, "SUCCESS", runner_id="alive", plan_time=past)
    runner(db, "dead", stale_after=past)
    runner(db, "dead_draining", state="draining", stale_after=past)
    runner(db, "draining", state="draining")
    runner(db, "slotless", slots=0)
    runner(db, "stopped", state="stopped", stale_after=past)
    runner(db, "polls", diagnostics=Jsonb({"failing": {"listen": "OperationalError"}}))
    errors = {"listen": "OperationalError", "finisher": "DiskFull: no space"}
    runner(db, "full", diagnostics=Jsonb({"failing": errors}))
    found = {r["runner_id"]: r for r in rows(db, "runner_status", "runner_id")}
    assert {name: r["state"] for name, r in found.items()} == {
        "alive": "alive", "dead": "dead", "dead_draining": "dead", "draining": "draining",
        "slotless": "alive", "stopped": "stopped", "polls": "alive", "full": "failing",
    }  # fmt: skip
    assert found["full"]["failing"] == "finisher: DiskFull: no space"
    assert found["polls"]["failing"] is None
    assert (found["alive"]["load"], found["slotless"]["load"]) == (0.25, None)
    # One execution is RUNNING in the ledger, whatever the last check-in reported.
    assert (found["alive"]["running"], found["stopped"]["running"]) == (1, 0)
    assert (found["alive"]["deploy"], found["dead"]["deploy"]) == (7, None)
    assert found["alive"]["clock_skew"] == -3 * SECOND
    assert timedelta() <= found["alive"]["heartbeat_age"] < MINUTE


def test_crashes_shows_stolen_attempts_and_the_fate_of_their_execution(db: Db) -> None:
    start = now(db) - HOUR
    lost = {
        "attempt": 1, "runner_id": "dead1", "started_at": start.isoformat(),
        "last_seen": start.isoformat(), "ended_at": None, "error_code": "runner_crashed",
    }  # fmt: skip
    failed = {"attempt": 2, "error_code": "boom", "ended_at": (start + MINUTE).isoformat(),
              "started_at": (start + MINUTE).isoformat()}  # fmt: skip
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("CANCELLED", {"cancel_requested_by": "alice"}, "cancelled by alice"),
        ("FAILED", {}, "attempt 3 failed: boom"),
        ("RUNNING", {}, "attempt 3 runs on r1"),
        ("SUCCESS", {}, "attempt 3 succeeded on r1"),
    ]
    for status, columns, _ in cases:
        execution(db, status, status, attempts=Jsonb([lost, lost | failed]), attempt=3, **columns)
    found = rows(db, "crashes")
    assert [(r["attempt"], r["became"]) for r in found] == [(1, became) for *_, became in cases]
    assert {(r["runner_id"], r["last_seen"], r["noticed_at"]) for r in found} == {
        ("dead1", start, start + MINUTE),
    }  # fmt: skip


def test_crashes_shows_swept_executions(db: Db) -> None:
    job(db)
    swept = execution(db, "FAILED", error_code="stale_timeout")
    execution(db, "CANCELLED", "other", error_code="stale_timeout")
    execution(db, "FAILED", "shutdown", error_code="shutdown")
    first, second = rows(db, "crashes")
    assert (first["job_name"], first["status"]) == ("job", "FAILED")
    assert (second["job_name"], second["status"]) == ("other", "CANCELLED")
    assert (first["attempt"], first["runner_id"]) == (1, "r1")
    assert first["last_seen"] == swept["heartbeat_at"]
    assert first["noticed_at"] == swept["finished_at"]
    assert "is not run again" in first["became"]
    db.execute("SELECT cronledger.retry(%s, force => true)", [swept["id"]])
    became = rows(db, "crashes")[0]["became"]
    assert re.fullmatch(r"attempt 2 is due [0-9-]+ [0-9:]+ UTC", became)


@pytest.mark.long
def test_views_read_their_rows_through_indexes(db: Db) -> None:
    """Not one row of history is read for what is RUNNING, FAILED or the newest of a job."""
    # To a Thursday, because PostgreSQL reads all of a partition that has few rows.
    travel(db, (3 - now(db).weekday()) * DAY)
    job(db)
    at = (now(db) - HOUR).isoformat()
    db.execute(
        sql.SQL(
            "INSERT INTO cronledger.executions (job_name, scope_kind, scope_id, plan_time, status,"
            " trigger, revision, queue, due_at, attempt, max_attempts, lease_token, started_at,"
            " finished_at, duration_ms) SELECT CASE g % 10 WHEN 0 THEN 'job' ELSE 'j' || g % 100"
            " END, 'global', 'global', t, 'SUCCESS', 'schedule', 1, 'default', t, 1, 1,"
            " gen_random_uuid(), t, t, 0 FROM generate_series(1, 5000) g,"
            " LATERAL (SELECT {}::timestamptz - g * interval '1 s' AS t) t"
        ).format(sql.Literal(at))
    )
    db.execute("ANALYZE")
    for query in (
        "SELECT * FROM cronledger.running",
        "SELECT * FROM cronledger.recent_failures LIMIT 20",
        "SELECT * FROM cronledger.job_status WHERE job_name = 'job'",
        "SELECT * FROM cronledger.overdue",
        "SELECT * FROM cronledger.ledger WHERE id = 17",
        "SELECT * FROM cronledger.ledger WHERE job_name = 'job' AND scope_kind = 'global'"
        " AND scope_id = 'global' ORDER BY plan_time DESC LIMIT 20",
    ):
        explained = value(db, sql.SQL("EXPLAIN (ANALYZE, FORMAT JSON) {}").format(sql.SQL(query)))
        for node in nodes(explained[0]["Plan"]):
            if node.get("Relation Name", "").startswith("executions"):
                read = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
                assert read * node["Actual Loops"] <= 100, query


@pytest.mark.long
def test_no_view_shows_a_lease_token(db: Db) -> None:
    """Viewers read them; a token is a secret of the process that holds the lease."""
    job(db)
    token, old = str(uuid4()), str(uuid4())
    entry = {"attempt": 1, "runner_id": "r0", "lease_token": old, "error_code": "runner_crashed"}
    execution(db, "RUNNING", lease_token=token, attempt=2, attempts=Jsonb([entry]))
    found = db.execute("SELECT viewname FROM pg_views WHERE schemaname = 'cronledger'").fetchall()
    views = {row["viewname"] for row in found}
    assert {"attempts", "running", "ledger", "execution_status"} <= views
    for view in views:
        statement = sql.SQL("SELECT v::text AS row FROM cronledger.{} v")
        text = str(db.execute(statement.format(sql.Identifier(view))).fetchall())
        assert token not in text and old not in text, view
    digests = db.execute("SELECT token_digest FROM cronledger.attempts").fetchall()
    assert len({row["token_digest"] for row in digests}) == 2
