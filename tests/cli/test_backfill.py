"""`cronledger backfill`, `queues`, `executions retry` and `cancel`, `trigger --require-runner`."""

import json
import threading
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from tests.cli.conftest import Cli
from tests.cli.support.terminal import on_terminal

HOUR = timedelta(hours=1)


@pytest.fixture
def db(database_url: str) -> Any:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def past(filled: Cli, db: Any) -> Cli:
    """The cli with `hourly` planned through now and no execution."""
    db.execute("DELETE FROM cronledger.executions")
    db.execute("UPDATE cronledger.schedules SET planned_through = cronledger.db_now()")
    return filled


def last(hours: int, db: Any) -> list[str]:
    """The options of a range that ends where `hourly` is planned through, with `hours` firings.

    A range that ends now has one more when an hour begins after the fixture has set the cursor.
    """
    (end,) = db.execute(
        "SELECT planned_through FROM cronledger.schedules WHERE job_name = 'hourly'"
    ).fetchone()
    return ["--from", (end - hours * HOUR).isoformat(), "--to", end.isoformat()]


def plan_times(db: Any) -> list[datetime]:
    return [
        row[0].astimezone(UTC)
        for row in db.execute("SELECT plan_time FROM cronledger.executions ORDER BY due_at")
    ]


def test_a_range_becomes_executions_in_their_order(past: Cli, db: Any) -> None:
    said = past("backfill", "hourly", *last(3, db), "--dry-run", "--json")
    assert [row["action"] for row in json.loads(said.stdout)] == ["make"] * 3
    assert plan_times(db) == []
    for order in ("newest", "oldest"):
        db.execute("DELETE FROM cronledger.executions")
        said = past("backfill", "hourly", *last(5, db), "--order", order)
        assert said.exit_code == 0, said.output
        assert said.stdout == "made: 5\nretried: 0\nleft alone: 0\nremaining: 0\n"
        assert "Warning: job hourly: no live runner" not in said.stderr  # `alive` has its queue
        made = plan_times(db)
        assert made == sorted(made, reverse=order == "newest")
        assert {y - x for x, y in pairwise(sorted(made))} == {HOUR}
    again = json.loads(past("backfill", "hourly", *last(5, db), "--json").stdout)
    assert (again["made"], again["left_alone"]) == (0, 5)


def test_a_cap_bounds_what_is_unfinished(past: Cli, db: Any) -> None:
    backfill = ("backfill", "hourly", *last(5, db), "--cap", "2", "--json")
    assert json.loads(past(*backfill).stdout)["remaining"] == 3
    said = past(*backfill[:-1])
    assert "made: 0" in said.stdout  # two are unfinished
    assert "--cap is reached" in said.stderr
    assert len(plan_times(db)) == 2


def test_wait_feeds_as_they_end_and_tells_how(past: Cli, db: Any, database_url: str) -> None:
    """The work of a replica is done by hand: two at a time, every second one fails."""
    stop, most = threading.Event(), [0]

    def work() -> None:
        with psycopg.connect(database_url, autocommit=True) as c:
            while not stop.is_set():
                rows = c.execute(
                    "SELECT id FROM cronledger.executions WHERE status = 'PENDING'"
                ).fetchall()
                most[0] = max(most[0], len(rows))
                for (found,) in rows:
                    c.execute(
                        "UPDATE cronledger.executions SET status = CASE id %% 2 WHEN 0 THEN"
                        " 'FAILED' ELSE 'SUCCESS' END, error_code = 'x', next_attempt_at = NULL,"
                        " lease_token = gen_random_uuid(), started_at = due_at, duration_ms = 1,"
                        " finished_at = cronledger.db_clock(), updated_at = cronledger.db_clock()"
                        " WHERE id = %s",
                        [found],
                    )
                stop.wait(0.02)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        said = past("backfill", "hourly", *last(6, db), "--cap", "2", "--wait")
    finally:
        stop.set()
        worker.join()
    assert said.exit_code == 1, said.output
    assert said.stdout.splitlines() == [
        "made: 6", "retried: 0", "left alone: 0", "remaining: 0", "FAILED: 3", "SUCCESS: 3"
    ]  # fmt: skip
    assert 0 < most[0] <= 2


def test_a_terminal_shows_a_progress_bar(past: Cli, db: Any) -> None:
    seen = on_terminal("backfill", "hourly", *last(3, db))
    assert "made: 3\n" in seen
    assert "100%" in seen
    assert "%" not in past("backfill", "hourly", *last(3, db)).stderr


def test_retention_is_that_of_the_ledger(past: Cli) -> None:
    assert past("retention", "set", "1d").exit_code == 0
    said = past("backfill", "hourly", "--from", "3d", "--to", "2d")
    assert said.exit_code == 2
    assert "older than the retention of 1 day" in said.stderr


def test_bad_input_exits_2(past: Cli) -> None:
    for job, since, to, *more, message in (
        ("nothing", "2h", "1h", "does not exist"),
        ("hourly", "1h", "2h", "is before --from"),
        ("hourly", "soon", "2h", "neither a time"),
        ("manual", "2h", "1h", "the job has no schedule"),
        ("tenants", "2h", "1h", "use --scope ID"),
        ("tenants", "2h", "1h", "--scope", "x", "unknown scope"),
    ):
        said = past("backfill", job, "--from", since, "--to", to, *more)
        assert said.exit_code == 2, said.output
        assert message in " ".join(said.stderr.split())


def test_queues_are_limited_listed_paused_and_resumed(filled: Cli) -> None:
    assert filled("queues", "limit", "default", "3").stdout == "default: limit 3 (before: none)\n"
    (row,) = json.loads(filled("queues", "list", "--json").stdout)
    assert row["max_running"] == 3
    assert filled("queues", "limit", "default", "none").stdout == (
        "default: limit none (before: 3)\n"
    )
    for wrong in ("0", "many", "-1"):
        assert filled("queues", "limit", "default", "--", wrong).exit_code == 2
    assert filled("queues", "limit", "defualt", "1").exit_code == 2
    (row,) = json.loads(filled("queues", "list", "--json").stdout)
    assert (row["name"], row["jobs"], row["running"], row["runners"]) == ("default", 3, 1, 1)
    assert filled("queues", "pause", "default", "--reason", "why").stdout == "default: paused\n"
    assert "why" in filled("queues", "list").stdout
    assert filled("queues", "pause", "default").stdout == "default: was already paused\n"
    assert filled("trigger", "manual").exit_code == 1
    assert filled("queues", "resume", "default").stdout == "default: resumed\n"
    assert filled("queues", "resume", "default").stdout == "default: was not paused\n"
    assert filled("queues", "pause", "--all").stdout == "paused: 1\n"
    assert filled("queues", "resume", "--all").stdout == "resumed: 1\n"
    assert filled("queues", "pause", "x").exit_code == 2
    assert filled("queues", "pause").exit_code == 2
    assert filled("queues", "pause", "default", "--all").exit_code == 2


def test_one_execution_is_retried_and_cancelled(filled: Cli, db: Any) -> None:
    assert filled("executions", "retry", "2").stdout == "2: retried\n"
    assert filled("executions", "retry", "2").stdout == "2: brought forward\n"
    assert filled("executions", "cancel", "2").stdout == "2: cancelled\n"
    assert filled("executions", "cancel", "3").stdout == "3: requested\n"
    assert filled("executions", "cancel", "1").stdout == "1: already finished\n"
    asked = db.execute("SELECT requested_by FROM cronledger.audit WHERE object_kind = 'execution'")
    assert ["@" in row[0] for row in asked.fetchall()] == [True] * 5
    refused = filled("executions", "retry", "1")
    assert refused.exit_code == 1
    assert "it is SUCCESS" in refused.stderr
    assert filled("executions", "retry", "99").exit_code == 2
    # The end of an execution whose lease ran out is unknown.
    unknown = "SET status = 'FAILED', error_code = 'stale_timeout'"
    db.execute(f"UPDATE cronledger.executions {unknown} WHERE id = 2")
    refused = filled("executions", "retry", "2")
    assert refused.exit_code == 1
    assert "is not reentrant" in refused.stderr
    assert filled("executions", "retry", "2", "--force").stdout == "2: retried\n"


def test_without_a_live_runner_it_is_pending_with_a_warning(filled: Cli, db: Any) -> None:
    assert filled("trigger", "manual", "--require-runner").exit_code == 0
    db.execute("UPDATE cronledger.runners SET state = 'draining'")
    refused = filled("trigger", "tenants", "--scope", "acme", "--require-runner")
    assert refused.exit_code == 1
    assert "no live runner has queue default" in refused.stderr
    accepted = filled("trigger", "tenants", "--scope", "acme")
    assert accepted.exit_code == 0
    assert accepted.stderr == (
        "Warning: job tenants: no live runner has queue default; it stays PENDING until there is "
        "one\n"
    )
    (status,) = db.execute(
        "SELECT status FROM cronledger.executions WHERE job_name = 'tenants'"
    ).fetchone()
    assert status == "PENDING"
