"""Jobs that name labels run only on runners that have them."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from cronledger.rules import outcome
from tests.db.support.engine import Ledger, Runner, runners

MINUTE = timedelta(minutes=1)
WEB = ["host=web1", "role=web"]
DB = ["host=db1", "role=db"]


async def test_only_a_runner_with_the_labels_runs_a_job(ledger: Ledger) -> None:
    """Scheduled, triggered, enqueued and retried executions."""
    ledger.job("scheduled", schedule="* * * * *", on=["role=web"])
    ledger.job("other", on=["host=web1", "role=web"], max_attempts=2, retry_backoff=["0 s"])
    async with runners(ledger.url, {"labels": DB}, {"labels": WEB}) as (db, web):
        ledger.values("SELECT enqueue('other')")
        ledger.trigger("other")
        ledger.travel(by=MINUTE)
        await web.check_in()
        assert await db.settle() == []
        started = await web.settle()
        assert [lease.claimed.key.job_name for lease in started].count("scheduled") == 1
        assert len(started) == 2  # of `other` one at a time
        for lease in started:
            await web.finish(lease, outcome.failure(ValueError("no")))
        assert await db.settle() == []
        (retried,) = await web.settle()
        assert retried.claimed.key.job_name == "other"


async def test_only_a_runner_with_the_labels_steals_a_lease(ledger: Ledger) -> None:
    ledger.job(on=["role=web"], allow_stale_reentry=True, max_attempts=3)
    specs = [{"labels": WEB}, {"labels": DB}, {"labels": ["host=web2", "role=web"]}]
    async with runners(ledger.url, *specs) as (web, db, other):
        ledger.trigger()
        (lease,) = await web.settle()
        web.crash()
        ledger.expire()
        assert await db.steal() == []
        (stolen,) = await other.steal()
        assert stolen.claimed.id == lease.claimed.id


async def test_a_job_without_a_runner_with_its_labels_is_parked_until_one_sweeps(
    ledger: Ledger,
) -> None:
    ledger.job(schedule="* * * * *", on=["role=web"])
    async with runners(ledger.url, {"labels": DB}) as (db,):
        ledger.travel(by=MINUTE)
        assert await db.settle() == []
        assert ledger.parked() == "no_runner"
        await db.repair()
        assert ledger.parked() == "no_runner"
        (detail,) = ledger.values("SELECT detail FROM overdue WHERE reason = 'no_runner'")
        assert detail == (
            "no live runner has queue default and function tests:work and the labels role=web;"
            " those with the queue have the labels host=db1,role=db"
        )
        async with runners(ledger.url, {"labels": WEB, "name": "web"}) as (web,):
            await web.repair()
            assert len(await web.settle()) == 1
    assert ledger.accounted() == 1


async def test_i10_an_edit_of_the_labels_does_not_fire_the_past(ledger: Ledger) -> None:
    """What was due before the edit is accounted for by the old definition, and runs once."""
    ledger.job(schedule="* * * * *", on=["role=web"], grace="10 m")
    async with runners(ledger.url, {"labels": DB}) as (db,):
        ledger.travel(by=MINUTE)
        assert await db.settle() == []
        ledger.values("UPDATE jobs SET \"on\" = '{role=db}'")
        (lease,) = await db.settle()
        await db.finish(lease)
        assert await db.settle() == []
        ledger.travel(by=MINUTE)
        assert len(await db.settle()) == 1
    assert ledger.accounted() == 2


def test_a_worker_claims_only_with_the_labels(ledger: Ledger) -> None:
    ledger.job(handler="external", target={}, on=["role=web"])
    ledger.trigger()
    call = "SELECT job_name FROM claim_next('default', %s, labels => %s)"
    assert ledger.values("SELECT job_name FROM claim_next('default', 'w1')") == []
    assert ledger.values(call, "w2", ["role=db"]) == []
    with pytest.raises(psycopg.Error, match=r"runner w3 has the labels role=db, and on = role=web"):
        ledger.values("SELECT * FROM claim('job', 'w3', labels => '{role=db}')")
    assert ledger.values(call, "w4", ["dc=fra", "role=web"]) == ["job"]
    assert ledger.one("SELECT labels FROM runner_status WHERE runner_id = 'w4'") == [
        "dc=fra", "role=web",
    ]  # fmt: skip


async def test_another_runner_plans_what_workers_with_labels_run(ledger: Ledger) -> None:
    ledger.job(handler="external", target={}, schedule="* * * * *", on=["role=web"])
    async with runners(ledger.url, {"labels": DB}) as (db,):
        ledger.travel(by=MINUTE)
        assert await db.settle() == []
    ledger.travel(by=timedelta(seconds=10))
    (detail,) = ledger.values("SELECT detail FROM overdue")
    assert detail == "no worker with the labels role=web has claimed it yet"
    call = "SELECT job_name FROM claim_next('default', 'w', labels => '{role=web}')"
    assert ledger.values(call) == ["job"]


@pytest.mark.parametrize("bad", [["web"], ["role=web", "role=db"], [None], ["role=a b"], []])
def test_labels_that_no_runner_can_have_are_refused(ledger: Ledger, bad: list[Any]) -> None:
    with pytest.raises(psycopg.Error, match="on"):
        ledger.job(on=bad)


def test_a_trigger_names_the_missing_labels(ledger: Ledger) -> None:
    ledger.job(on=["role=web"])
    ledger.runner(handlers=["tests:work"], labels=DB)
    call = "SELECT trigger('job', require_runner => true)"
    with pytest.raises(psycopg.Error, match="and the labels role=web; those with the queue have"):
        ledger.values(call)
    ledger.runner("r2", handlers=["tests:work"], labels=WEB)
    ledger.values(call)


async def test_jobs_without_labels_run_everywhere(one: Runner, ledger: Ledger) -> None:
    ledger.job()
    ledger.trigger()
    assert len(await one.settle()) == 1
