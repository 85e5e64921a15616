"""`cronledger backfill`, `queues`, `executions retry` and `cancel`, `trigger --require-runner`."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from tests.cli.conftest import Ask, Cli
from tests.cli.support.results import done, read, refused
from tests.cli.support.terminal import on_terminal

HOUR = timedelta(hours=1)


@pytest.fixture
def past(filled: Cli, ask: Ask) -> Cli:
    """The cli with `hourly` planned through now and no execution."""
    ask("DELETE FROM cronledger.executions")
    ask("UPDATE cronledger.schedules SET planned_through = cronledger.db_now()")
    return filled


def last(hours: int, ask: Ask) -> list[str]:
    """The options of a range that ends where `hourly` is planned through, with `hours` firings.

    A range that ends now has one more when an hour begins after the fixture has set the cursor.
    """
    ((end,),) = ask("SELECT planned_through FROM cronledger.schedules WHERE job_name = 'hourly'")
    return ["--from", (end - hours * HOUR).isoformat(), "--to", end.isoformat()]


def plan_times(ask: Ask) -> list[datetime]:
    found = ask("SELECT plan_time FROM cronledger.executions ORDER BY due_at")
    return [at.astimezone(UTC) for (at,) in found]


@pytest.mark.long
def test_a_range_becomes_executions_in_their_order(past: Cli, ask: Ask) -> None:
    planned = read(past, "backfill", "hourly", *last(3, ask), "--dry-run")
    assert [row["action"] for row in planned] == ["make"] * 3
    assert plan_times(ask) == []
    said = done(past, "backfill", "hourly", *last(5, ask), "--order", "newest")
    assert said.stdout == "made: 5\nretried: 0\nleft alone: 0\nremaining: 0\n"
    assert "Warning: job hourly: no live runner" not in said.stderr  # `alive` has its queue
    assert "%" not in said.stderr
    assert {x - y for x, y in pairwise(plan_times(ask))} == {HOUR}
    seen = on_terminal("backfill", "hourly", *last(6, ask))  # with a progress bar
    assert "made: 1\n" in seen and "100%" in seen
    again = read(past, "backfill", "hourly", *last(5, ask))
    assert (again["made"], again["left_alone"]) == (0, 5)


def test_a_cap_bounds_what_is_unfinished(past: Cli, ask: Ask) -> None:
    backfill = ("backfill", "hourly", *last(5, ask), "--cap", "2")
    assert read(past, *backfill)["remaining"] == 3
    said = past(*backfill)
    assert "made: 0" in said.stdout  # two are unfinished
    assert "--cap is reached" in said.stderr
    assert len(plan_times(ask)) == 2


@pytest.mark.long
def test_wait_feeds_as_they_end_and_tells_how(past: Cli, ask: Ask) -> None:
    """The work of a replica is done by hand: two at a time, every second one fails."""
    end = (
        "UPDATE cronledger.executions SET status = CASE id % 2 WHEN 0 THEN 'FAILED'"
        " ELSE 'SUCCESS' END, error_code = 'x', next_attempt_at = NULL,"
        " lease_token = gen_random_uuid(), started_at = due_at, duration_ms = 1,"
        " finished_at = cronledger.db_clock(), updated_at = cronledger.db_clock()"
        " WHERE status = 'PENDING' RETURNING id"
    )
    ended = []
    options = (*last(6, ask), "--cap", "2", "--wait")
    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(past, "backfill", "hourly", *options)
        while not waits.done():
            ended.append(len(ask(end)))
    said = waits.result()
    assert said.exit_code == 1, said.output
    assert said.stdout.splitlines() == [
        "made: 6", "retried: 0", "left alone: 0", "remaining: 0", "FAILED: 3", "SUCCESS: 3"
    ]  # fmt: skip
    assert 0 < max(ended) <= 2


def test_bad_input_exits_2(past: Cli) -> None:
    for job, since, to, message in (
        ("nothing", "2h", "1h", "does not exist"),
        ("hourly", "1h", "2h", "is before --from"),
        ("hourly", "soon", "2h", "neither a time"),
        ("hourly", "93d", "92d", "older than the retention of 90 days"),
        ("manual", "2h", "1h", "the job has no schedule"),
        ("tenants", "2h", "1h", "use --scope ID"),
    ):
        said = past("backfill", job, "--from", since, "--to", to)
        refused(said)
        assert message in " ".join(said.stderr.split())


def test_queues_are_limited_listed_paused_and_resumed(filled: Cli) -> None:
    assert filled("queues", "limit", "default", "3").stdout == "default: limit 3 (before: none)\n"
    (row,) = read(filled, "queues", "list")
    counted = [row[name] for name in ("name", "max_running", "jobs", "running", "runners")]
    assert counted == ["default", 3, 3, 1, 1]
    for arguments, printed in (
        ("limit default none", "default: limit none (before: 3)\n"),
        ("pause --all", "paused: 1\n"),
        ("resume --all", "resumed: 1\n"),
        ("pause default", "default: paused\n"),
        ("pause default --reason why", "default: was already paused\n"),
    ):
        assert filled("queues", *arguments.split()).stdout == printed
    assert "why" in filled("queues", "list").stdout
    assert filled("trigger", "manual").exit_code == 1
    assert filled("queues", "resume", "default").stdout == "default: resumed\n"
    assert filled("queues", "resume", "default").stdout == "default: was not paused\n"
    for wrong in ("limit default -- 0", "limit default many", "pause x", "pause default --all"):
        refused(filled("queues", *wrong.split()))


def test_one_execution_is_retried_and_cancelled(filled: Cli, ask: Ask) -> None:
    for arguments, printed in (
        ("retry 2", "2: retried\n"),
        ("retry 2", "2: brought forward\n"),
        ("cancel 2", "2: cancelled\n"),
        ("cancel 3", "3: requested\n"),
        ("cancel 1", "1: already finished\n"),
    ):
        assert filled("executions", *arguments.split()).stdout == printed
    asked = ask("SELECT requested_by FROM cronledger.audit WHERE object_kind = 'execution'")
    assert ["@" in by for (by,) in asked] == [True] * 5
    refused(filled("executions", "retry", "1"), "it is SUCCESS", code=1)
    refused(filled("executions", "retry", "99"))
    refused(filled("executions", "retry", "load"), "'load' is not a valid number")
    # The end of an execution whose lease ran out is unknown.
    unknown = "SET status = 'FAILED', error_code = 'stale_timeout'"
    ask(f"UPDATE cronledger.executions {unknown} WHERE id = 2")
    refused(filled("executions", "retry", "2"), "is not reentrant", code=1)
    assert filled("executions", "retry", "2", "--force").stdout == "2: retried\n"


def test_several_executions_are_one_action_F92(filled: Cli, ask: Ask) -> None:
    retried = filled("executions", "retry", "2", "1", "--reason", "the disk was full")
    assert retried.exit_code == 1  # one was left
    assert sorted(retried.stdout.splitlines()) == [
        "1: left: it is SUCCESS; only FAILED and CANCELLED executions can be retried",
        "2: retried",
    ]
    cancelled = read(filled, "executions", "cancel", "2", "3")
    assert {one["execution_id"]: one["result"] for one in cancelled} == {
        2: "cancelled", 3: "requested",
    }  # fmt: skip
    refused(filled("executions", "retry", "1", "2", "--force"), "--force needs exactly one ID")
    audit = "SELECT verb, reason, '@' = ANY (regexp_split_to_array(requested_by, '')) FROM"
    assert ask(f"{audit} cronledger.audit WHERE object_kind = 'execution' ORDER BY id") == [
        ("retry_many", "the disk was full", True), ("cancel_many", None, True),
    ]  # fmt: skip


def test_without_a_live_runner_it_is_pending_with_a_warning(filled: Cli, ask: Ask) -> None:
    assert filled("trigger", "manual", "--require-runner").exit_code == 0
    ask("UPDATE cronledger.runners SET state = 'draining'")
    trigger = ("trigger", "tenants", "--scope", "acme")
    refused(filled(*trigger, "--require-runner"), "no live runner has queue default", code=1)
    accepted = done(filled, *trigger)
    assert accepted.stderr == (
        "Warning: job tenants: no live runner has queue default; it stays PENDING until there is "
        "one\n"
    )
    statuses = ask("SELECT status FROM cronledger.executions WHERE job_name = 'tenants'")
    assert statuses == [("PENDING",)]
