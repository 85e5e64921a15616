"""Planned skips: skip() and unskip(), and what claims and `verify` do with them."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.db.support.engine import HOUR, Ledger, Runner, waiting
from tests.db.support.rows import connected
from tests.marks import first_short
from tests.waiting import eventually


def skip(ledger: Ledger, first: Any, last: datetime | None = None, **given: Any) -> int:
    """Call skip() for the job `job`, and return the id of the planned skip."""
    values = {"job": "job", "plan_time": first, "through": last, "reason": "stocktaking"} | given
    arguments = ", ".join(f"{argument} => %s" for argument in values)
    planned: int = ledger.one(f"SELECT skip({arguments})", *values.values())
    return planned


def unskip(ledger: Ledger, planned: int) -> str:
    outcome: str = ledger.one("SELECT unskip(%s)", planned)
    return outcome


def skips(ledger: Ledger) -> list[tuple[str, str | None, int]]:
    return ledger.values("SELECT reason, detail, count FROM skips ORDER BY from_plan_time")


async def hourly(ledger: Ledger, one: Runner, **columns: Any) -> datetime:
    """An hourly job that was planned. Return its next plan_time."""
    ledger.job(schedule="0 * * * *", **columns)
    await one.settle()
    return ledger.now().replace(minute=0, second=0, microsecond=0) + HOUR


async def come_to(ledger: Ledger, one: Runner, at: datetime) -> list[datetime]:
    """Let the time pass, and return the plan_times that start, and end at once."""
    ledger.travel(to=at + timedelta(seconds=1))
    started = await one.settle()
    await one.finish_all()
    return [lease.claimed.key.plan_time for lease in started]


async def test_a_skipped_plan_time_does_not_run_and_has_the_reason(
    ledger: Ledger, one: Runner
) -> None:
    at = await hourly(ledger, one)
    skip(ledger, at)
    await one.settle()
    seen = ledger.one("SELECT next_plan_time, next_due_at FROM schedules")
    assert seen == (at + HOUR, at)
    assert ledger.one("SELECT plan_time FROM upcoming") == at + HOUR
    assert await come_to(ledger, one, at) == []
    assert skips(ledger) == [("operator", "stocktaking", 1)]
    said = ledger.one("SELECT detail FROM ledger WHERE kind = 'skip'")
    assert said == "1 plan_time did not run: an operator skipped it (stocktaking)"
    assert await come_to(ledger, one, at + HOUR) == [at + HOUR]
    assert ledger.one("SELECT state, skipped FROM planned_skip_status") == ("over", 1)
    assert ledger.violations() == []


async def test_a_skip_of_all_scopes_includes_later_ones_and_that_of_a_scope_only_itself(
    ledger: Ledger, one: Runner
) -> None:
    at = await hourly(ledger, one, scope_kind="shard", scopes=["a", "b"])
    skip(ledger, at)
    skip(ledger, at + HOUR, scope_kind="shard", scope_id="b")
    ledger.edit(scopes=["a", "b", "c"])
    assert await come_to(ledger, one, at) == []
    assert await come_to(ledger, one, at + HOUR) == [at + HOUR] * 2
    counts = ledger.values("SELECT scope_id, count FROM skips ORDER BY 1")
    assert counts == [("a", 1), ("b", 2), ("c", 1)]
    assert ledger.violations() == []


async def test_a_plan_time_that_waits_for_another_execution_can_still_be_skipped(
    ledger: Ledger, one: Runner
) -> None:
    at = await hourly(ledger, one, overlap="wait")
    ledger.travel(to=at)
    (running,) = await one.settle()
    ledger.travel(to=at + HOUR)
    assert await one.settle() == []
    assert ledger.parked() == "waiting"
    skip(ledger, at + HOUR)
    assert await one.settle() == []
    assert skips(ledger) == [("operator", "stocktaking", 1)]
    await one.finish(running)
    assert await come_to(ledger, one, at + 2 * HOUR) == [at + 2 * HOUR]
    assert ledger.violations() == []


async def test_i10_what_planning_has_reached_cannot_be_skipped(ledger: Ledger, one: Runner) -> None:
    at = await hourly(ledger, one)
    assert await come_to(ledger, one, at) == [at]
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as refused:
        skip(ledger, at, at + HOUR)
    assert f"job job: plan_time {at:%Y-%m-%d}" in str(refused.value)
    assert "is already reached; planning has come to" in str(refused.value)
    assert refused.value.diag.message_hint


async def test_a_plan_time_is_skipped_by_one_planned_skip_only(ledger: Ledger, one: Runner) -> None:
    at = await hourly(ledger, one, scope_kind="shard", scopes=["a", "b"])
    of_a = {"scope_kind": "shard", "scope_id": "a"}
    first = skip(ledger, at, at + 2 * HOUR, **of_a)
    for given in ({}, of_a):
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as refused:
            skip(ledger, at + HOUR, at + 5 * HOUR, **given)
        assert f"job job: planned skip {first} skips" in str(refused.value)
        assert f"unskip({first})" in str(refused.value.diag.message_hint)
    skip(ledger, at, at + 9 * HOUR, scope_kind="shard", scope_id="b")
    assert unskip(ledger, first) == "withdrawn"
    again = skip(ledger, at + HOUR, at + 3 * HOUR, **of_a)
    # A second call changes nothing.
    assert skip(ledger, at + 2 * HOUR, at + 3 * HOUR, **of_a) == again


async def test_an_undone_skip_runs(ledger: Ledger, one: Runner) -> None:
    at = await hourly(ledger, one)
    planned = skip(ledger, at)
    await one.settle()
    assert unskip(ledger, planned) == "withdrawn"
    assert unskip(ledger, planned) == "unchanged"
    assert ledger.one("SELECT state FROM planned_skip_status") == "withdrawn"
    await one.settle()
    assert ledger.one("SELECT next_plan_time FROM schedules") == at
    assert await come_to(ledger, one, at) == [at]
    assert ledger.violations() == []


async def test_a_range_of_which_some_is_reached_is_shortened(ledger: Ledger, one: Runner) -> None:
    at = await hourly(ledger, one)
    planned = skip(ledger, at, at + 5 * HOUR)
    await come_to(ledger, one, at + HOUR)
    assert unskip(ledger, planned) == "shortened"
    assert await come_to(ledger, one, at + 2 * HOUR) == [at + 2 * HOUR]
    assert skips(ledger) == [("operator", "stocktaking", 2)]
    assert ledger.violations() == []
    last = skip(ledger, at + 3 * HOUR)
    await come_to(ledger, one, at + 3 * HOUR)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as refused:
        unskip(ledger, last)
    assert f"planned skip {last}: its plan_times are already reached" in str(refused.value)
    with pytest.raises(psycopg.errors.NoDataFound, match="planned skip 999 does not exist"):
        unskip(ledger, 999)


async def test_a_claim_starts_nothing_that_a_transaction_before_it_skips(
    ledger: Ledger, one: Runner
) -> None:
    at = await hourly(ledger, one)
    with psycopg.connect(ledger.url) as skipping:
        skipping.execute("SELECT cronledger.skip('job', %s, 'stocktaking')", (at,))
        assert await come_to(ledger, one, at) == []  # the schedule is locked
        assert skips(ledger) == []
    assert await come_to(ledger, one, at) == []
    assert skips(ledger) == [("operator", "stocktaking", 1)]


async def test_a_skip_that_waits_for_a_claim_sees_what_it_planned(
    ledger: Ledger, one: Runner
) -> None:
    at = await hourly(ledger, one)
    with connected(ledger.url) as skipping:
        waits: list[asyncio.Task[Any]] = []

        async def act(name: str) -> None:
            if name == "try_claim_new":
                call = "SELECT cronledger.skip('job', %s, 'stocktaking')"
                waits.append(asyncio.create_task(asyncio.to_thread(skipping.execute, call, (at,))))
                await eventually("skip waits for the claim", lambda: waiting(ledger))

        one.before_sending(act)
        assert await come_to(ledger, one, at) == [at]
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="already reached"):
            await waits[0]


async def test_a_scope_that_appears_meanwhile_waits_for_the_skip(
    ledger: Ledger, one: Runner
) -> None:
    at = await hourly(ledger, one, scope_kind="shard", scopes=None)
    adds = "SELECT appeared FROM cronledger_internal.set_scopes('job', 'shard', ARRAY['a'])"
    with psycopg.connect(ledger.url) as skipping, connected(ledger.url) as adding:
        skipping.execute("SELECT cronledger.skip('job', %s, 'stocktaking')", (at,))
        task = asyncio.create_task(asyncio.to_thread(adding.execute, adds))
        await eventually("the scope waits", lambda: waiting(ledger))
        skipping.commit()
        await task
    assert await come_to(ledger, one, at) == []
    assert skips(ledger) == [("operator", "stocktaking", 1)]


async def test_planned_skips_are_pruned_with_their_plan_times(ledger: Ledger, one: Runner) -> None:
    at = await hourly(ledger, one)
    skip(ledger, at)
    later = skip(ledger, at + 200 * 24 * HOUR)
    await come_to(ledger, one, at + 120 * 24 * HOUR)
    ledger.values("SELECT count(*) FROM maintain_partitions()")
    ledger.values("SELECT count(*) FROM maintain_partitions()")
    assert ledger.values("SELECT id FROM planned_skips") == [later]


# --- verify ---------------------------------------------------------------------------------------


async def test_verify_finds_a_plan_time_that_ran_although_it_was_skipped(
    ledger: Ledger, one: Runner
) -> None:
    at = await hourly(ledger, one)
    await come_to(ledger, one, at)
    ledger.values(
        "INSERT INTO planned_skips (job_name, from_plan_time, through_plan_time, reason,"
        " requested_by) VALUES ('job', %s, %s, 'stocktaking', 'ann')", at, at,
    )  # fmt: skip
    (violation,) = ledger.violations()
    assert "extra" in violation
    assert "a planned skip contains it (stocktaking)" in violation


@pytest.mark.parametrize(
    ("change", "said"),
    first_short([
        ("UPDATE skips SET reason = 'missed', detail = NULL",
         "the reason is missed, but a planned skip contains it (stocktaking)"),
        ("UPDATE skips SET detail = 'holiday'",
         "the reason is operator (holiday), but no planned skip has it"),
        ("DELETE FROM planned_skips",
         "the reason is operator (stocktaking), but no planned skip has it"),
        ("DELETE FROM skips", "no execution and no skip accounts for it"),
        ("UPDATE planned_skips SET scope_kind = 'shard', scope_id = 'x'",
         "the reason is operator (stocktaking), but no planned skip has it"),
    ]),
)  # fmt: skip
async def test_verify_finds_a_skip_whose_reason_is_not_true(
    ledger: Ledger, one: Runner, change: str, said: str
) -> None:
    at = await hourly(ledger, one)
    skip(ledger, at)
    await come_to(ledger, one, at)
    assert ledger.violations() == []
    ledger.values(change)
    (violation,) = ledger.violations()
    assert said in violation


async def test_verify_finds_a_missed_plan_time_that_had_to_run_before_a_skipped_one(
    ledger: Ledger, one: Runner
) -> None:
    """A skipped plan_time is never the newest one, so the one before it was within its grace."""
    at = await hourly(ledger, one, grace="3 hours")
    skip(ledger, at + HOUR)
    assert await come_to(ledger, one, at + HOUR) == [at]
    assert ledger.violations() == []
    ledger.values("DELETE FROM executions")
    ledger.values(
        "INSERT INTO skips (job_name, scope_kind, scope_id, from_plan_time, through_plan_time,"
        " count, reason, revision, created_at) SELECT job_name, scope_kind, scope_id, %s, %s, 1,"
        " 'missed', revision, created_at FROM skips", at, at,
    )  # fmt: skip
    (violation,) = ledger.violations()
    assert "the reason is missed, but it was recorded" in violation
