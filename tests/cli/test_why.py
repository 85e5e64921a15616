"""`cronledger why JOB TIME`: one paragraph for whatever became of an instant."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.cli.conftest import Cli
from tests.cli.support.clocks import set_ten_past
from tests.cli.support.results import done, read, refused
from tests.db.support import rows

MARCH = "2026-03-01T00:00:00Z"


@pytest.fixture
def db(db: rows.Db) -> rows.Db:
    """A database with the hourly job `job`, planned for two days up to the last full hour."""
    set_ten_past(db)
    rows.job(db)
    _planned(db, "job", rows.now(db) - timedelta(days=2))
    return db


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


def _why(
    cli: Cli, at: datetime | str, *words: str, verdict: str | None = None, job: str = "job"
) -> Any:
    """Return the answer, which has this verdict, and all words in its text."""
    (answer,) = read(cli, "why", job, at if isinstance(at, str) else at.isoformat())
    assert verdict in (None, answer["verdict"])
    assert [word for word in words if word not in answer["text"]] == [], answer["text"]
    return answer


def _attempts(error_code: str, **columns: Any) -> Jsonb:
    """One earlier attempt, on r0."""
    began = {"attempt": 1, "runner_id": "r0", "started_at": "2026-01-01T00:00:00+00:00"}
    return Jsonb([{**began, "error_code": error_code, "error_msg": None, **columns}])


def test_it_ran(cli: Cli, db: rows.Db) -> None:
    at = _hour(db)
    row = rows.execution(db, plan_time=at, started_at=at + timedelta(minutes=3))
    named = f"is execution {row['id']} (the schedule, revision 1): attempt 1 of 3"
    found = _why(cli, at, named, ", 3m late, on r1 and succeeded after 2s", verdict="ran")
    assert found["executions"] == [row["id"]]


@pytest.mark.long
def test_the_state_of_an_execution_and_its_earlier_attempts_are_explained(
    cli: Cli, db: rows.Db
) -> None:
    seen = {"last_seen": "2026-01-01T00:00:20+00:00"}
    crashed = {"attempt": 2, "attempts": _attempts("runner_crashed", **seen)}
    not_ready = {"attempt": 1, "max_attempts": 2, "next_attempt_at": "2099-01-01Z"}
    not_ready |= {"attempts": _attempts("not_ready", error_msg="no file", **seen)}
    cases: tuple[tuple[Any, ...], ...] = (
        ("RUNNING", {}, "running", "and still runs; its lease is valid until"),
        ("RUNNING", {"runner_id": "observed"}, "running", "has not been reported as ended"),
        ("PENDING", {}, "pending", "it has been waiting to be claimed since"),
        ("PENDING", not_ready, "pending", "was not ready", "2099-01-01T00:00:00Z"),
        ("FAILED", {}, "failed", "(boom: it broke); it is not retried"),
        ("FAILED", {"next_attempt_at": "2099-01-01Z"}, "pending", "retried at 2099-01-01T00"),
        ("CANCELLED", {"cancel_requested_by": "ann"}, "cancelled", "cancelled by ann at"),
        ("SUCCESS", {"trigger": "manual", "requested_by": "ann"}, "ran", "(manual by ann, rev"),
        ("SUCCESS", crashed, "ran", "Attempt 1 on r0, started 2026-01-01T00:00:00Z, last"),
    )
    for ago, (status, columns, verdict, *words) in enumerate(cases, 1):
        rows.execution(db, status, plan_time=_hour(db, ago), **columns)
        _why(cli, _hour(db, ago), *words, verdict=verdict)


def test_a_traceback_is_left_to_executions_show(cli: Cli, db: rows.Db) -> None:
    message = (
        "ValueError: bad day\n\nTraceback (most recent call last):\n  File x\nValueError: bad day"
    )
    before = _attempts("handler_error", error_msg=message.replace("day", "night"))
    row = rows.execution(
        db, "FAILED", plan_time=_hour(db), attempt=2, attempts=before,
        error_code="handler_error", error_msg=message,
    )  # fmt: skip
    printed = cli("why", "job", _hour(db).isoformat()).stdout
    assert "(handler_error: ValueError: bad day); it is not retried." in printed
    assert "ended with handler_error (ValueError: bad night)." in printed
    assert printed.endswith(
        f" `cronledger executions show {row['id']}` prints the whole message.\n"
    )
    assert "Traceback" not in printed
    _why(cli, _hour(db), message)


def test_a_plan_time_in_a_later_window_names_the_execution_of_the_window(
    cli: Cli, db: rows.Db
) -> None:
    ids = []
    for ago in (4, 2):
        row = rows.execution(db, plan_time=_hour(db, ago), window_start=_hour(db, ago + 2))
        ids.append(row["id"])
    covers = "is covered by the window of execution {}, "
    rows.skip(db, _hour(db, 5), reason="paused")
    _why(cli, _hour(db, 5), covers.format(ids[0]), verdict="skipped")
    rows.execution(db, "FAILED", plan_time=_hour(db, 3))
    _why(cli, _hour(db, 3), covers.format(ids[1]), verdict="failed")
    assert "covered" not in _why(cli, _hour(db, 4), verdict="ran")["text"]
    rows.execution(db, "FAILED", plan_time=_hour(db, 1))
    assert "covered" not in _why(cli, _hour(db, 1), verdict="failed")["text"]


@pytest.mark.long
def test_a_filter_is_named_as_the_reason_why_it_is_not_retried(cli: Cli, db: rows.Db) -> None:
    note = "not retried: never_retry_on has 64-78"
    because = "; it is not retried: never_retry_on has 64-78."
    ends = {"exit status 64\n": "exit status 64", "": "no message"}
    for ago, (message, told) in enumerate(ends.items(), 1):
        at = _hour(db, ago)
        stored = {"error_code": "exit_code", "error_msg": message + note}
        row = rows.execution(db, "FAILED", plan_time=at, **stored)
        assert f"(exit_code: {told}){because}" in cli("why", "job", at.isoformat()).stdout
        assert note in cli("executions", "show", str(row["id"])).stdout


def test_a_skip_names_its_reason(cli: Cli, db: rows.Db) -> None:
    ran = rows.execution(db, plan_time=_hour(db, 8))["id"]
    unclaimed = rows.execution(db, "PENDING", plan_time=_hour(db, 7))["id"]
    cases: tuple[tuple[Any, ...], ...] = (
        ("overlap", {"blocked_by": ran}, f"{ran} was RUNNING on r1, from", "overlap is skip"),
        ("overlap", {"blocked_by": unclaimed}, f"no worker had claimed execution {unclaimed} yet"),
        ("superseded", {}, "a newer plan_time ran instead"),
        ("retired", {}, "retired"),
        ("upstream", {"detail": "x 03:00 FAILED"}, "a job that it requires: x 03:00 FAILED"),
        ("not_reported", {}, "no start was reported within grace"),
    )
    for ago, (reason, columns, *words) in enumerate(cases, 1):
        rows.skip(db, _hour(db, ago), reason=reason, **columns)
        _why(cli, _hour(db, ago), *words, verdict="skipped")


def test_a_window_is_explained(cli: Cli, db: rows.Db) -> None:
    at, start = _hour(db, 2), _hour(db, 5)
    ran = rows.execution(db, plan_time=at, window_start=start)
    _why(cli, at, "succeeded", f"Its window began at {start:%Y-%m-%dT%H}:00:00Z.")
    assert "window_start" in cli("executions", "show", str(ran["id"])).stdout
    text = f"its window was processed by the execution of {at}"
    rows.execution(
        db, "CANCELLED", plan_time=_hour(db, 3), error_code="window_processed", error_msg=text,
        attempt=0, started_at=None,
    )  # fmt: skip
    _why(cli, _hour(db, 3), f"it had not started; {text}.", verdict="cancelled")


def test_a_released_execution_has_no_start_but_that_of_its_attempt(cli: Cli, db: rows.Db) -> None:
    at = _hour(db, 2)
    released = _attempts("shutdown", started_at=at.isoformat(), ended_at=at.isoformat())
    row = rows.execution(db, "PENDING", plan_time=at, attempt=1, attempts=released)
    rows.skip(db, _hour(db), reason="overlap", blocked_by=row["id"])
    named = f"execution {row['id']} was RUNNING on r0, from"
    for _ in range(2):
        _why(cli, _hour(db), named, f"{at:%Y-%m-%dT%H}:00:00Z and was released later, and")
        db.execute("SELECT cronledger.cancel(%s, 'ann')", [row["id"]])
    _why(cli, at, "it waited for another attempt; cancelled by ann at", "Attempt 1 on r0, started")


def test_an_execution_that_may_have_ended_names_the_reason_and_so_does_a_skip_behind_it(
    cli: Cli, db: rows.Db
) -> None:
    rows.runner(db, diagnostics=Jsonb({"failing": {"finisher": "DiskFull: no space"}}))
    row = rows.execution(db, "RUNNING", plan_time=_hour(db, 2))
    rows.skip(db, _hour(db), reason="overlap", blocked_by=row["id"])
    failing = "and may have ended, because r1 is failing (finisher: DiskFull: no space)"
    for ago in (2, 1):
        _why(cli, _hour(db, ago), failing)
    db.execute(
        "UPDATE cronledger.jobs SET handler = 'python', allow_stale_reentry = true,"
        " target = jsonb_build_object('python', 'jobs:resumable')"
    )
    db.execute("DELETE FROM cronledger.runners")
    db.execute(
        "UPDATE cronledger.executions SET stale_after = cronledger.db_now() - interval '1 min'"
    )
    missing = "no live runner has queue default and function jobs:resumable"
    for ago in (2, 1):
        _why(cli, _hour(db, ago), "and has not ended; its lease ended at", missing)


def test_skipped_in_a_pause(cli: Cli, db: rows.Db) -> None:
    assert cli("jobs", "pause", "job", "--reason", "moving house").exit_code == 0
    db.execute(
        "UPDATE cronledger.job_revisions SET effective_from = %s WHERE revision = 2",
        [_hour(db, 3) + timedelta(minutes=30)],
    )
    rows.skip(db, _hour(db, 2), _hour(db, 1), 2, "paused")
    words = ("skipped with 1 others", "the job was paused from", "with the reason 'moving house'")
    _why(cli, _hour(db, 1), *words, verdict="skipped")


def test_missed_with_nobody_alive(cli: Cli, db: rows.Db) -> None:
    at = _hour(db, 3)
    rows.execution(db, plan_time=at - timedelta(hours=1))
    rows.runner(db, started_at=at + timedelta(hours=1), heartbeat_at=rows.now(db))
    rows.skip(db, at, reason="missed", created_at=at + timedelta(hours=1, minutes=1))
    before = f"between {at - timedelta(hours=1) + timedelta(seconds=2):%Y-%m-%dT%H:%M:%SZ} and "
    _why(cli, at, "later than its grace of 1m, and catch_up is latest", before)
    db.execute("UPDATE cronledger.runners SET started_at = %s", [at - timedelta(hours=1)])
    _why(cli, at, "that were alive: r1")


def test_the_clocks_went_forward(cli: Cli, db: rows.Db) -> None:
    rows.job(db, "night", schedule="30 2 * * *", timezone="Europe/Berlin", dst_gap="skip")
    _planned(db, "night", MARCH)
    said = done(cli, "why", "night", "2026-03-29T02:30")
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
    second = f"revision 2, which applies from {edited:%Y-%m-%dT%H:%M:%SZ}"
    _why(cli, _hour(db, 1), second, "Revision 1, which applies from", "has it.")


def test_not_planned_yet(cli: Cli, db: rows.Db) -> None:
    _why(cli, _hour(db, -2), "is in the future")
    due = _hour(db, 4)
    rows.schedule(db, planned_through=_hour(db, 5), next_plan_time=due, next_due_at=due)
    words = "no_runner: no live runner has queue default"
    _why(cli, _hour(db, 1), words, verdict="not_planned")


def test_the_verdict_about_an_instant_without_a_row_depends_on_schedule_and_history(
    cli: Cli, db: rows.Db
) -> None:
    at, near = _hour(db, 2), f"{_hour(db, 2):%Y-%m-%dT%H:%M:%SZ} and {_hour(db):%Y-%m-%dT%H:%M:%SZ}"
    words = (
        "not in the schedule '@hourly' (UTC) of revision 1",
        f"The nearest plan_times are {near}",
    )
    _why(cli, at + timedelta(minutes=30), *words, verdict="not_in_schedule")
    _why(cli, at, "cronledger verify", verdict="missing")
    rows.job(db, "broken", schedule="61 * * * *")
    _why(cli, at, "61", verdict="spec_error", job="broken")
    _why(cli, _hour(db, 100), verdict="before_its_time")
    _planned(db, "job", "2020-01-01Z")
    _why(cli, "2020-06-01T03:00Z", verdict="not_kept")


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


def _span(found: Any) -> timedelta:
    return datetime.fromisoformat(found["until"]) - datetime.fromisoformat(found["since"])


def test_each_scope_is_explained_and_an_unknown_one_refused(cli: Cli, db: rows.Db) -> None:
    rows.job(db, "wide", scope_kind="shard", scopes=["a", "b"])
    at = _hour(db).isoformat()
    both = cli("why", "wide", at)
    assert [line.split(" at ")[0] for line in both.stdout.splitlines()] == [
        "wide shard/a", "wide shard/b",
    ]  # fmt: skip
    (one,) = read(cli, "why", "wide", at, "--scope", "b")
    assert one["scope_id"] == "b"
    for *arguments, words in (
        ("jop", "03:00", "did you mean 'job'?"),
        ("job", "soon", "'soon' is not a time"),
        ("job", "03:00", "--scope", "x", "has no scope 'x'"),
    ):
        refused(cli("why", *arguments), words)


def test_a_plan_time_to_come_names_the_calendar_or_the_pause_that_will_skip_it(
    cli: Cli, db: rows.Db
) -> None:
    following, now = _hour(db, -1), rows.now(db)
    days = {str(now.astimezone(UTC).date() + timedelta(days=n)): "Fair" for n in range(2)}
    db.execute(
        "SELECT cronledger.set_calendar('de', %s, %s::date, first => %s::date)",
        [Jsonb(days), now + timedelta(days=400), now - timedelta(days=10)],
    )
    rows.job(db, "closed", calendar="de")
    _planned(db, "closed", now - timedelta(days=2))
    db.execute(
        "SELECT cronledger.plan_pause('move', %s, job => 'job', requested_by => 'ann')", [following]
    )
    for job, words in (
        ("job", "of ann (move) skips it"),
        ("closed", "the calendar de excludes this day (Fair)"),
    ):
        (present,) = read(cli, "why", job)
        assert f"The next plan_time is {following:%Y-%m-%dT%H:%M:%SZ}, but " in present["text"]
        assert words in present["text"]
        _why(cli, following, "is in the future", words, verdict="not_planned", job=job)


@pytest.mark.long
def test_without_a_time_it_explains_the_present(cli: Cli, db: rows.Db) -> None:
    def present(verdict: str) -> str:
        (answer,) = read(cli, "why", "job")
        assert answer["verdict"] == verdict
        _why(cli, "now", verdict=verdict)
        return str(answer["text"])

    at = _hour(db, -1)
    rows.schedule(db, next_due_at=at, next_plan_time=at)  # as a replica does that has planned it
    assert present("idle").startswith(f"The next plan_time is {_hour(db, -1):%Y-%m-%dT%H:%M:%SZ}")

    rows.execution(db, plan_time=_hour(db, 2))
    running = rows.execution(db, "RUNNING", plan_time=_hour(db))
    assert f"is execution {running['id']} " in present("running")

    db.execute("DELETE FROM cronledger.executions WHERE status = 'RUNNING'")
    db.execute("SELECT cronledger.pause('job', 'a fair', requested_by => 'ann')")
    text = present("paused")
    assert "It does not run now: the job was paused from" in text
    assert "by ann with the reason 'a fair'." in text

    db.execute("SELECT cronledger.retire('job')")
    present("retired")


def test_the_present_names_why_a_scope_is_overdue(cli: Cli, db: rows.Db) -> None:
    waiting = rows.execution(db, "PENDING", plan_time=_hour(db))
    said = done(cli, "why", "job")
    assert f"is execution {waiting['id']} " in said.stdout
    assert "It is overdue since" in said.stdout
    assert "no_runner: " in said.stdout


@pytest.mark.parametrize("is_overdue", [False, True])
def test_the_present_names_why_a_job_is_not_planned(
    cli: Cli, db: rows.Db, *, is_overdue: bool
) -> None:
    db.execute("UPDATE cronledger.jobs SET spec_error = 'no such job'")
    if is_overdue:
        rows.schedule(
            db, "job", planned_through=_hour(db, 2), next_due_at=None, next_plan_time=None,
            parked="spec_error",
        )  # fmt: skip
    (present,) = read(cli, "why", "job")
    assert present["verdict"] == "spec_error"
    assert present["text"].count("no such job") == 1
    assert present["text"].startswith("It is overdue since") == is_overdue
    assert "next plan_time" not in present["text"]


def test_an_id_in_place_of_a_job_is_that_of_an_execution(cli: Cli, db: rows.Db) -> None:
    row = rows.execution(db, plan_time=_hour(db, 3))
    rows.execution(db, plan_time=_hour(db, 3) + timedelta(microseconds=1))
    (answer,) = read(cli, "why", str(row["id"]))
    assert (answer["verdict"], answer["executions"]) == ("ran", [row["id"]])
    assert cli("why", "9" * 30).exit_code == 2


def test_a_waiting_execution_names_what_is_missing(cli: Cli, db: rows.Db) -> None:
    at = _hour(db)
    until = at + timedelta(hours=2)
    rows.execution(
        db, "PENDING", plan_time=at, due_at=at, gated_at=at, next_attempt_at=None, waits_until=until
    )
    rows.insert(
        db, "gates", job_name="job", scope_kind="global", scope_id="global", plan_time=at,
        upstream_job="extract", upstream_kind="global", upstream_id="global",
        missing="extract 03:00",
    )  # fmt: skip
    ends = until.strftime("%H:%M:%SZ, or up to a minute longer if that job was edited: extract ")
    words = ("it waits for a job that it requires, until ", ends, "03:00; a success by a retry")
    _why(cli, at, *words, verdict="pending")
    (answer,) = read(cli, "why", "job")
    assert answer["verdict"] == "pending"
    (shown,) = read(cli, "executions", "list", "--job", "job")
    assert (shown["waits_for"], shown["status"]) == ("extract 03:00", "PENDING")
