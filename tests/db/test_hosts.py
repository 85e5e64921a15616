"""Jobs that name labels run only on runners that have them."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.db.support import rows
from tests.db.support.engine import FAILURE, MINUTE, Ledger, runners
from tests.db.support.rows import Db

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
            await web.finish(lease, FAILURE)
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
            " those with the queue and the function have the labels host=db1,role=db"
        )
        async with runners(ledger.url, {"labels": WEB, "name": "web"}) as (web,):
            await web.repair()
            assert len(await web.settle()) == 1
    assert ledger.accounted() == 1


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


@pytest.mark.parametrize("bad", [["web"], ["role=web", "role=db"], [None], ["role=a b"], []])
def test_labels_that_no_runner_can_have_are_refused(ledger: Ledger, bad: list[Any]) -> None:
    with pytest.raises(psycopg.Error, match="on"):
        ledger.job(on=bad)


def test_a_trigger_names_the_labels_that_no_runner_has(ledger: Ledger) -> None:
    ledger.job("labelled", on=["role=web"])
    ledger.job("listed", scope_kind="host", scopes=["web1"])
    ledger.runner(handlers=["tests:work"], labels=DB)
    calls = {
        "SELECT trigger('labelled', require_runner => true)": "role=web",
        "SELECT trigger('listed', 'host', 'web1', require_runner => true)": "host=web1",
    }
    for call, labels in calls.items():
        said = f"and the labels {labels}; those with the queue and the function have"
        with pytest.raises(psycopg.Error, match=said):
            ledger.values(call)
    ledger.runner("r2", handlers=["tests:work"], labels=WEB)
    for call in calls:
        ledger.values(call)


def scopes(ledger: Ledger) -> dict[str, bool]:
    """The hosts of the job, and whether each is planned."""
    return dict(
        ledger.values(
            "SELECT scope_id, retired_at IS NULL OR returned_at IS NOT NULL FROM schedules"
            " WHERE scope_kind = 'host' ORDER BY scope_id"
        )
    )


def hosts_of(leases: list[Any]) -> list[str]:
    return sorted(lease.claimed.key.scope_id for lease in leases)


WEB2 = ["host=web2", "role=web"]


async def test_a_host_that_is_absent_through_grace_gets_a_skip(ledger: Ledger) -> None:
    """Another replica records it, and a later run of the job is not a catch-up."""
    ledger.job(schedule="*/10 * * * *", every=["role=web"], grace="5 m")
    absent = "SELECT scope_id, reason, count FROM skips"
    async with runners(ledger.url, {"labels": WEB}, {"labels": DB}) as (web, db):
        await web.repair()
        assert await web.settle() == []
        for minutes, expected in ((12, []), (3, [("web1", "host_absent", 1)])):
            ledger.travel(by=minutes * MINUTE)  # 12:12:30, 12:15:30
            await db.repair()
            assert await db.settle() == []
            assert ledger.values(absent) == expected
        ledger.travel(by=10 * MINUTE)
        await web.repair()
        assert await web.settle() == []
        ledger.travel(by=6 * MINUTE)
        await web.check_in()
        assert hosts_of(await web.settle()) == ["web1"]
    assert ledger.values(absent) == [("web1", "host_absent", 2)]
    assert ledger.accounted() == 3
    assert ledger.violations() == []


@pytest.mark.parametrize(("last", "reason"), [(25, "host_absent"), (35, "missed")])
async def test_others_settle_what_is_due_around_the_last_check_in_of_a_host(
    ledger: Ledger, last: int, reason: str
) -> None:
    """While that check-in still counts, nothing is recorded. Then the schedule is not behind."""
    ledger.job(schedule="* * * * *", every=["role=web"], grace="2 s")
    async with runners(ledger.url, {"labels": WEB}, {"labels": DB}) as (web, db):
        await web.repair()
        assert await web.settle() == []
        for seconds in (18, last - 18):  # 12:00:48, then 12:00:55 or 12:01:05
            ledger.travel(by=timedelta(seconds=seconds))
            await web.check_in()
        ledger.travel(by=timedelta(seconds=37 - last))  # 12:01:07
        ledger.edit("job", catch_up_window="2 days")
        assert await db.settle() == []
        assert ledger.values("SELECT * FROM skips") == []
        ledger.travel(by=timedelta(seconds=38))  # 12:01:45
        await db.repair()
        assert await db.settle() == []
        assert ledger.values("SELECT reason, count FROM skips") == [(reason, 1)]
        assert ledger.violations() == []
        await web.check_in()
        assert await web.settle() == []
    assert ledger.accounted() == 1
    assert ledger.violations() == []


async def test_a_late_start_is_left_to_the_host_that_was_present(ledger: Ledger) -> None:
    ledger.job(schedule="* * * * *", scope_kind="host", scopes=["web1"], grace="1 s")
    async with runners(ledger.url, {"labels": WEB}, {"labels": DB}) as (web, db):
        assert await web.settle() == []
        for _ in range(3):  # 12:01:15, and never longer than a check-in counts
            ledger.travel(by=timedelta(seconds=15))
            await web.check_in()
        ledger.edit("job", catch_up_window="2 days")
        assert await db.settle() == []
        assert hosts_of(await web.settle()) == ["web1"]
    assert ledger.accounted() == 1


@pytest.mark.parametrize("pruned", [False, True])
async def test_the_scope_of_a_host_that_is_gone_is_removed_after_its_executions(
    ledger: Ledger, pruned: bool
) -> None:
    ledger.job(schedule="@daily", every=["role=web"], windows=True, overlap="wait")
    async with runners(ledger.url, {"labels": WEB}, {"labels": DB}) as (web, db):
        await web.repair()
        await web.run_due()
        ledger.travel(by=timedelta(days=6))
        await db.repair()
        assert scopes(ledger) == {"web1": True}
        ledger.travel(by=timedelta(days=2))
        await web.run_due()
        await db.repair()
        assert scopes(ledger) == {"web1": False}
        assert await db.settle() == []
        ledger.values("SELECT set_retention(%s)", timedelta(days=30))
        for _ in range(3):  # the last call finds what the one before it has pruned
            ledger.travel(by=timedelta(days=22 if pruned else 7))
            ledger.values("SELECT maintain_partitions()")
            await db.repair()
        kept = {
            name: ledger.one(f"SELECT count(*) FROM {name} WHERE 'web1' IN (scope_id)")
            for name in ("schedules", "schedule_keys", "scope_retirements", "windows")
        }
        assert set(kept.values()) == {0 if pruned else 1}
        assert scopes(ledger) == ({} if pruned else {"web1": False})
        for hosts in ("SELECT name FROM hosts", "SELECT host FROM host_absences"):
            assert ("web1" in ledger.values(hosts)) is not pruned
        await web.repair()
        assert scopes(ledger) == {"web1": True}
        ledger.travel(by=timedelta(days=1))
        assert await web.run_due() == 1
    assert ledger.violations() == []


@pytest.mark.parametrize(
    ("end", "again"),
    [
        ({"retired_at": "now"}, {"retired_at": None}),
        ({}, {}),
        ({"every": None, "scopes": ["web2"]}, {"scopes": ["web1"]}),
        ({"every": None, "scope_kind": "global"}, {"every": ["role=web"]}),
    ],
    ids=["retired", "deleted", "listed", "global"],
)
async def test_the_scopes_of_a_job_that_left_its_hosts_are_removed_after_their_executions(
    ledger: Ledger, db: Db, other: Db, end: dict[str, Any], again: dict[str, Any]
) -> None:
    """A job that returns meanwhile waits for the upkeep, and gets a new scope."""
    job: dict[str, Any] = {"schedule": "@daily", "every": ["role=web"]}
    ledger.job(**job)
    upkeep = "SELECT cronledger.maintain_partitions()"
    kept = "SELECT count(*) FROM schedules WHERE scope_id = 'web1'"
    ledger.values("SELECT set_retention(%s)", timedelta(days=30))
    async with runners(ledger.url, {"labels": WEB}) as (web,):
        await web.repair()
        ledger.values("SELECT trigger('job', 'host', 'web1')")
        assert await web.run_due() == 1
        if end:
            ledger.edit(**end)
        else:
            ledger.values("DELETE FROM jobs RETURNING 1")
        await web.run_due()
        for _ in range(3):
            ledger.travel(by=timedelta(days=7))
            ledger.values(upkeep)
        await web.repair()
        await web.run_due()
        assert (ledger.one(kept), ledger.violations()) == (1, [])
        ledger.travel(by=timedelta(days=22))
        ledger.values(upkeep)  # drops the partition of the last execution
        with db.transaction():
            db.execute(upkeep)
            assert rows.value(db, "SELECT count(*) FROM cronledger.schedules"
                                  " WHERE scope_id = 'web1'") == 0  # fmt: skip
            write = (lambda: ledger.edit(**again)) if end else (lambda: ledger.job(**job))
            blocked = rows.start_blocked(other, ledger.db, write)
        blocked.result()
        await web.repair()
        assert ledger.one(kept) == 1
        ledger.travel(by=timedelta(days=1))
        await web.check_in()
        await web.run_due()
    assert ledger.values("SELECT reason FROM skips WHERE scope_id = 'web1'") == ["host_absent"]
    assert ledger.violations() == []


@pytest.mark.parametrize("edits_first", [True, False])
async def test_a_host_that_an_edit_lists_during_the_upkeep_is_kept(
    ledger: Ledger, db: Db, other: Db, edits_first: bool
) -> None:
    """Without the row of the host, no replica could record that the host is absent."""
    ledger.job(schedule="@daily", every=["role=web"])
    db.execute(
        "INSERT INTO cronledger.hosts (name, present_through, retired_at, retired_by)"
        " SELECT 'web1', t, t, 'ann' FROM (SELECT timestamptz '1970-01-01Z' AS t) t"
    )
    edit = "UPDATE cronledger.jobs SET every = NULL, scopes = '{web1}'"
    upkeep = "SELECT cronledger.maintain_partitions()"
    with db.transaction():
        db.execute(edit if edits_first else upkeep)
        if edits_first:
            other.execute(upkeep)
        else:
            blocked = rows.start_blocked(ledger.db, other, lambda: other.execute(edit))
    if not edits_first:
        blocked.result()
    async with runners(ledger.url, {"labels": DB}) as (runner,):
        ledger.travel(by=timedelta(days=1))
        await runner.repair()
        assert await runner.settle() == []
    assert ledger.skipped() == [("host_absent", 1)]
    assert ledger.violations() == []


async def test_a_host_without_the_label_any_more_leaves(ledger: Ledger) -> None:
    ledger.job(schedule="* * * * *", every=["role=web"])
    async with runners(ledger.url, {"labels": WEB}) as (web,):
        await web.repair()
        assert scopes(ledger) == {"web1": True}
        web.labels = ["host=web1"]
        assert (await web.poll()).left_behind == []
        assert (await web.poll()).left_behind == ["hosts"]
        await web.repair()
        assert scopes(ledger) == {"web1": False}


async def test_verify_finds_a_skip_of_a_host_that_was_present(ledger: Ledger) -> None:
    """The instant of a check-in within grace decides; the ledger keeps it."""
    ledger.job(schedule="*/10 * * * *", every=["role=web"], grace="5 m")
    async with runners(ledger.url, {"labels": WEB}, {"labels": DB}) as (web, db):
        await web.repair()
        assert await web.settle() == []
        ledger.travel(by=15 * MINUTE)
        await db.repair()
        await db.settle()
        assert ledger.violations() == []
        await web.check_in()
        assert ledger.violations() == []
        ledger.values("UPDATE host_absences SET until_at = until_at - interval '1 minute'"
                      " WHERE until_at > db_now() - interval '1 minute'")  # fmt: skip
        (found,) = ledger.violations()
        assert "the reason is host_absent, but its host checked in" in found


async def test_a_check_in_in_flight_ends_no_absence_that_a_claim_records(
    ledger: Ledger, db: Db
) -> None:
    """The claim leaves out the host whose row a check-in has locked."""
    ledger.job(schedule="*/10 * * * *", every=["role=web"], grace="5 m")
    async with runners(ledger.url, {"labels": WEB}, {"labels": DB}) as (web, other):
        await web.repair()
        assert await web.settle() == []
        ledger.travel(by=16 * MINUTE)
        await other.repair()
        with db.transaction():
            db.execute("SELECT cronledger_internal.note_host('web1', 'r1', '{host=web1}', '20 s')")
            await other.step()
            assert ledger.values("SELECT * FROM skips") == []
        await other.repair()
        assert await other.settle() == []
    assert ledger.values("SELECT reason FROM skips") == ["host_absent"]
    assert ledger.violations() == []


async def test_a_host_that_is_gone_is_retired_by_an_operator_F99(ledger: Ledger) -> None:
    """A live one is not, and a check-in brings a host back."""
    ledger.job(schedule="*/10 * * * *", every=["role=web"])
    call = "SELECT retire_host('web1', 'ann')"
    async with runners(ledger.url, {"labels": WEB}) as (web,):
        await web.repair()
        await web.settle()
        with pytest.raises(psycopg.Error, match="host web1: one of its replicas has checked in"):
            ledger.values(call)
        ledger.travel(by=15 * MINUTE)
        assert ledger.values(call) == [True]
        assert ledger.values(call) == [False]
        assert scopes(ledger) == {"web1": False}
        assert ledger.values("SELECT state, retired_by, jobs FROM host_status") == [
            ("retired", "ann", 0)
        ]
        await web.repair()
        assert scopes(ledger) == {"web1": True}
        await web.settle()
    with pytest.raises(psycopg.Error, match="host web9: no replica has run on it"):
        ledger.values("SELECT retire_host('web9')")
    assert ledger.violations() == []


@pytest.mark.parametrize(
    ("columns", "shows"),
    [
        ({"on": ["role=db"]}, '"on" is role=db, and every is role=web'),
        ({"scope_kind": "tenant"}, "it has every, and also scopes of the kind tenant"),
    ],
)
def test_every_excludes_other_ways_to_choose(
    ledger: Ledger, columns: dict[str, Any], shows: str
) -> None:
    with pytest.raises(psycopg.Error, match=shows):
        ledger.job(every=["role=web"], **columns)


@pytest.mark.parametrize("retires", [False, True])
async def test_what_ran_on_a_dead_host_is_ended_after_grace_or_with_its_scope(
    ledger: Ledger, retires: bool
) -> None:
    """Nobody else may steal it, and it would hold the limit of the job."""
    ledger.job(every=["role=web"], allow_stale_reentry=True, max_attempts=3, grace="5 m")
    async with runners(ledger.url, {"labels": WEB}, {"labels": WEB2}) as (one, two):
        await one.repair()
        ledger.values("SELECT trigger('job', 'host', 'web1')")
        assert len(await one.settle()) == 1
        one.crash()
        ledger.expire()
        ledger.travel(by=4 * MINUTE)
        await two.sweep()
        assert ledger.statuses() == ["RUNNING"]
        if retires:
            ledger.values("SELECT retire_host('web1')")
        else:
            ledger.travel(by=2 * MINUTE)
        await two.sweep()
    assert ledger.values("SELECT status, error_code FROM executions") == [
        ("FAILED", "stale_timeout")
    ]


async def test_what_waits_for_a_retired_host_is_given_up(ledger: Ledger) -> None:
    """Otherwise its partition would never be dropped."""
    ledger.job(every=["role=web"], max_attempts=2)
    async with runners(ledger.url, {"labels": WEB}, {"labels": WEB2}) as (one, two):
        for runner in (one, two):
            await runner.repair()
        for host in ("web1", "web1", "web2"):
            ledger.values(f"SELECT trigger('job', 'host', '{host}')")
        (lease,) = await one.settle()
        await one.finish(lease, FAILURE)
        one.crash()
        ledger.travel(by=15 * MINUTE)
        await two.check_in()
        ledger.values("SELECT retire_host('web1')")
        await two.repair()
    assert ledger.values("SELECT scope_id, status FROM executions ORDER BY 1, id") == [
        ("web1", "CANCELLED"), ("web1", "CANCELLED"), ("web2", "PENDING"),
    ]  # fmt: skip


async def test_the_restart_of_one_of_two_replicas_keeps_the_scope_of_their_host(
    ledger: Ledger,
) -> None:
    ledger.job(schedule="@daily", every=["role=web"])
    specs = [{"labels": WEB}, {"labels": ["host=web1", "role=batch"]}]
    async with runners(ledger.url, *specs) as (web, batch):
        await web.repair()
        ledger.values("UPDATE runners SET state = 'stopped' WHERE id = 'r1'")
        for minutes, kept in ((0, True), (9, True), (2, False)):
            ledger.travel(by=minutes * MINUTE)
            await batch.repair()
            assert scopes(ledger) == {"web1": kept}


@pytest.mark.parametrize(
    "of_job",
    [{"every": ["role=web"]}, {"scope_kind": "host", "scopes": ["web1", "web2"]}],
    ids=["every", "listed"],
)
async def test_a_host_without_a_runner_that_has_the_function_is_parked_F120(
    ledger: Ledger, of_job: dict[str, Any]
) -> None:
    """The other host runs the job, and the host runs it once its own runner has the function."""
    ledger.job(schedule="* * * * *", grace="10 m", **of_job)
    parked = "SELECT scope_id, parked FROM schedules ORDER BY scope_id"
    async with runners(
        ledger.url, {"labels": WEB}, {"labels": WEB2, "functions": ["tests:other"]}
    ) as (one, two):
        for runner in (one, two):
            await runner.repair()
            await runner.settle()
        ledger.travel(by=MINUTE)
        for runner in (one, two):
            await runner.check_in()
        assert await two.settle() == []
        assert ledger.values(parked) == [("web1", None), ("web2", "no_runner")]
        assert hosts_of(await one.settle()) == ["web1"]
        await one.repair()
        assert ledger.values(parked) == [("web1", None), ("web2", "no_runner")]
        (detail,) = ledger.values("SELECT detail FROM overdue WHERE reason = 'no_runner'")
        assert "function tests:work and the labels host=web2" in detail
        assert "; those with the queue and the function have the labels host=web1," in detail
        async with runners(ledger.url, {"labels": WEB2, "name": "other"}) as (other,):
            await other.repair()
            assert hosts_of(await other.settle()) == ["web2"]
    assert ledger.accounted() == 2
    assert ledger.violations() == []


async def test_a_runner_leaves_a_schedule_of_its_host_to_another_runner_of_the_host_F120(
    ledger: Ledger,
) -> None:
    ledger.job(schedule="* * * * *", grace="10 m", every=["role=web"])
    specs = [{"labels": WEB, "functions": ["tests:other"]}, {"labels": WEB}]
    async with runners(ledger.url, *specs) as (unable, able):
        for runner in (unable, able):
            await runner.repair()
            await runner.settle()
        ledger.travel(by=MINUTE)
        for runner in (unable, able):
            await runner.check_in()
        assert await unable.settle() == []
        assert ledger.values("SELECT parked FROM schedules") == [None]
        assert hosts_of(await able.settle()) == ["web1"]


def test_a_backfill_for_a_host_warns_without_a_runner_of_that_host_F120(
    ledger: Ledger, db: Db
) -> None:
    warned: list[str | None] = []
    db.add_notice_handler(lambda notice: warned.append(notice.message_primary))
    ledger.job(scope_kind="host", scopes=["web1", "db1"])
    ledger.runner(handlers=["tests:work"], labels=DB)
    for host, warnings in (("db1", 0), ("web1", 1)):
        db.execute(
            "SELECT cronledger.backfill('job', ARRAY[date_trunc('hour', now())], 'host', %s)",
            [host],
        )
        assert len(warned) == warnings
    assert warned[0] is not None
    assert "the labels host=web1; those with the queue and the function have" in warned[0]


async def test_a_retired_host_that_a_job_lists_is_absent(ledger: Ledger) -> None:
    ledger.job(schedule="*/10 * * * *", scope_kind="host", scopes=["web1"], grace="5 m")
    async with runners(ledger.url, {"labels": WEB}, {"labels": DB}) as (web, db):
        assert await web.settle() == []
        ledger.travel(by=5 * MINUTE)
        assert ledger.values("SELECT retire_host('web1')") == [True]
        ledger.travel(by=11 * MINUTE)
        await db.repair()
        assert await db.settle() == []
    assert ledger.values("SELECT reason, count FROM skips") == [("host_absent", 1)]


async def test_neither_hosts_that_are_gone_nor_schedules_that_are_not_due_are_read(
    ledger: Ledger, db: Db
) -> None:
    ledger.job(schedule="@daily", every=["role=web"])
    db.execute(
        "INSERT INTO cronledger.hosts (name, present_through, present_from, retired_at, retired_by)"
        " SELECT 'pod' || g, now() - interval '8 days', now() - interval '9 days', now(),"
        " 'hosts_retire_after' FROM generate_series(1, 10000) g"
    )
    listed = [f"pod{n}" for n in range(1000)]
    ledger.job("listing", schedule="@yearly", scope_kind="host", scopes=listed)
    db.execute(
        "UPDATE cronledger.schedules"
        " SET woken = false, next_due_at = cronledger.db_now() + interval '1 day'"
    )
    for table in ("hosts", "schedules", "jobs"):
        db.execute(f"ANALYZE cronledger.{table}")
    for searched in ("absent_schedules(100)", "absent_schedules(NULL)", "hosts_changed()"):
        run = f"SELECT * FROM cronledger_internal.{searched}"
        found = (
            ledger.one(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) {run}")[0]["Plan"]
            for _ in range(2)  # a session that is behind with invalidations reads the catalog
        )
        assert min(x["Shared Hit Blocks"] + x["Shared Read Blocks"] for x in found) < 100
