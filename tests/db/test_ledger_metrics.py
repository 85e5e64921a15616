"""The metrics of the whole ledger: each one with the state that sets it, read as a viewer."""

from datetime import timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from cronledger.metrics.ledger_families import BREACHES, METRICS, OVERDUE, STATES, VIOLATIONS
from tests.db.support import rows
from tests.db.support.engine import DAY, HOUR
from tests.db.support.rows import Db
from tests.db.support.scrapes import read_text, scrape
from tests.promtool import complaints, needs_promtool

ABSENT = {
    # Absent from a ledger without jobs, queues, channels, starts and runs of verify.
    "start_lateness_p99_seconds", "queue_depth", "queue_running", "queue_limit", "queue_paused",
    "alerts_undelivered", "verify_last_timestamp_seconds", "verify_last_age_seconds",
    "verify_last_violations", "job_info", "job_scopes", "job_spec_suspend",
    "job_next_schedule_time", "job_status_last_schedule_time",
    "job_status_last_successful_time", "job_status_active", "job_status_consecutive_failures",
    "job_overdue_seconds", "job_skipped_plan_times", "job_failures_final", "job_breaches",
    "job_progress_ratio",
}  # fmt: skip


def test_an_empty_ledger_has_every_metric_that_needs_nothing(database_url: str, db: Db) -> None:
    found = scrape(database_url)
    assert found.keys() == {m.name.removeprefix("cronledger_") for m in METRICS} - ABSENT
    assert found.one("up") == 1
    assert found.one("jobs") == found.one("job_series_omitted") == 0
    assert found.one("job_series_limit") == 1_000
    assert found["overdue"] == {(reason,): 0 for reason in OVERDUE}
    assert found["overdue_seconds_max"] == found["overdue"]
    assert found["runners"] == {(state,): 0 for state in STATES}
    assert found["violations"] == {(kind,): 0 for kind in VIOLATIONS}
    assert found["breaches"] == {(kind,): 0 for kind in BREACHES}
    assert set(found["skipped_plan_times"].values()) == {0}
    assert abs(found.one("snapshot_timestamp_seconds") - rows.now(db).timestamp()) < 60
    last = rows.value(db, "SELECT max(left(name, 4)) FROM cronledger.schema_migrations"
                          " WHERE name ~ '^[0-9]'")  # fmt: skip
    assert found.one("schema_version") == int(last)
    assert [len(labels) for labels in found["build_info"]] == [1]


def test_the_definition_of_a_job_is_its_info(database_url: str, db: Db) -> None:
    rows.job(db, "report", schedule="0 6 * * *", timezone="Europe/Berlin", owner="data", queue="q")
    rows.job(db, 'a "job"\\', schedule=None)
    rows.job(db, "gone", retired_at=rows.now(db))
    rows.channel(db)
    found = scrape(database_url)
    assert found["job_info"] == {
        ("command", "report", "data", "q", "0 6 * * *", "Europe/Berlin"): 1,
        ("command", 'a "job"\\', "", "default", "", "UTC"): 1,
    }
    assert found.labels["job_info"] == ("handler", "job", "owner", "queue", "schedule", "timezone")
    assert found.one("jobs") == 2


def test_a_job_that_never_ran_has_no_past_and_a_paused_one_no_next_plan_time(
    database_url: str, db: Db
) -> None:
    rows.job(db)
    due = (rows.now(db) + HOUR).replace(microsecond=0)
    rows.schedule(db, next_plan_time=due, next_due_at=due)
    assert scrape(database_url).of_job() == {
        "scopes": 1, "spec_suspend": 0, "next_schedule_time": due.timestamp(), "status_active": 0,
        "status_consecutive_failures": 0,
    }  # fmt: skip
    db.execute("SELECT cronledger.pause('job')")
    found = scrape(database_url).of_job()
    assert found["spec_suspend"] == 1 and "next_schedule_time" not in found
    db.execute("UPDATE cronledger.jobs SET paused_until = cronledger.db_now() - interval '1 s'")
    assert scrape(database_url).of_job()["spec_suspend"] == 0


def test_the_status_of_a_job_is_that_of_its_scopes_unless_they_are_retired(
    database_url: str, db: Db
) -> None:
    rows.job(db, "job", scope_kind="tenant", scopes=["a", "b", "c"])
    at = rows.now(db).replace(microsecond=0)
    for number, scope in enumerate("abc"):
        due = at + (3 - number) * HOUR
        rows.schedule(db, scope_id=scope, next_plan_time=due, next_due_at=due)
    tenant = {"scope_kind": "tenant"}

    def ran(status: str, scope: str, minutes: int) -> None:
        plan_time = at - timedelta(minutes=minutes)
        rows.execution(db, status, scope_id=scope, plan_time=plan_time, **tenant)

    ran("SUCCESS", "a", 30)
    for minutes in (3, 4, 5):
        ran("FAILED", "a", minutes)
    ran("SUCCESS", "b", 20)
    ran("FAILED", "b", 10)
    ran("RUNNING", "b", 1)
    ran("RUNNING", "c", 2)
    assert scrape(database_url).of_job() == {
        "failures_final": 4, "scopes": 3, "spec_suspend": 0, "status_active": 2,
        "status_consecutive_failures": 3, "next_schedule_time": (at + HOUR).timestamp(),
        "status_last_schedule_time": (at - timedelta(minutes=1)).timestamp(),
        "status_last_successful_time": (at - timedelta(minutes=20, seconds=-2)).timestamp(),
    }  # fmt: skip
    rows.schedule(db, scope_id="a", retired_at=at, parked="retired", next_due_at=None)
    assert scrape(database_url).of_job()["status_consecutive_failures"] == 1
    rows.schedule(db, scope_id="a", retired_at=at, returned_at=at, next_due_at=at)
    assert scrape(database_url).of_job()["status_consecutive_failures"] == 3


def test_at_most_a_hundred_failures_are_counted(database_url: str, db: Db) -> None:
    rows.job(db)
    rows.copies(db, rows.execution(db, "FAILED"), 100)
    found = scrape(database_url).of_job()
    assert found["status_consecutive_failures"] == 100
    assert "status_last_successful_time" not in found


def test_an_early_success_is_found_through_the_sums_by_hour(database_url: str, db: Db) -> None:
    rows.job(db)
    at = rows.now(db).replace(minute=0, second=0, microsecond=0)
    success = rows.execution(db, "SUCCESS", plan_time=at - 3 * DAY)
    for minutes in range(3):
        rows.execution(db, "FAILED", plan_time=at - DAY - timedelta(minutes=minutes))
    db.execute("UPDATE cronledger.executions SET changed_xact = pg_current_xact_id()")
    db.execute("SELECT cronledger_internal.mark_changed_hours('0', 1000)")
    while rows.value(db, "SELECT cronledger_internal.roll_up_hours(100)"):
        pass
    assert rows.value(db, "SELECT cronledger.rolled_up_before()") >= at - HOUR
    found = scrape(database_url).of_job()
    assert found["status_last_successful_time"] == success["finished_at"].timestamp()
    assert found["status_consecutive_failures"] == 3


def test_what_is_due_and_does_not_start_is_counted_by_reason_and_queue(
    database_url: str, db: Db
) -> None:
    rows.job(db)
    rows.job(db, "other", queue="mail")
    rows.job(db, "outside", handler="external", queue="mail")
    at = rows.now(db)
    for minutes in (1, 5):
        rows.execution(db, "PENDING", plan_time=at - timedelta(minutes=minutes))
    rows.execution(db, "PENDING", "outside", plan_time=at - HOUR, queue="mail")
    rows.schedule(db, "other", next_plan_time=at - HOUR / 2, next_due_at=at - HOUR / 2)
    rows.job(db, "tenants", scope_kind="tenant")
    rows.insert(db, "scope_providers", job_name="tenants", asked_at=at, asked_by="r1", failures=2,
                failing_since=at - HOUR, error="it broke")  # fmt: skip
    found = scrape(database_url)
    expected = dict.fromkeys(OVERDUE, 0) | {"no_runner": 3, "external": 1, "provider_failed": 1}
    assert found["overdue"] == {(reason,): count for reason, count in expected.items()}
    longest = found["overdue_seconds_max"]
    assert 1800 <= longest["no_runner",] < 1900 and 3600 <= longest["external",] < 3700
    assert longest["behind",] == 0
    assert found["queue_depth"] == {("default",): 2, ("mail",): 2}
    of_jobs = found["job_overdue_seconds"]
    assert of_jobs.keys() == {
        ("job", "no_runner"), ("other", "no_runner"), ("outside", "external"),
        ("tenants", "provider_failed"),
    }  # fmt: skip
    assert 300 <= of_jobs["job", "no_runner"] < 400
    assert of_jobs["other", "no_runner"] == longest["no_runner",]
    limited = scrape(database_url, job_limit=2)["job_overdue_seconds"]
    assert limited.keys() == {("outside", "external"), ("tenants", "provider_failed")}


def test_queues_have_limits_pauses_and_violations(database_url: str, db: Db) -> None:
    rows.job(db, queue="mail")
    rows.job(db, "other", queue="slow")
    db.execute("SELECT cronledger.limit_queue('mail', 1)")
    db.execute("SELECT cronledger.pause_queue('slow')")
    for _ in range(2):
        rows.execution(db, "RUNNING", queue="mail", plan_time=rows.now(db))
    rows.execution(db, "RUNNING", queue="mail", stale_after=rows.now(db) - HOUR)
    found = scrape(database_url)
    assert found["queue_running"] == {("mail",): 3, ("slow",): 0}
    assert found["queue_limit"] == {("mail",): 1}
    assert found["queue_paused"] == {("mail",): 0, ("slow",): 1}
    assert found.one("queue_series_omitted") == 0
    assert found["violations"] == {
        ("gate",): 0, ("over_limit",): 1, ("parked",): 0, ("stale",): 1,
    }  # fmt: skip


def test_the_number_of_queues_is_limited(database_url: str, db: Db) -> None:
    db.execute(
        "INSERT INTO cronledger.jobs (name, handler, queue)"
        " SELECT 'job-' || n, 'external', 'queue-' || to_char(n, 'FM000')"
        " FROM generate_series(0, 102) n"
    )
    db.execute("SELECT cronledger.pause_queue('queue-102')")
    found = scrape(database_url)
    assert len(found["queue_depth"]) == 100
    assert found["queue_paused"]["queue-102",] == 1
    assert found.one("queue_series_omitted") == 3


def test_runners_are_counted_by_state(database_url: str, db: Db) -> None:
    at = rows.now(db)
    rows.runner(db, "alive")
    rows.runner(db, "dead", stale_after=at - timedelta(minutes=1))
    rows.runner(db, "dead too", stale_after=at - timedelta(hours=23))
    rows.runner(db, "forgotten", stale_after=at - 2 * DAY)
    rows.runner(db, "worker", version="external")
    rows.runner(db, "worker too", version="external", stale_after=at - timedelta(minutes=1))
    expected = dict.fromkeys(STATES, 0) | {"alive": 1, "dead": 2}
    found = scrape(database_url)
    assert found["runners"] == {(s,): n for s, n in expected.items()}


def test_crashes_skips_and_final_failures_of_the_last_time_are_counted(
    database_url: str, db: Db
) -> None:
    at = rows.now(db)
    for name in ("job", "failing", "crashing"):
        rows.job(db, name)

    def stolen(hours: int) -> Jsonb:
        seen = (at - hours * HOUR).isoformat()
        entry = {"attempt": 1, "runner_id": "r0", "started_at": seen, "last_seen": seen}
        return Jsonb([entry | {"error_code": "runner_crashed"}])

    crashed: dict[str, Any] = {"job": "crashing", "attempt": 2}
    rows.execution(db, "SUCCESS", **crashed, attempts=stolen(1), plan_time=at - HOUR)
    rows.execution(db, "SUCCESS", **crashed, attempts=stolen(47), plan_time=at - 2 * DAY)
    rows.execution(db, "FAILED", "crashing", error_code="stale_timeout")
    for minutes, retried in ((1, None), (2, at + HOUR), (90, None)):
        plan_time = at - timedelta(minutes=minutes)
        rows.execution(db, "FAILED", "failing", plan_time=plan_time, next_attempt_at=retried)
    rows.skip(db, at - HOUR, at - HOUR, 1)
    rows.skip(db, at - 3 * HOUR, at - 2 * HOUR, 61)
    rows.skip(db, at - 40 * DAY, at - 39 * DAY, 1440)
    # Of this range, which grows every minute, one day of ten lies in the last day.
    rows.skip(db, at - 10 * DAY, at, 14401, reason="paused")

    found = scrape(database_url)
    assert found.one("runner_crashes") == 2
    assert found.one("failures_final") == 2
    assert found["job_failures_final"] == {("crashing",): 1, ("failing",): 1}
    skipped = found["skipped_plan_times"]
    assert skipped["missed",] == found["job_skipped_plan_times"]["job", "missed"] == 62
    assert 1440 <= skipped["paused",] <= 1442
    assert skipped["overlap",] == skipped["retired",] == skipped["superseded",] == 0


def test_the_lateness_is_that_of_scheduled_starts_of_the_last_hour(
    database_url: str, db: Db
) -> None:
    rows.job(db)
    at = rows.now(db)
    started: list[tuple[int, float, dict[str, Any]]] = [
        (1, 4.5, {}), (2, 30, {"trigger": "manual"}), (3, 30, {"attempt": 2}), (70, 30, {}),
    ]  # fmt: skip
    for minutes, late, columns in started:
        due = at - timedelta(minutes=minutes)
        rows.execution(db, plan_time=due, started_at=due + timedelta(seconds=late), **columns)
    assert scrape(database_url).one("start_lateness_p99_seconds") == pytest.approx(4.5)


def test_missed_deadlines_that_were_not_met_since_are_counted(database_url: str, db: Db) -> None:
    at = rows.now(db)

    def breach(kind: str, missed: timedelta, **columns: Any) -> None:
        row = {
            "job_name": "job", "scope_kind": "global", "scope_id": "global", "revision": 1,
            "plan_time": at - missed - HOUR, "kind": kind, "deadline": at - missed,
            "month": "2030-01-01", "breached_at": at - missed, "look_at": at,
        }  # fmt: skip
        rows.insert(db, "deadline_breaches", **row | columns)

    breach("finish_by", HOUR)
    breach("finish_by", 2 * HOUR)
    breach("finish_by", 3 * HOUR, closed_at=at, look_at=None)
    breach("start_by", 5 * HOUR)
    breach("start_by", 30 * HOUR)
    rows.job(db)
    found = scrape(database_url)
    assert found["breaches"] == {("expect_duration",): 0, ("finish_by",): 2, ("start_by",): 1}
    assert found["job_breaches"] == {("job", "finish_by"): 2, ("job", "start_by"): 1}


def test_alerts_that_were_not_delivered_are_counted_by_channel(database_url: str, db: Db) -> None:
    for name in ("mail", "ops"):
        rows.channel(db, name)
    at = rows.now(db)
    ended = {"status": "SUCCESS", "due_at": None, "finished_at": at}
    delivered = rows.insert(db, "deliveries", channel="ops", **ended)["id"]
    for minutes, delivery in ((10, None), (20, None), (30, delivered), (1, None), (1500, None)):
        raised = at - timedelta(minutes=minutes)
        rows.insert(
            db, "raised_alerts", at=raised, event="failed", kind="opened", channel="ops",
            since=raised, count=1, job_name="job", summary="it failed", details="{}",
            delivery_id=delivery,
        )  # fmt: skip
    found = scrape(database_url)
    assert found["alerts_undelivered"] == {("mail",): 0, ("ops",): 2}
    assert found.one("channel_series_omitted") == 0


def test_the_horizon_ends_at_the_first_gap(database_url: str, db: Db) -> None:
    known = db.execute("SELECT * FROM cronledger.partitions() ORDER BY from_plan_time").fetchall()
    last = known[-1]["before_plan_time"]
    assert scrape(database_url).one("partition_horizon_timestamp_seconds") == last.timestamp()
    rows.partitions(db, last + timedelta(days=20))
    assert scrape(database_url).one("partition_horizon_timestamp_seconds") == last.timestamp()
    rows.travel(db, last - rows.now(db) + DAY)
    found = scrape(database_url)
    now = found.one("snapshot_timestamp_seconds")
    assert now == pytest.approx(rows.now(db).timestamp(), abs=60)  # instants are the ledger's
    assert found.one("partition_horizon_timestamp_seconds") == pytest.approx(now, abs=60)


def test_the_last_verify_of_all_jobs_has_an_age(database_url: str, db: Db) -> None:
    at = rows.now(db)

    def verified(ago: timedelta, **columns: Any) -> None:
        begun = at - ago - HOUR
        rows.verification(db, started_at=begun, finished_at=at - ago, violations=2, **columns)

    verified(2 * DAY)
    verified(DAY)
    verified(HOUR, job_name="report")
    verified(HOUR, outcome="interrupted", error="stopped")
    verified(HOUR, to_plan_time=at - 5 * DAY)
    rows.insert(db, "verification_runs", requested_by="a", version="1", started_at=at)
    found = scrape(database_url)
    assert found.one("verify_last_timestamp_seconds") == (at - DAY).timestamp()
    assert found.one("verify_last_age_seconds") == pytest.approx(86_400, abs=60)
    assert found.one("verify_last_violations") == 2


@needs_promtool
async def test_promtool_accepts_the_metrics(database_url: str, db: Db) -> None:
    rows.job(db, 'a "job"\\\n'.strip(), owner="ä")
    rows.execution(db, "SUCCESS", 'a "job"\\')
    db.execute("SELECT cronledger.limit_queue('default', 1)")
    assert complaints((await read_text(database_url)).encode()) == ""


def test_the_least_progress_of_a_job_is_a_metric_F86(database_url: str, db: Db) -> None:
    rows.job(db, "report")
    for minutes, done in ((1, 30), (2, 60), (3, None)):
        at = rows.now(db) - timedelta(minutes=minutes)
        row = rows.execution(db, "RUNNING", "report", plan_time=at)
        total = None if done is None else 120
        db.execute(
            "SELECT cronledger.progress(%s, %s, %s, %s)",
            [row["id"], row["lease_token"], done or 7, total],
        )
    assert scrape(database_url)["job_progress_ratio"] == {("report",): 0.25}
