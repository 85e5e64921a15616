"""F100: a job with `@reboot` runs once for each boot of each of its hosts."""

from datetime import timedelta

import psycopg
import pytest

from cronledger.ledger.reports import Reports
from cronledger.rules.model import ScopeKey
from cronledger.sources.backfill import past
from tests.db.support.engine import MINUTE, SECOND, Ledger, runners
from tests.db.support.rows import Db
from tests.db.test_hosts import DB, WEB, WEB2, hosts_of


async def test_each_boot_of_a_host_runs_once_F100(ledger: Ledger) -> None:
    """Also the first one of a new host, whose scope appears after its first check-in."""
    ledger.job(schedule="@reboot", every=["role=web"])
    specs = [{"labels": x, "boot_id": "1"} for x in (WEB, WEB2, DB)]
    async with runners(ledger.url, *specs) as (one, two, db):
        ran = []
        for boot in ("1", "1", "2", "3", "1"):
            one.boot_id = boot
            for runner in (one, two, db):
                await runner.repair()
                await runner.check_in()
            ledger.travel(by=SECOND)
            assert await db.settle() == []
            leases = [*await one.settle(), *await two.settle()]
            for lease in leases:
                await (one if lease in one.held else two).finish(lease)
            assert ledger.values("SELECT reason FROM overdue") == []
            ran.append(hosts_of(leases))
    assert ran == [["web1", "web2"], [], ["web1"], ["web1"], []]
    assert ledger.values("SELECT parked FROM schedules") == ["boot", "boot"]
    assert ledger.accounted() == 4
    assert ledger.violations() == []


@pytest.mark.parametrize(("up", "reason"), [("59 s", None), ("61 s", "host_absent")])
async def test_a_host_that_booted_before_its_grace_is_absent_F100(
    ledger: Ledger, up: str, reason: str | None
) -> None:
    """So to enrol a host that has been up for months starts nothing."""
    ledger.job(schedule="@reboot", every=["role=web"], grace="60 s")
    ledger.job("other", schedule="@reboot", every=["role=db"])
    spec = {"labels": WEB, "boot_id": "1", "uptime": timedelta(seconds=int(up[:2]))}
    async with runners(ledger.url, spec) as (web,):
        await web.repair()
        ledger.travel(by=5 * MINUTE)  # grace is judged by the first check-in
        await web.check_in()
        ledger.travel(by=SECOND)
        assert len(await web.settle()) == (reason is None)
    assert ledger.values("SELECT reason FROM skips") == ([reason] if reason else [])
    assert ledger.values("SELECT jobs FROM host_boots") == [["job"]]
    assert ledger.violations() == []


async def test_a_backfill_runs_the_boots_that_did_not_run_F100(ledger: Ledger) -> None:
    """Also one that was noticed after grace, and none that is not planned yet."""
    ledger.job(schedule="@reboot", scope_kind="host", scopes=["web1"])
    async with runners(ledger.url, {"labels": WEB, "boot_id": "1"}) as (web,):
        ledger.travel(by=SECOND)
        for lease in await web.settle():
            await web.finish(lease)
        web.boot_id, web.uptime = "2", timedelta(minutes=2)
        await web.check_in()
        ledger.travel(by=SECOND)
        assert await web.settle() == []
        web.boot_id = "3"  # is not planned yet
        await web.check_in()
        key, end = ScopeKey("job", "host", "web1"), ledger.now()
        with psycopg.connect(ledger.url) as connection:
            reports = Reports.over(connection, "cronledger")
            found = list(past(reports, key, end - MINUTE, end + MINUTE).plan_times)
        boots = ledger.values("SELECT plan_time FROM host_boots ORDER BY boot_id")
        assert found == boots[:2]
        call = "SELECT made, left_alone FROM backfill('job', %s, 'host', 'web1')"
        assert ledger.values(call, found) == [(1, 1)]
        assert len(await web.settle()) == 1
    assert ledger.violations() == []


async def test_the_boots_of_containers_with_one_host_name_count_once_F100(ledger: Ledger) -> None:
    ledger.job(schedule="@reboot", scope_kind="host", scopes=["web1"])
    specs = [{"labels": WEB, "boot_id": x} for x in ("1", "2")]
    async with runners(ledger.url, *specs) as containers:
        for _ in range(2):
            for runner in containers:
                await runner.check_in()
                ledger.travel(by=SECOND)
                await runner.run_due()
            ledger.travel(by=timedelta(days=2))
            for runner in containers:
                await runner.check_in()
            ledger.values("UPDATE pruned SET through = db_clock() - interval '25 h'")
            ledger.values("SELECT maintain_partitions()")
    assert ledger.accounted() == 2
    assert ledger.violations() == []


async def test_i2_a_boot_waits_for_the_locks_of_its_schedules_F100(ledger: Ledger, db: Db) -> None:
    """So its plan_time is later than each cursor, and its check-in never waits."""
    ledger.job(schedule="@reboot", scope_kind="host", scopes=["web1"])
    async with runners(ledger.url, {"labels": WEB, "boot_id": "1"}) as (web,):
        ledger.travel(by=SECOND)
        assert len(await web.settle()) == 1
        web.boot_id = "2"
        with db.transaction():
            db.execute("SELECT FROM cronledger.schedules FOR UPDATE")
            await web.check_in()
            assert ledger.values("SELECT plan_time FROM host_boots WHERE boot_id = '2'") == [None]
            db.execute("UPDATE cronledger.schedules SET planned_through = '2200-01-01 00:00:00.5Z'")
        await web.check_in()
    (plan_time,) = ledger.values("SELECT plan_time::text FROM host_boots WHERE boot_id = '2'")
    assert plan_time == "2200-01-01 00:00:01+00"


async def test_verify_finds_wrong_accounts_of_boots_F100(ledger: Ledger) -> None:
    ledger.job(schedule="@reboot", scope_kind="host", scopes=["web1"])
    async with runners(ledger.url, {"labels": WEB, "boot_id": "1"}) as (web,):
        ledger.travel(by=SECOND)
        await web.settle()
        web.boot_id, web.uptime = "2", timedelta(minutes=2)
        await web.check_in()
        ledger.travel(by=SECOND)
        assert await web.settle() == []
    assert ledger.skipped() == [("host_absent", 1)]
    assert ledger.violations() == []
    ledger.values("UPDATE host_boots SET booted_at = checked_in_at - interval '1 s' * boot_id::int")
    (found,) = ledger.violations()
    assert "the reason is host_absent, but its host checked in" in found
    ledger.values("UPDATE host_boots SET booted_at = checked_in_at - interval '1 h'")
    (found,) = ledger.violations()
    assert "its host first checked in 1:00:00 after its boot" in found
    ledger.values("DELETE FROM host_boots WHERE boot_id = '1'")
    (found,) = ledger.violations()
    assert "'@reboot' of revision 1 has no such plan_time" in found
    ledger.values("DELETE FROM executions")
    ledger.values("DELETE FROM skips")
    (found,) = ledger.violations()
    assert "kind='missing'" in found


def test_no_job_waits_for_a_boot_F100(ledger: Ledger) -> None:
    ledger.job(schedule="@reboot", every=["role=web"])
    for field in ("requires", "after"):
        with pytest.raises(psycopg.Error, match="runs when a host boots"):
            ledger.job("next", schedule=None if field == "after" else "@daily",
                       every=["role=web"], **{field: [{"job": "job"}]})  # fmt: skip
