"""A restored or cloned database: nothing is planned or started in it until it is accepted."""

import re
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors

from cronledger.audit.verify import verify
from cronledger.engine.maintenance.scope_providers import ScopeProviders
from cronledger.explain import doctor_ledger
from cronledger.explain.findings import Finding
from cronledger.ledger import identity
from cronledger.ledger.access import connect
from cronledger.ledger.identity import Accepted
from cronledger.rules.model import Job
from tests.db.support.engine import MINUTE, Ledger, Runner, runners


def why(ledger: Ledger) -> str | None:
    found: str | None = ledger.one("SELECT cronledger_internal.other_database()")
    return found


def move(ledger: Ledger) -> None:
    """As if the ledger had been restored or cloned into this database."""
    ledger.values("UPDATE identity SET database_oid = 0")


def fail_over(ledger: Ledger) -> None:
    """As if the ledger's rows had been written on another timeline, and this one came after it."""
    ledger.values("UPDATE identity SET timeline = 99")
    ledger.values("UPDATE runners SET timeline = 99")


def accept(ledger: Ledger, *, skip_missed: bool) -> Accepted:
    with connect(ledger.url) as connection:
        return identity.accept(connection, skip_missed=skip_missed, by="me@here")


def seen(ledger: Ledger) -> Finding:
    """What doctor finds out about the identity."""
    (found,) = ledger.findings(doctor_ledger.identity)
    return found


async def begin(ledger: Ledger) -> None:
    """An execution of a job that is reentrant, and one of another, are RUNNING."""
    ledger.job("once")
    ledger.job("again", allow_stale_reentry=True, max_attempts=3)
    async with runners(ledger.url, {}) as (original,):
        for job in ("once", "again"):
            ledger.trigger(job)
        assert len(await original.settle()) == 2


def planned(ledger: Ledger) -> list[Any]:
    return ledger.values("SELECT job_name, planned_through, next_due_at FROM schedules ORDER BY 1")


async def test_in_a_clone_nothing_is_planned_claimed_stolen_or_swept(ledger: Ledger) -> None:
    """A real copy of a database: tests/cluster/test_restored_database.py."""
    await begin(ledger)
    ledger.job(schedule="* * * * *", catch_up="all", overlap="allow")
    ledger.edit("once", overlap="wait")
    ledger.trigger("once")
    ledger.values("UPDATE jobs SET paused_at = db_now(), paused_until = db_now() + '1 s'"
                " WHERE name = 'again'")  # fmt: skip
    ledger.values("UPDATE identity SET database_oid = 1")
    ledger.travel(by=timedelta(hours=1))
    executions = "SELECT to_jsonb(e) FROM executions e ORDER BY id"
    before = ledger.values(executions), planned(ledger)
    async with runners(ledger.url, {"name": "of the clone"}) as (runner,):
        await runner.settle()
        assert runner.delay == 5.0
        await runner.steal()
        await runner.repair()
        said = runner.dispatcher.refused
    assert said == why(ledger)
    assert said is not None
    assert "the ledger belongs to the database with oid 1" in said
    assert (ledger.values(executions), planned(ledger)) == before
    assert ledger.values("SELECT name FROM jobs WHERE paused_at IS NOT NULL") == ["again"]


async def test_in_a_clone_no_scope_provider_is_asked(ledger: Ledger, one: Runner) -> None:
    ledger.job("job", scope_kind="shard")
    asked: list[str] = []

    def provider() -> list[str]:
        asked.append("asked")
        return ["a", "b"]

    declared = Job.model_validate({"name": "job", "handler": "python", "scope_kind": "shard"})
    move(ledger)
    scopes = ScopeProviders(one.pool, one.statements, {"job": (declared, provider)}, runner="r1")
    await scopes.step()
    assert (asked, ledger.values("SELECT scope_id FROM schedules")) == ([], [])
    accept(ledger, skip_missed=True)
    await scopes.step()
    assert sorted(ledger.values("SELECT scope_id FROM schedules")) == ["a", "b"]


def test_workers_in_other_languages_are_refused_and_what_they_run_goes_on(ledger: Ledger) -> None:
    ledger.job("outside", handler="external", overlap="allow")
    ledger.trigger("outside")
    held = ledger.one("SELECT id, lease_token FROM claim_next('default', 'php')")
    ledger.trigger("outside")
    move(ledger)
    seen = ledger.values("SELECT id, heartbeat_at FROM runners")
    with pytest.raises(
        psycopg.Error, match="not the database in which the ledger was created"
    ) as caught:
        ledger.values("SELECT id FROM claim_next('default', 'php')")
    assert caught.value.sqlstate == "CL005"
    assert caught.value.diag.message_hint is not None
    assert "accept_database(true)" in caught.value.diag.message_hint
    assert ledger.values("SELECT id, heartbeat_at FROM runners") == seen
    assert ledger.one("SELECT heartbeat(%s, %s)", *held) == "ok"
    assert ledger.one("SELECT finish(%s, %s)", *held) == "ok"


async def test_another_server_and_a_ledger_without_identity_are_other_databases(
    ledger: Ledger, one: Runner
) -> None:
    ledger.values("UPDATE identity SET system_identifier = 7")
    await one.check_in()
    await one.step()
    assert one.dispatcher.refused is not None
    assert "system identifier 7, and this server has" in one.dispatcher.refused
    ledger.values("DELETE FROM identity")
    assert why(ledger) == "its table identity is empty"
    with pytest.raises(errors.InvalidParameterValue, match="skip_missed = NULL"):
        ledger.values("SELECT accept_database(NULL)")
    assert accept(ledger, skip_missed=False).why == "its table identity is empty"
    assert why(ledger) is None


def test_a_server_process_remembers_its_own_database_until_the_identity_changes(
    ledger: Ledger,
) -> None:
    require = "SELECT cronledger_internal.require_own_database()"
    remembered = "SELECT current_setting('cronledger.own_database', true) = i::text FROM identity i"
    with connect(ledger.url) as session:
        session.execute("SET search_path = cronledger")
        assert session.execute(remembered).fetchone() == (None,)
        session.execute(require)
        assert session.execute(remembered).fetchone() == (True,)
        move(ledger)
        for _ in range(2):
            with pytest.raises(psycopg.Error) as refused:
                session.execute(require)
            assert refused.value.sqlstate == "CL005"
        session.rollback()
        assert accept(ledger, skip_missed=False).why is not None
        session.execute(require)
        assert session.execute(remembered).fetchone() == (True,)


def test_a_failover_that_is_not_recorded_yet_is_looked_at_each_time(ledger: Ledger) -> None:
    ledger.values("SELECT cronledger_internal.register_worker('php', 'default', '{}')")
    fail_over(ledger)
    require = "SELECT cronledger_internal.require_own_database()"
    with connect(ledger.url) as session:
        session.execute(require)
        ledger.travel(by=11 * MINUTE)
        with pytest.raises(psycopg.Error) as refused:
            session.execute(require)
        assert refused.value.sqlstate == "CL005"


async def test_a_promoted_copy_is_another_database_once_nobody_was_seen_for_ten_minutes(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(schedule="* * * * *")
    fail_over(ledger)
    ledger.travel(by=10 * MINUTE - timedelta(seconds=30))
    assert why(ledger) is None
    ledger.travel(by=MINUTE)
    cursor = planned(ledger)
    for _ in range(2):  # that it is seen here makes it no failover
        await one.check_in()
        await one.settle()
        assert one.dispatcher.refused == why(ledger)
    assert "no runner checked in on timeline 99 in the last 10 minutes" in str(why(ledger))
    assert planned(ledger) == cursor
    ledger.values("SELECT cronledger_internal.register_worker('php', 'default', '{}')")
    assert why(ledger) is not None


async def test_a_failover_goes_on_and_is_reported_until_a_person_confirms_it(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(schedule="* * * * *")
    await one.check_in()
    assert seen(ledger).severity == "ok"
    fail_over(ledger)
    trusted = seen(ledger)
    assert trusted.severity == "warning"
    assert trusted.found.startswith("the server changed from timeline 99 to 1 (not recorded")
    ledger.travel(by=MINUTE)
    assert len(await one.settle()) == 1  # also before anybody was seen on the new timeline
    await one.check_in()
    ledger.travel(by=timedelta(hours=1))  # nobody is seen: it stays the ledger's own
    assert (why(ledger), ledger.one("SELECT timeline FROM identity")) == (None, 1)
    recorded = seen(ledger)
    assert recorded.found.startswith("the server changed from timeline 99 to 1 (at ")
    assert "refuse-database" in str(recorded.remedy)
    assert accept(ledger, skip_missed=True) == Accepted(None, 0, 0, 0)
    assert seen(ledger) == recorded
    assert accept(ledger, skip_missed=False) == Accepted(None, 0, 0, 0)
    assert seen(ledger).severity == "ok"
    outcomes = "SELECT outcome FROM audit WHERE verb = 'accept_database' ORDER BY id"
    assert ledger.values(outcomes) == ["unchanged", "done"]


async def test_a_person_refuses_a_copy_that_looks_like_a_failover(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(schedule="* * * * *")
    await one.check_in()
    fail_over(ledger)
    await one.check_in()
    assert ledger.one("SELECT refuse_database('ann')") is True
    assert ledger.one("SELECT refuse_database('bob')") is False
    ledger.travel(by=MINUTE)
    assert await one.settle() == []
    assert re.fullmatch(r"ann refused it at [0-9-]+ [0-9:]+ UTC", str(why(ledger)))
    assert accept(ledger, skip_missed=False).why is not None
    assert seen(ledger).severity == "ok"
    assert len(await one.settle()) == 1


async def test_what_is_refused_goes_on_once_it_is_accepted(ledger: Ledger, one: Runner) -> None:
    ledger.job(schedule="* * * * *", grace="1 s", catch_up="latest")
    move(ledger)
    ledger.travel(by=5 * MINUTE)
    assert await one.settle() == []
    assert accept(ledger, skip_missed=False).why is not None
    (start,) = await one.settle()
    assert one.dispatcher.refused is None
    assert start.claimed.key.plan_time > ledger.now() - MINUTE
    assert ledger.skipped() == [("superseded", 4)]
    kept = ledger.one("SELECT recorded_by FROM identity")
    assert kept == "me@here (accept-database)"
    assert accept(ledger, skip_missed=True) == Accepted(None, 0, 0, 0)
    assert ledger.statuses() == ["RUNNING"]
    assert ledger.one("SELECT max(revision) FROM job_revisions") == 1


def test_skip_missed_accepts_a_job_whose_required_job_is_retired(ledger: Ledger) -> None:
    ledger.job("extract", schedule="@daily")
    ledger.job("load", schedule="@daily", requires=[{"job": "extract"}])
    ledger.edit("extract", retired_at=ledger.now())
    move(ledger)
    assert accept(ledger, skip_missed=True).jobs == 1
    problem = "SELECT retired_at, gate_problem LIKE '%%is retired%%' FROM jobs WHERE name = 'load'"
    assert ledger.values(problem) == [(None, True)]


@pytest.mark.long
async def test_skip_missed_leaves_out_what_was_due_and_nothing_else(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(schedule="* * * * *", catch_up="all", overlap="wait", grace="1 h")
    ledger.job("daily", schedule="0 9 * * *")
    ledger.job("paused", schedule="* * * * *")
    ledger.edit("paused", paused_at=ledger.now())
    move(ledger)
    began = ledger.now()
    ledger.travel(by=timedelta(days=10))
    done = accept(ledger, skip_missed=True)
    assert (done.jobs, done.cancelled, done.asked_to_end) == (3, 0, 0)
    accepted = ledger.now()
    assert await one.settle() == []
    minutes = (accepted - began) // MINUTE
    assert {reason for reason, _ in ledger.skipped()} == {"missed"}
    skipped = sum(count for _, count in ledger.skipped())
    assert skipped in (minutes, minutes + 1)
    assert ledger.skipped("daily") == [("missed", 10)]
    ledger.travel(by=MINUTE)
    assert len(await one.settle()) == 1
    assert ledger.accounted() == skipped + 1
    assert ledger.skipped("paused") in ([], [("paused", skipped)])
    assert ledger.parked("paused") == "paused"
    assert list(verify(ledger.url)) == []
    assert ledger.values(
        "SELECT state, requested_by FROM job_revisions WHERE job_name = 'daily'"
        " AND revision > 1 ORDER BY revision"
    ) == [("retired", "me@here (accept-database)"), ("active", "me@here (accept-database)")]


async def test_skip_missed_ends_what_the_original_has_begun(ledger: Ledger, one: Runner) -> None:
    """It is no violation while the copy is paused, and nobody could end it."""
    await begin(ledger)
    ledger.job("waits")
    ledger.trigger("waits")
    move(ledger)
    ledger.travel(by=timedelta(hours=1))
    kinds = "SELECT kind FROM violations"
    assert ledger.values(kinds) == ["stale", "stale"]
    ledger.values("SELECT pause_all('a copy')")
    done = accept(ledger, skip_missed=True)
    assert (done.jobs, done.cancelled, done.asked_to_end) == (3, 1, 2)
    assert ledger.values(kinds) == []
    await one.check_in()
    # A replica that has been sweeping for two minutes ends them, so they must not be left.
    ledger.values("UPDATE runners SET started_at = db_now() - interval '3 min'")
    assert ledger.values(kinds) == ["stale", "stale"]
    ledger.values("SELECT resume_all()")
    assert await one.steal() == []
    await one.sweep()
    assert ledger.values(kinds) == []
    assert await one.settle() == []
    ended = "SELECT job_name, status, error_code, next_attempt_at FROM executions ORDER BY 1"
    assert ledger.values(ended) == [
        ("again", "CANCELLED", "stale_timeout", None),
        ("once", "CANCELLED", "stale_timeout", None),
        ("waits", "CANCELLED", None, None),
    ]
