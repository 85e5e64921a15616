"""What became of a dead runner's work, and what a broken job does to the others: nothing (I9)."""

import sys
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from cronledger.engine.claiming import shared_plans
from cronledger.rules import planner
from tests.db.support.engine import FAILURE, HOUR, LONG_AGO, MINUTE, Ledger, Runner, runners


async def test_i6_a_swept_row_that_is_not_reentrant_never_comes_back(ledger: Ledger) -> None:
    ledger.job(schedule=None, overlap="allow", max_attempts=5, retry_backoff=["0 s"])
    for _ in range(2):
        ledger.trigger()
    async with runners(ledger.url, {}, {}) as (one, two):
        held = list(await one.settle())
        ledger.expire()
        await two.sweep()
        assert ledger.values("SELECT status, error_code, next_attempt_at FROM executions") == [
            ("FAILED", "stale_timeout", None),
        ] * 2  # fmt: skip
        ledger.travel(by=timedelta(days=1))
        assert await two.settle() == [] and await two.steal() == []
        with capture_logs() as logs:  # their holder was only slow
            await one.finish(held[0])
            await one.finish(held[1], FAILURE)
        assert [x["refused"] for x in logs] == ["SUCCESS", FAILURE.status]
        assert one.leases.lost == 2


async def test_i6_nobody_sweeps_before_it_trusts_its_view(ledger: Ledger) -> None:
    ledger.job(schedule=None, stale_timeout="60 s")
    ledger.trigger()
    async with runners(ledger.url, {}, {}) as (one, two):
        await one.settle()
        ledger.expire()
        await two.sweeper.sweep()
        assert ledger.statuses() == ["RUNNING"]
        two.clock.distrust()
        await two.sweeper.sweep()
        assert ledger.statuses() == ["RUNNING"]
        await two.check_in()
        ledger.travel(by=MINUTE + timedelta(seconds=1))
        await two.live_through()
        await two.sweeper.sweep()
        assert ledger.statuses() == ["FAILED"]


async def test_i6_i7_a_leap_that_nobody_has_noticed_steals_and_sweeps_nothing(
    ledger: Ledger,
) -> None:
    """Found by the simulation."""
    ledger.job("again", allow_stale_reentry=True)
    ledger.job("once")
    for name in ("again", "once"):
        ledger.trigger(name)
    async with runners(ledger.url, {}, {}) as (one, two):
        await one.settle()
        two.trust()
        two.dispatcher.steal_at = LONG_AGO
        ledger.travel(by=HOUR)
        assert await two.step() == []
        assert ledger.values("SELECT runner_id, attempt FROM executions") == [("r1", 1)] * 2
        assert two.clock.trusted_since is not None
        assert two.clock.trusted_since > ledger.now() - timedelta(minutes=1)
        two.trust()
        ledger.travel(by=HOUR)
        for _ in range(2):
            await two.sweeper.sweep()
            assert ledger.statuses("once") == ["RUNNING"]
            two.trust()


async def test_an_attempt_that_nobody_may_steal_is_swept(ledger: Ledger, one: Runner) -> None:
    ends = {
        "deleted": "DELETE FROM jobs WHERE name = %s",
        "retired": "SELECT retire(%s)",
        "cancelled": "SELECT cancel(id) FROM executions WHERE job_name = %s",
    }
    names = {f"{end}{n}": (call, n == 1) for end, call in ends.items() for n in range(2)}
    for name, (_, reentrant) in names.items():
        ledger.job(name, schedule=None, allow_stale_reentry=reentrant)
        ledger.trigger(name)
    await one.settle()
    one.crash()
    for name, (call, _) in names.items():
        ledger.expire(name)
        ledger.values(call, name)
    assert await one.steal() == []
    ledger.travel(by=2 * MINUTE)
    await one.sweep()
    found = ledger.values("SELECT job_name, status FROM executions")
    assert dict(found) == {
        name: "CANCELLED" if name.startswith("cancelled") else "FAILED" for name in names
    }


# -- broken jobs --------------------------------------------------------------------------------

BROKEN: dict[str, dict[str, Any]] = {
    "cron": {"schedule": "99 * * * *"},
    "never": {"schedule": "0 0 30 2 *"},
    "zone": {"timezone": "Mars/Olympus"},
    "backoff": {"retry_backoff": [None]},
    "negative": {"retry_backoff": ["-1 s"]},
    "filter": {"never_retry_on": ["75"]},
    "every": {"schedule": "@every 0s"},
    "kind": {"scope_kind": "a\x01b", "scopes": ["x"]},
}


async def test_i9_a_broken_definition_is_named_and_stops_no_other(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job("a good one", schedule="* * * * *")
    with ledger.unchecked():
        for name, columns in BROKEN.items():
            ledger.job(name, **{"schedule": "* * * * *", **columns})
    ledger.job("good too", schedule="* * * * *")
    ledger.travel(by=MINUTE)
    started = [s.claimed.key.job_name for s in await one.settle()]
    assert sorted(started) == ["a good one", "good too"]
    for name in BROKEN:
        parked = "SELECT parked FROM schedules WHERE job_name = %s"
        assert ledger.values(parked, name) == ["spec_error"], name
        assert ledger.one("SELECT length(spec_error) > 10 FROM jobs WHERE name = %s", name)
        ledger.edit(name, schedule="* * * * *", timezone="UTC", retry_backoff=["1 s"],
                    scope_kind="global", scopes=None, never_retry_on=None)  # fmt: skip
        assert ledger.one("SELECT spec_error FROM jobs WHERE name = %s", name) is None
    corrected = await one.settle()  # nothing, unless a minute has just ended
    ledger.travel(by=MINUTE)
    corrected += await one.settle()
    assert {s.claimed.key.job_name for s in corrected} >= BROKEN.keys()


async def test_a_crash_before_spec_error_is_written_is_repaired(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job("bad", schedule="61 * * * *")
    ledger.travel(by=MINUTE)
    await one.settle()
    ledger.values("UPDATE jobs SET spec_error = NULL")  # as if the note had not been written
    assert ledger.parked("bad") == "spec_error"
    await one.repair()
    assert ledger.parked("bad") is None
    await one.settle()
    assert ledger.parked("bad") == "spec_error"
    assert ledger.one("SELECT spec_error IS NOT NULL FROM jobs")
    await one.repair()
    assert ledger.parked("bad") == "spec_error"


async def test_i9_a_payload_that_python_cannot_read(ledger: Ledger, one: Runner) -> None:
    payloads = {"number": "1e5000"}
    if sys.version_info < (3, 13):  # which reads some thousand levels
        payloads["nested"] = "[" * 3000 + "]" * 3000
    ledger.job("good", schedule="* * * * *")
    for name, payload in payloads.items():
        ledger.job(name, schedule="* * * * *")
        ledger.job(f"{name} of a trigger", schedule=None)
        execution = ledger.trigger(f"{name} of a trigger")
        with ledger.unchecked():
            ledger.values("UPDATE jobs SET payload = %s::jsonb WHERE name = %s", payload, name)
        ledger.values("UPDATE executions SET payload = %s::jsonb WHERE id = %s", payload, execution)
    ledger.travel(by=MINUTE)
    started = {s.claimed.key.job_name: s.claimed.payload for s in await one.settle()}
    assert started.keys() == {"good", *(f"{name} of a trigger" for name in payloads)}
    for name in payloads:
        assert "cannot be read" in started[f"{name} of a trigger"].error
        error = ledger.one("SELECT spec_error FROM jobs WHERE name = %s", name)
        assert "cannot be read" in error


@pytest.mark.long
async def test_i9_values_that_the_database_refuses_cost_no_other_its_claim(
    ledger: Ledger, one: Runner
) -> None:
    """Fresh and due again: the batch is halved down to the job, which says so."""
    for n in range(6):
        ledger.job(f"good {n}", schedule="* * * * *")
    ledger.job("bad", schedule="* * * * *")
    ledger.job("bad too", schedule=None)
    ledger.job("z", schedule=None)
    ledger.trigger("bad too")
    ledger.trigger("z")
    ledger.values(
        "ALTER TABLE executions ADD CONSTRAINT of_this_site"
        " CHECK (job_name NOT LIKE 'bad%' OR status <> 'RUNNING')"
    )
    ledger.travel(by=MINUTE)
    started = sorted(s.claimed.key.job_name for s in await one.settle())
    assert started == [*(f"good {n}" for n in range(6)), "z"]
    assert one.delay is not None and one.delay > 0
    for name in ("bad", "bad too"):
        assert "of_this_site" in ledger.one("SELECT spec_error FROM jobs WHERE name = %s", name)
    assert ledger.parked("bad") == "spec_error"


async def test_i9_a_plan_time_without_partition_gets_one(ledger: Ledger, one: Runner) -> None:
    """After an outage longer than partitions were made ahead, claims come before maintenance."""
    ledger.job(schedule="@daily", catch_up="all", overlap="allow", catch_up_window="30 days")
    ledger.travel(by=timedelta(days=60))
    started = await one.settle()
    assert len(started) == 30
    assert ledger.one("SELECT spec_error FROM jobs") is None
    assert ledger.skipped() == [("missed", 30)]


async def test_i9_an_unreadable_definition_and_a_bug_in_the_planner_cost_one_job_each(
    ledger: Ledger, one: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails_for_one(row: Any, *rest: Any, **more: Any) -> Any:
        if row.key.job_name == "bug":
            raise ZeroDivisionError("of the planner")
        return choose_plan(row, *rest, **more)

    choose_plan = planner.plan
    monkeypatch.setattr(shared_plans, "plan", fails_for_one)
    for name in ("a", "bug", "unreadable", "z"):
        ledger.job(name, schedule="* * * * *")
    ledger.values(
        "UPDATE job_revisions SET definition = definition || jsonb_build_object('grace',"
        " '100000000 years') WHERE job_name = 'unreadable'"
    )
    ledger.travel(by=MINUTE)
    assert sorted(s.claimed.key.job_name for s in await one.settle()) == ["a", "z"]
    assert "ZeroDivisionError" in ledger.one("SELECT spec_error FROM jobs WHERE name = 'bug'")
    assert ledger.parked("bug") == ledger.parked("unreadable") == "spec_error"


async def test_commands_written_by_sql_need_permission(ledger: Ledger) -> None:
    command: dict[str, Any] = {"handler": "command", "target": {"command": ["true"]}}
    ledger.job(schedule="* * * * *", **command)
    ledger.job("of a file", schedule="* * * * *", source="file", **command)
    ledger.travel(by=MINUTE)
    async with runners(ledger.url, {}, {"allow_sql_commands": True}) as (one, two):
        assert [s.claimed.key.job_name for s in await one.settle()] == ["of a file"]
        assert ledger.parked() == "spec_error"
        assert "ALLOW_SQL_COMMANDS" in ledger.one("SELECT spec_error FROM jobs WHERE name = 'job'")
        ledger.edit(target={"command": ["echo"]})
        assert [s.claimed.key.job_name for s in await two.settle()] == ["job"]
