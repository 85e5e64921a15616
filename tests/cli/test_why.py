"""`cronledger why JOB TIME`: one paragraph for whatever became of an instant."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.cli.conftest import Cli
from tests.cli.support.clocks import set_ten_past
from tests.db.support import rows

MARCH = "2026-03-01T00:00:00Z"


@pytest.fixture
def db(cli: Cli, database_url: str) -> Iterator[rows.Db]:
    """A database with the hourly job `job`, planned for two days up to the last full hour."""
    with rows.connected(database_url) as connection:
        set_ten_past(connection)
        rows.job(connection)
        _planned(connection, "job", rows.now(connection) - timedelta(days=2))
        yield connection


def _planned(db: rows.Db, job: str, since: datetime | str) -> None:
    """As if `job` had been there since then, and everything up to now were settled."""
    db.execute(
        "UPDATE cronledger.job_revisions SET effective_from = %s WHERE job_name = %s"
        " AND revision = 1", [since, job],
    )  # fmt: skip
    db.execute(
        "UPDATE cronledger.schedules SET created_at = %s, planned_through = cronledger.db_now(),"
        " planned_revision = (SELECT revision FROM cronledger.jobs WHERE name = job_name)"
        " WHERE job_name = %s", [since, job],
    )  # fmt: skip


def _hour(db: rows.Db, ago: int = 1) -> datetime:
    now: datetime = rows.now(db)
    return now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=ago)


def _why(cli: Cli, at: datetime | str, job: str = "job", *more: str) -> Any:
    text = at if isinstance(at, str) else at.isoformat()
    said = cli("why", job, text, "--json", *more)
    assert said.exit_code == 0, said.output
    (answer,) = json.loads(said.stdout)
    return answer


def _skip(db: rows.Db, at: datetime, reason: str, **columns: Any) -> None:
    given = {"through_plan_time": at, "count": 1, "revision": 1} | columns
    rows.insert(
        db, "skips", job_name="job", scope_kind="global", scope_id="global", from_plan_time=at,
        reason=reason, **given,
    )  # fmt: skip


def test_it_ran(cli: Cli, db: rows.Db) -> None:
    at = _hour(db)
    row = rows.execution(db, plan_time=at, started_at=at + timedelta(minutes=3))
    found = _why(cli, at)
    assert (found["verdict"], found["executions"]) == ("ran", [row["id"]])
    assert "attempt 1 of 3 started at" in found["text"]
    assert ", 3m late, on r1 and succeeded after 2s" in found["text"]
    assert f"is execution {row['id']} (the schedule, revision 1)" in found["text"]


def test_the_state_of_an_execution_and_its_earlier_attempts_are_explained(
    cli: Cli, db: rows.Db
) -> None:
    before = {
        "attempt": 1, "runner_id": "r0", "started_at": "2026-01-01T00:00:00+00:00",
        "last_seen": "2026-01-01T00:00:20+00:00", "error_code": "runner_crashed", "error_msg": None,
    }  # fmt: skip
    crashed = {"attempt": 2, "attempts": Jsonb([before])}
    cases: tuple[tuple[str, dict[str, Any], str, str], ...] = (
        ("RUNNING", {}, "running", "and still runs; its lease is valid until"),
        ("PENDING", {}, "pending", "it has been waiting to be claimed since"),
        ("FAILED", {}, "failed", "(boom: it broke); it is not retried"),
        ("FAILED", {"next_attempt_at": "2099-01-01Z"}, "pending", "retried at 2099-01-01T00"),
        ("CANCELLED", {"cancel_requested_by": "ann"}, "cancelled", "cancelled by ann at"),
        ("SUCCESS", {"trigger": "manual", "requested_by": "ann"}, "ran", "(manual by ann, rev"),
        ("SUCCESS", crashed, "ran", "Attempt 1 on r0, started 2026-01-01T00:00:00+00:00, last"),
    )
    for ago, (status, columns, verdict, words) in enumerate(cases, 1):
        at = _hour(db, ago)
        rows.execution(db, status, plan_time=at, **columns)
        found = _why(cli, at)
        assert found["verdict"] == verdict
        assert words in found["text"]


def test_a_traceback_is_left_to_executions_show(cli: Cli, db: rows.Db) -> None:
    message = (
        "ValueError: bad day\n\nTraceback (most recent call last):\n  File x\nValueError: bad day"
    )
    before = {
        "attempt": 1, "runner_id": "r0", "started_at": "2026-01-01T00:00:00+00:00",
        "error_code": "handler_error", "error_msg": message.replace("day", "night"),
    }  # fmt: skip
    row = rows.execution(
        db, "FAILED", plan_time=_hour(db), attempt=2, attempts=Jsonb([before]),
        error_code="handler_error", error_msg=message,
    )  # fmt: skip
    printed = cli("why", "job", _hour(db).isoformat()).stdout
    assert "(handler_error: ValueError: bad day); it is not retried." in printed
    assert "ended with handler_error (ValueError: bad night)." in printed
    assert printed.endswith(
        f" `cronledger executions show {row['id']}` prints the whole message.\n"
    )
    assert "Traceback" not in printed
    assert message in _why(cli, _hour(db))["text"]


def test_a_filter_is_named_as_the_reason_why_it_is_not_retried(cli: Cli, db: rows.Db) -> None:
    note = "not retried: never_retry_on has 64-78"
    because = "; it is not retried: never_retry_on has 64-78."
    ends = {
        "exit status 64\n": "exit status 64", "": "no message",
        "ValueError: no\n\nTraceback\n": "ValueError: no",
    }  # fmt: skip
    for ago, (message, told) in enumerate(ends.items(), 1):
        at = _hour(db, ago)
        stored = {"error_code": "exit_code", "error_msg": message + note}
        row = rows.execution(db, "FAILED", plan_time=at, **stored)
        printed = cli("why", "job", at.isoformat()).stdout
        assert f"(exit_code: {told}){because}" in printed
        assert ("prints the whole message" in printed) is ("Traceback" in message)
        assert because in _why(cli, at)["text"]
        assert note in cli("executions", "show", str(row["id"])).stdout


def test_skipped_because_another_one_was_running(cli: Cli, db: rows.Db) -> None:
    row = rows.execution(db, plan_time=_hour(db, 2))
    _skip(db, _hour(db), "overlap", blocked_by=row["id"])
    found = _why(cli, _hour(db))
    assert found["verdict"] == "skipped"
    assert f"execution {row['id']} was RUNNING on r1, from" in found["text"]
    assert "overlap is skip" in found["text"]


def test_an_expired_lease_is_explained_by_what_is_missing(cli: Cli, db: rows.Db) -> None:
    db.execute(
        "UPDATE cronledger.jobs SET handler = 'python', allow_stale_reentry = true,"
        " target = jsonb_build_object('python', 'jobs:resumable')"
    )
    ended = rows.now(db) - timedelta(minutes=1)
    row = rows.execution(db, "RUNNING", plan_time=_hour(db, 2), stale_after=ended)
    _skip(db, _hour(db), "overlap", blocked_by=row["id"])
    for at in (_hour(db, 2), _hour(db)):
        text = _why(cli, at)["text"]
        assert "and has not ended; its lease ended at" in text
        assert "no live runner has queue default and function jobs:resumable" in text


def test_an_execution_of_a_failing_runner_may_have_ended(cli: Cli, db: rows.Db) -> None:
    rows.runner(db, diagnostics=Jsonb({"failing": {"finisher": "DiskFull: no space"}}))
    row = rows.execution(db, "RUNNING", plan_time=_hour(db, 2))
    _skip(db, _hour(db), "overlap", blocked_by=row["id"])
    for at in (_hour(db, 2), _hour(db)):
        words = "and may have ended, because r1 is failing (finisher: DiskFull: no space)"
        assert words in _why(cli, at)["text"]


def test_skipped_in_a_pause(cli: Cli, db: rows.Db) -> None:
    assert cli("jobs", "pause", "job", "--reason", "moving house").exit_code == 0
    db.execute(
        "UPDATE cronledger.job_revisions SET effective_from = %s WHERE revision = 2",
        [_hour(db, 3) + timedelta(minutes=30)],
    )
    _skip(db, _hour(db, 2), "paused", through_plan_time=_hour(db, 1), count=2)
    found = _why(cli, _hour(db, 1))
    assert found["verdict"] == "skipped"
    assert "It was skipped with 1 others" in found["text"]
    assert "the job was paused from" in found["text"]
    assert "with the reason 'moving house'" in found["text"]


def test_missed_with_nobody_alive(cli: Cli, db: rows.Db) -> None:
    at = _hour(db, 3)
    rows.execution(db, plan_time=at - timedelta(hours=1))
    rows.runner(db, started_at=at + timedelta(hours=1), heartbeat_at=rows.now(db))
    _skip(db, at, "missed", created_at=at + timedelta(hours=1, minutes=1))
    text = _why(cli, at)["text"]
    assert "later than its grace of 1m, and catch_up is latest" in text
    before = at - timedelta(hours=1) + timedelta(seconds=2)
    assert f"between {before:%Y-%m-%dT%H:%M:%SZ} and " in text
    db.execute("UPDATE cronledger.runners SET started_at = %s", [at - timedelta(hours=1)])
    assert "that were alive: r1" in _why(cli, at)["text"]


def test_superseded_and_retired(cli: Cli, db: rows.Db) -> None:
    _skip(db, _hour(db, 2), "superseded")
    _skip(db, _hour(db, 1), "retired")
    assert "a newer plan_time was also due" in _why(cli, _hour(db, 2))["text"]
    assert "retired" in _why(cli, _hour(db, 1))["text"]


def test_not_in_the_schedule(cli: Cli, db: rows.Db) -> None:
    at = _hour(db, 2) + timedelta(minutes=30)
    found = _why(cli, at)
    assert found["verdict"] == "not_in_schedule"
    assert "not in the schedule '@hourly' (UTC) of revision 1" in found["text"]
    near = f"{_hour(db, 2):%Y-%m-%dT%H:%M:%SZ} and {_hour(db, 1):%Y-%m-%dT%H:%M:%SZ}"
    assert f"The nearest plan_times are {near}" in found["text"]


def test_the_clocks_went_forward(cli: Cli, db: rows.Db) -> None:
    rows.job(db, "night", schedule="30 2 * * *", timezone="Europe/Berlin", dst_gap="skip")
    _planned(db, "night", MARCH)
    said = cli("why", "night", "2026-03-29T02:30")
    assert said.exit_code == 0
    assert "the clocks of Europe/Berlin skipped 02:30" in said.stderr
    assert "went forward from 02:00 to 03:00 at 2026-03-29T01:00:00Z" in said.stdout
    assert "nearest plan_times are 2026-03-28T01:30:00Z and 2026-03-30T00:30:00Z" in said.stdout
    twice = cli("why", "night", "2025-10-26T02:30")
    assert "occurred twice in Europe/Berlin" in twice.stderr
    assert "the second is 2025-10-26T01:30:00Z" in twice.stderr


def test_another_revision_has_it(cli: Cli, db: rows.Db) -> None:
    db.execute("UPDATE cronledger.jobs SET schedule = '30 * * * *' WHERE name = 'job'")
    edited = _hour(db, 2) + timedelta(minutes=10)
    db.execute(
        "UPDATE cronledger.job_revisions SET effective_from = %s WHERE revision = 2", [edited]
    )
    _planned(db, "job", rows.now(db) - timedelta(days=2))
    text = _why(cli, _hour(db, 1))["text"]
    assert f"revision 2, which applies from {edited:%Y-%m-%dT%H:%M:%SZ}" in text
    assert "Revision 1, which applies from" in text
    assert "has it." in text
    assert _why(cli, _hour(db, 3))["verdict"] == "missing"


def test_not_planned_yet(cli: Cli, db: rows.Db) -> None:
    assert "is in the future" in _why(cli, _hour(db, -2))["text"]
    db.execute("UPDATE cronledger.schedules SET planned_through = %s", [_hour(db, 5)])
    db.execute(
        "UPDATE cronledger.schedules SET next_plan_time = %s, next_due_at = %s, parked = NULL",
        [_hour(db, 4), _hour(db, 4)],
    )
    found = _why(cli, _hour(db, 1))
    assert found["verdict"] == "not_planned"
    assert "no_runner: no live runner has queue default" in found["text"]


def test_before_its_time_and_behind_retention(cli: Cli, db: rows.Db) -> None:
    assert _why(cli, _hour(db, 100))["verdict"] == "before_its_time"
    _planned(db, "job", "2020-01-01Z")
    assert _why(cli, "2020-06-01T03:00Z")["verdict"] == "not_kept"


def test_a_missing_execution_is_a_violation_unless_the_schedule_is_broken(
    cli: Cli, db: rows.Db
) -> None:
    found = _why(cli, _hour(db))
    assert found["verdict"] == "missing"
    assert "cronledger verify" in found["text"]
    rows.job(db, "broken", schedule="61 * * * *")
    found = _why(cli, _hour(db), "broken")
    assert found["verdict"] == "spec_error"
    assert "61" in found["text"]


def test_times_of_day_and_precision(cli: Cli, db: rows.Db) -> None:
    now = rows.now(db).astimezone(UTC)
    found = _why(cli, f"{now - timedelta(hours=3):%H:%M}")
    assert datetime.fromisoformat(found["since"]) == (now - timedelta(hours=3)).replace(
        second=0, microsecond=0
    )
    assert _span(found) == timedelta(minutes=1)
    future = _why(cli, f"{now + timedelta(minutes=2):%H:%M}")
    assert datetime.fromisoformat(future["since"]) < now - timedelta(hours=23)
    assert _span(_why(cli, "2026-11-01T03:00:00+02:00")) == timedelta(seconds=1)
    assert _span(_why(cli, "2026-11-01 03:00+02:00")) == timedelta(minutes=1)
    row = rows.execution(db, plan_time=_hour(db) + timedelta(microseconds=5), trigger="manual")
    assert _why(cli, row["plan_time"])["executions"] == [row["id"]]


def _span(found: Any) -> timedelta:
    return datetime.fromisoformat(found["until"]) - datetime.fromisoformat(found["since"])


def test_each_scope_is_explained_and_an_unknown_one_refused(cli: Cli, db: rows.Db) -> None:
    rows.job(db, "wide", scope_kind="shard", scopes=["a", "b"])
    at = _hour(db).isoformat()
    both = cli("why", "wide", at)
    assert [line.split(" at ")[0] for line in both.stdout.splitlines()] == [
        "wide shard/a", "wide shard/b",
    ]  # fmt: skip
    assert _why(cli, at, "wide", "--scope", "b")["scope_id"] == "b"

    for *arguments, words in (
        ("jop", "03:00", "did you mean 'job'?"),
        ("job", "soon", "'soon' is not a time"),
        ("job", "03:00", "--scope", "x", "has no scope 'x'"),
    ):
        said = cli("why", *arguments)
        assert said.exit_code == 2
        assert words in said.stderr


def test_without_a_time_it_explains_the_present(cli: Cli, db: rows.Db) -> None:
    def present() -> tuple[str, str]:
        said, named = cli("why", "job", "--json"), cli("why", "job", "now", "--json")
        assert said.exit_code == named.exit_code == 0, said.output
        (answer,) = json.loads(said.stdout)
        assert json.loads(named.stdout)[0]["verdict"] == answer["verdict"]
        return answer["verdict"], answer["text"]

    db.execute(  # as a replica does that has planned the job
        "UPDATE cronledger.schedules SET woken = false, next_due_at = %(at)s,"
        " next_plan_time = %(at)s", {"at": _hour(db, -1)},
    )  # fmt: skip
    verdict, text = present()
    assert verdict == "idle"
    assert text.startswith(
        f"The next plan_time is {_hour(db, -1).isoformat().replace('+00:00', 'Z')}"
    )

    done = rows.execution(db, plan_time=_hour(db, 2))
    verdict, text = present()
    assert verdict == "idle"
    assert f"is execution {done['id']} (the schedule, revision 1): attempt 1 of 3 started" in text

    running = rows.execution(db, "RUNNING", plan_time=_hour(db))
    verdict, text = present()
    assert verdict == "running"
    assert f"is execution {running['id']} " in text
    assert f"is execution {done['id']} " not in text

    db.execute("DELETE FROM cronledger.executions WHERE status = 'RUNNING'")
    db.execute("SELECT cronledger.pause('job', 'a fair', requested_by => 'ann')")
    verdict, text = present()
    assert verdict == "paused"
    assert "It does not run now: the job was paused from" in text
    assert "by ann with the reason 'a fair'." in text

    db.execute("SELECT cronledger.retire('job')")
    verdict, text = present()
    assert verdict == "retired"


def test_the_present_names_why_a_scope_is_overdue(cli: Cli, db: rows.Db) -> None:
    waiting = rows.execution(db, "PENDING", plan_time=_hour(db))
    said = cli("why", "job")
    assert said.exit_code == 0
    assert f"is execution {waiting['id']} " in said.stdout
    assert "It is overdue since" in said.stdout
    assert "no_runner: " in said.stdout


def test_an_id_in_place_of_a_job_is_that_of_an_execution(cli: Cli, db: rows.Db) -> None:
    row = rows.execution(db, plan_time=_hour(db, 3))
    rows.execution(db, plan_time=_hour(db, 3) + timedelta(microseconds=1))
    said = cli("why", str(row["id"]), "--json")
    assert said.exit_code == 0, said.output
    (answer,) = json.loads(said.stdout)
    assert (answer["verdict"], answer["executions"]) == ("ran", [row["id"]])
    assert cli("why", "987654321").exit_code == 2
    assert cli("why", "9" * 30).exit_code == 2
