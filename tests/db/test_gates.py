"""Gates: executions that wait until the jobs that they require have succeeded."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from cronledger.audit.verify import verify
from cronledger.engine.maintenance import sweeper
from cronledger.rules import outcome
from cronledger.rules.outcome import NotReady
from tests.db.support.engine import HOUR, MINUTE, Ledger, Runner, runners
from tests.marks import first_short

NOT_READY = outcome.failure(NotReady("1m", "no file"))
WAITING = "SELECT missing FROM gates WHERE job_name = %s ORDER BY plan_time"


def requires(*names: str, scope: str = "same") -> list[dict[str, str]]:
    return [{"job": name, "scope": scope} for name in names]


def chain(ledger: Ledger, **policies: Any) -> None:
    """Two jobs that fire at each full minute: `load` requires `extract`."""
    ledger.job("extract", schedule="* * * * *")
    ledger.job("load", schedule="* * * * *", requires=requires("extract"), **policies)


async def until_planned(one: Runner) -> None:
    """Plan new schedules, from now on."""
    assert await one.settle() == []


def names(started: list[Any]) -> list[str]:
    return [lease.claimed.key.job_name for lease in started]


async def until_fired(ledger: Ledger, one: Runner) -> None:
    """Plan new schedules, and let the next minute come."""
    await until_planned(one)
    ledger.travel(by=MINUTE)


async def test_an_execution_starts_when_the_required_job_has_succeeded(
    ledger: Ledger, one: Runner
) -> None:
    chain(ledger)
    await until_fired(ledger, one)
    (extract,) = await one.settle()
    assert names([extract]) == ["extract"]
    assert ledger.statuses("load") == ["PENDING"]
    assert not await one.check_gates()
    (missing,) = ledger.values(WAITING, "load")
    assert missing == f"extract {plan_time(ledger)} is RUNNING"
    await one.finish(extract)
    assert await one.check_gates()
    assert names(await one.settle()) == ["load"]
    await one.finish_all()
    assert ledger.statuses("load") == ["SUCCESS"]
    assert ledger.values("SELECT * FROM gates") == []
    assert ledger.violations() == []


def plan_time(ledger: Ledger, job: str = "extract") -> str:
    at: datetime = ledger.one(
        "SELECT max(plan_time) FROM executions WHERE job_name = %s AND trigger <> 'manual'", job
    )
    return at.isoformat().replace("+00:00", "Z")


async def test_an_execution_is_overdue_since_its_gate_opened(ledger: Ledger, one: Runner) -> None:
    overdue = "SELECT due_at FROM overdue WHERE job_name = 'load' AND id > 0"
    chain(ledger, wait_at_most="1 hour")
    ledger.edit("extract", stale_timeout="2 h")
    await until_fired(ledger, one)
    (extract,) = await one.settle()
    ledger.travel(by=10 * MINUTE)
    assert ledger.values(overdue) == []  # it waits for its upstream
    await one.finish(extract)
    assert await one.check_gates()
    ledger.travel(by=MINUTE)
    (since,) = ledger.values(overdue)
    assert since > ledger.now() - 2 * MINUTE
    (load, *_) = await one.settle()
    assert names([load]) == ["load"]
    await one.finish(load, outcome.shutdown(None, end_known=True), release=True)
    ledger.travel(by=MINUTE)
    assert ledger.one(overdue) > ledger.now() - 3 * MINUTE


async def test_expect_duration_is_not_met_while_the_execution_waits(
    ledger: Ledger, one: Runner
) -> None:
    hourly = {"schedule": "0 * * * *", "stale_timeout": "1 h"}
    ledger.job("extract", **hourly)
    ledger.job("load", requires=requires("extract"), expect_duration="2m", **hourly)
    await until_planned(one)
    ledger.travel(to=ledger.now().replace(minute=0, second=1, microsecond=0) + HOUR)
    (extract,) = await one.settle()
    ledger.travel(by=5 * MINUTE)
    await one.repair()  # the deadline is judged while the execution waits
    await one.finish(extract)
    assert await one.check_gates()
    assert names(await one.settle()) == ["load"]
    ledger.travel(by=5 * MINUTE)
    await one.repair()
    assert ledger.values("SELECT kind FROM breaches") == ["expect_duration"]


@pytest.mark.parametrize("policies", [{}, {"jitter": "30 s"}, {"schedule_delay": "30 s"}])
async def test_a_planned_skip_keeps_the_gate_closed_before_it_is_recorded(
    ledger: Ledger, policies: dict[str, str]
) -> None:
    """The next plan_time of the required job is already the one after it."""
    async with runners(ledger.url, {}, {"queues": ("slow",)}) as (one, slow):
        ledger.job("extract", schedule="* * * * *", queue="slow", **policies)
        ledger.job("load", schedule="* * * * *", requires=requires("extract"), wait_at_most="1 h")
        await until_planned(slow)
        await until_planned(one)
        (at,) = ledger.values("SELECT next_plan_time FROM schedules WHERE job_name = 'extract'")
        ledger.values("SELECT skip('extract', %s, reason => 'stock')", at)
        await until_planned(slow)
        ledger.travel(to=at)
        await until_planned(one)
        assert not await one.check_gates()
        ledger.travel(to=at + 0.9 * MINUTE)
        await until_planned(slow)
        assert ledger.skipped("extract") == [("operator", 1)]
        assert not await one.check_gates()
        (missing,) = ledger.values(WAITING, "load")
        assert missing.endswith("was skipped (operator)")


@pytest.mark.parametrize("of_hosts", [False, True])
async def test_a_skip_before_a_firing_that_nobody_can_run_keeps_the_gate_closed(
    ledger: Ledger, *, of_hosts: bool
) -> None:
    """The claim of a replica that cannot run the required job records no skip."""
    scopes: dict[str, Any] = {"scope_kind": "host", "scopes": ["web1"]} if of_hosts else {}
    web1, web2 = ({"labels": [f"host={name}"]} if of_hosts else {} for name in ("web1", "web2"))
    slow = {"queues": ("slow",)}
    lacks = {} if of_hosts else {"functions": ["tests:other"]}
    ledger.job("extract", schedule="* * * * *", queue="slow", **scopes)
    ledger.job(
        "load", schedule="* * * * *", requires=requires("extract"), wait_at_most="1 h", **scopes
    )
    async with runners(ledger.url, web1, slow | web2 | lacks) as (one, unable):
        await until_planned(one)
        await until_planned(unable)
        for _ in range(5):
            ledger.travel(by=MINUTE)
            await one.check_in()
            await until_planned(one)
        waiting = len(ledger.statuses("load"))
        ledger.edit("extract", max_attempts=2)
        await until_planned(unable)
        assert ledger.parked("extract", *scopes.get("scopes", [])) == (
            None if of_hosts else "no_runner"
        )
        assert not await one.check_gates()
        async with runners(ledger.url, slow | web1 | {"name": "able"}) as (able,):
            await able.repair()
            (extract,) = await able.settle()
            await able.finish(extract)
        assert ledger.skipped("extract") == [("superseded", waiting - 1)]
        assert await one.check_gates()
        assert len(await one.settle()) == 1
        await one.finish_all()
    assert ledger.statuses("load").count("PENDING") == waiting - 1
    assert ledger.violations() == []


async def test_a_wait_ends_as_a_skip_that_names_what_was_missing(
    ledger: Ledger, one: Runner
) -> None:
    chain(ledger, wait_at_most="1 h")
    ledger.edit("extract", stale_timeout="2 h")
    await until_planned(one)
    ledger.travel(by=MINUTE)
    await one.settle()
    await one.check_gates()
    first = plan_time(ledger)
    ledger.travel(by=timedelta(minutes=59))
    assert not await one.check_gates()
    assert ledger.statuses("load") == ["PENDING"]
    ledger.travel(by=timedelta(minutes=2))
    assert not await one.check_gates()
    assert ledger.statuses("load") == []
    detail = f"extract {first} is RUNNING"
    assert ledger.values("SELECT reason, count, detail FROM skips") == [("upstream", 1, detail)]
    assert ledger.accounted("load") == 1
    assert ledger.violations() == []


async def test_an_edit_of_the_required_job_does_not_close_a_gate(
    ledger: Ledger, one: Runner
) -> None:
    """It was planned so far before, and the wait ends before it is planned again."""
    chain(ledger)
    await until_fired(ledger, one)
    (extract,) = await one.settle()
    await one.finish(extract)
    ledger.edit("extract", max_attempts=2)
    ledger.travel(by=MINUTE)
    assert await one.check_gates()
    assert sorted(names(await one.settle())) == ["extract", "load"]
    await one.finish_all()
    assert not list(verify(ledger.url))


@pytest.mark.parametrize("planned", [False, True])
async def test_a_wait_does_not_end_before_an_edited_required_job_is_planned(
    ledger: Ledger, *, planned: bool
) -> None:
    """It ends a minute later if no replica can plan it."""
    async with runners(ledger.url, {}, {"queues": ("slow",)}) as (one, slow):
        ledger.job("extract", schedule="0 * * * * *", queue="slow")
        ledger.job(
            "load", schedule="30 * * * * *", requires=requires("extract"), wait_at_most="1 min"
        )
        await until_planned(one)
        await until_planned(slow)
        at = ledger.now().replace(second=1, microsecond=0) + MINUTE
        ledger.travel(to=at)
        (extract,) = await slow.settle()
        ledger.travel(to=at + MINUTE / 2)
        await until_planned(one)
        assert not await one.check_gates()
        ledger.edit("extract", max_attempts=2)
        await slow.finish(extract)
        ledger.travel(to=at + 3 * MINUTE / 2)
        assert not await one.check_gates()
        assert ledger.statuses("load") == ["PENDING"]
        if planned:
            await slow.settle()
        else:
            ledger.travel(by=MINUTE)
        assert await one.check_gates() is planned
    assert ledger.statuses("load") == ["PENDING"][:planned]
    details = "SELECT detail FROM skips WHERE reason = 'upstream'"
    assert all("is not planned up to" in detail for detail in ledger.values(details))
    assert not planned or ledger.violations() == []


async def test_the_sweeper_wakes_the_gates_that_a_crash_left_closed_in_several_transactions(
    ledger: Ledger, one: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "MOST_GATES", 1)
    chain(ledger, wait_at_most="1 h")
    ledger.job("report", schedule="* * * * *", requires=requires("extract"))
    await until_fired(ledger, one)
    (extract,) = await one.settle()
    await one.check_gates()
    one.put(extract)
    await one.only_write()
    assert not await one.check_gates()
    assert (await one.poll()).left_behind == ["gates"]
    sent = one.record()
    await one.repair()
    assert sent.count("wake_left_gates") == 3  # the last one finds none
    assert await one.check_gates()
    assert sorted(names(await one.settle())) == ["load", "report"]


async def test_a_change_of_the_required_job_during_a_check_is_not_lost(
    ledger: Ledger, one: Runner
) -> None:
    chain(ledger, wait_at_most="1 h")
    await until_fired(ledger, one)
    (extract,) = await one.settle()

    async def finish_meanwhile(name: str) -> None:
        if name == "settle_gates" and one.held:
            await one.finish(extract)

    async with runners(ledger.url, {"name": "other"}) as (other,):
        other.before_sending(finish_meanwhile)
        assert await other.check_gates()
    assert names(await one.settle()) == ["load"]


async def test_a_handler_that_is_not_ready_at_the_end_of_the_wait_fails(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(schedule="* * * * *", wait_at_most="2 min", max_attempts=3)
    await until_fired(ledger, one)
    (start,) = await one.settle()
    await one.finish(start, outcome.failure(NotReady("1h", "no file")))
    assert ledger.one("SELECT next_attempt_at = waits_until FROM executions")
    ledger.values("UPDATE jobs SET schedule = NULL")
    ledger.travel(by=3 * MINUTE)
    (start,) = await one.settle()
    await one.finish(start, NOT_READY)
    assert not one.written[-1].release
    row = ledger.one("SELECT status, error_code, error_msg, next_attempt_at FROM executions")
    assert row == ("FAILED", "not_ready", "no file", None)
    assert ledger.violations() == []


async def test_workers_claim_what_waited_once_its_gate_is_open(ledger: Ledger, one: Runner) -> None:
    for name in ("extract", "load"):
        ledger.job(name, handler="external", schedule="* * * * *")
    ledger.edit("load", requires=requires("extract"))
    await until_fired(ledger, one)
    await one.settle()
    take = "SELECT id, lease_token, job_name FROM claim_next('default', 'w', 9)"
    ((execution, token, job),) = ledger.values(take)
    assert job == "extract"
    await one.check_gates()
    ledger.values("SELECT finish(%s, %s)", execution, token)
    due = (await one.poll()).gates
    assert due is not None
    assert due <= ledger.now()
    assert await one.check_gates()
    ((execution, token, job),) = ledger.values(take)
    assert job == "load"


async def test_verify_finds_a_start_before_the_gate_was_open(ledger: Ledger, one: Runner) -> None:
    chain(ledger)
    ledger.edit("extract", stale_timeout="1 h")
    await until_fired(ledger, one)
    (extract,) = await one.settle()
    ledger.values("UPDATE executions SET next_attempt_at = due_at WHERE job_name = 'load'")
    ledger.values("DELETE FROM gates")
    (load,) = await one.settle()
    for start in (load, extract):
        await one.finish(start)
    (found,) = verify(ledger.url)
    assert (found.kind, found.execution_id) == ("early", load.claimed.id)
    assert "before extract" in found.detail


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("DELETE FROM gates", "nothing opens its gate"),
        ("UPDATE executions SET next_attempt_at = due_at WHERE job_name = 'load'",
         "no execution waits there"),
        ("DELETE FROM executions WHERE job_name = 'load'", "no execution waits there"),
    ],
)  # fmt: skip
async def test_verify_finds_a_waiting_execution_without_its_gate_and_a_gate_without_it(
    ledger: Ledger, one: Runner, change: str, text: str
) -> None:
    chain(ledger)
    await until_fired(ledger, one)
    await one.settle()
    assert ledger.violations() == []
    ledger.values(change)
    (found,) = [x for x in verify(ledger.url) if x.kind == "gate"]
    assert (found.job_name, text in found.detail) == ("load", True)
    assert ledger.values("SELECT kind FROM violations") == ["gate"]


@pytest.mark.parametrize(
    ("change", "text"),
    first_short([
        ("UPDATE executions SET finished_at = due_at - interval '1 h' WHERE job_name = 'extract'",
         "all that it required had succeeded"),
        ("UPDATE skips SET created_at = from_plan_time + interval '1 min'", "before its wait of"),
        ("UPDATE job_revisions SET definition = definition - 'requires' WHERE job_name = 'load'",
         "requires no job"),
    ]),
)  # fmt: skip
async def test_verify_finds_an_untrue_skip(
    ledger: Ledger, one: Runner, change: str, text: str
) -> None:
    chain(ledger, wait_at_most="1 h")
    ledger.edit("extract", stale_timeout="3 h")
    await until_fired(ledger, one)
    (extract,) = await one.settle()
    await one.check_gates()
    ledger.travel(by=HOUR + MINUTE)
    await one.check_gates()
    await one.finish(extract)
    assert ledger.violations() == []
    ledger.values(change)
    (found,) = verify(ledger.url)
    assert found.kind == "untrue_skip"
    assert text in found.detail
