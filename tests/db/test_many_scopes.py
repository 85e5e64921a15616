"""One job with many scopes does not hold up the others of its queue, whatever is edited."""

from collections.abc import Sequence

import psycopg
import pytest
from psycopg.rows import dict_row

from cronledger.engine.claiming.breadth import MAX_EXTRA_SCHEDULES
from cronledger.engine.lease import Lease
from cronledger.ledger.queries import text
from tests.bench import plans
from tests.db.support.engine import HOUR, SECOND, Ledger, Runner, runners

pytestmark = pytest.mark.slow


MANY = 500
NAMES = [f"s{n:05}" for n in range(MANY)]


def woken(ledger: Ledger, job: str) -> int:
    found: int = ledger.one("SELECT count(*) FROM schedules WHERE job_name = %s AND woken", job)
    return found


def jobs(starts: Sequence[Lease]) -> list[str]:
    return [start.claimed.key.job_name for start in starts]


async def tick(ledger: Ledger, runner: Runner) -> None:
    """A second passes, and the first claim after it starts what is due each second."""
    await runner.finish_all()
    ledger.travel(by=SECOND)
    assert jobs(await runner.step()) == ["tick"]


EDITS = (
    ("UPDATE jobs SET scopes = %s WHERE name = 'many'", NAMES),
    ("SELECT FROM cronledger_internal.set_scopes('many', 'shard', %s)", NAMES[: MANY // 2]),
    ("UPDATE jobs SET scopes = %s, schedule = '@monthly' WHERE name = 'many'", NAMES),
    ("SELECT pause('many')", None),
    ("SELECT resume('many')", None),
    ("SELECT retire('many')", None),
    ("UPDATE jobs SET retired_at = NULL WHERE name = 'many'", None),
    ("DELETE FROM jobs WHERE name = 'many'", None),
)


async def test_what_is_due_starts_in_the_first_claim_whatever_is_edited(ledger: Ledger) -> None:
    ledger.job("tick", schedule="* * * * * *")
    ledger.job("many", schedule="@yearly", scope_kind="shard", scopes=["a"])
    async with runners(ledger.url, {"slots": 4}) as (one,):
        await one.settle()
        for edit, scopes in EDITS:
            ledger.values(edit, *([] if scopes is None else [scopes]))
            left = woken(ledger, "many")
            assert left > MAX_EXTRA_SCHEDULES, edit
            while left:
                await tick(ledger, one)
                before, left = left, woken(ledger, "many")
                assert scopes is None or before - left == min(before, MAX_EXTRA_SCHEDULES), edit
    states = dict(ledger.values("SELECT parked, count(*) FROM schedules GROUP BY 1"))
    assert states == {None: 1, "retired": MANY + 1}


async def test_an_edit_does_not_wait_for_the_scopes_of_another_job(
    ledger: Ledger, one: Runner
) -> None:
    for name in ("a-many", "z-many"):
        ledger.job(name, schedule="@yearly", scope_kind="shard", scopes=NAMES)
    ledger.job("late", schedule="* * * * * *")
    await one.step()
    assert woken(ledger, "late") == 0
    assert woken(ledger, "a-many") == woken(ledger, "z-many") < MANY
    await one.finish_all()
    ledger.travel(by=SECOND)
    assert jobs(await one.step()) == ["late"]


async def test_a_claim_passes_over_the_scopes_that_an_edit_has_locked(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job("tick", schedule="* * * * * *")
    await one.settle()
    ledger.job("many", schedule="@yearly", scope_kind="shard", scopes=NAMES)
    with psycopg.connect(ledger.url) as other:
        other.execute("UPDATE cronledger.jobs SET retired_at = now() WHERE name = 'many'")
        other.execute("SELECT FROM cronledger.schedules WHERE job_name = 'many' FOR UPDATE")
        await tick(ledger, one)
        assert woken(ledger, "many") == MANY
    await tick(ledger, one)
    assert woken(ledger, "many") == MANY - MAX_EXTRA_SCHEDULES


async def test_without_a_slot_what_was_woken_becomes_due_as_anything_else(ledger: Ledger) -> None:
    policies = {"schedule": "@hourly", "grace": "2 h", "overlap": "wait", "catch_up": "all"}
    ledger.job("first", **policies)
    ledger.job("second", **policies)
    async with runners(ledger.url, {"slots": 1}) as (one,):
        await one.settle()
        ledger.travel(by=HOUR)
        ledger.edit("second", description="not an edit", max_attempts=2)
        assert woken(ledger, "second") == 1
        (start,) = await one.step()
        assert start.claimed.key.job_name == "first"
        due, plan_time = ledger.one(
            "SELECT next_due_at, next_plan_time FROM schedules WHERE job_name = 'second'"
            " AND NOT woken AND parked IS NULL"
        )
        assert due == plan_time <= ledger.one("SELECT db_now()")
        await one.finish(start)
        (start,) = await one.step()
        assert start.claimed.key.job_name == "second"
    assert ledger.accounted("first") == ledger.accounted("second") == 1


@pytest.mark.parametrize(
    "statement",
    [
        plans.sent(lambda s, c: s.read_revisions(c, ["many"], [1])),
        plans.Sent(text("list_history", "cronledger"), {"job": "many"}),
    ],
    ids=["read_revisions", "list_history"],
)
def test_a_definition_is_taken_apart_once_and_without_its_scopes(
    ledger: Ledger, statement: plans.Sent
) -> None:
    """The first claim after an edit reads the definition. Once for each of its columns, and with
    all of its scopes, this took more than a second, in which nothing started."""
    ledger.job("many", schedule="@yearly", scope_kind="shard", scopes=NAMES)
    ledger.edit("many", schedule="@monthly")
    explain = f"EXPLAIN (VERBOSE) {statement.text}"
    with psycopg.connect(ledger.url) as c, psycopg.ClientCursor(c, row_factory=dict_row) as cursor:
        lines = cursor.execute(explain.encode(), statement.params).fetchall()
        rows = cursor.execute(statement.text.encode(), statement.params).fetchall()
    explained = "\n".join(line["QUERY PLAN"] for line in lines)
    assert explained.count("jsonb_populate_record(") == 1, explained
    assert [(row["number"], row["schedule"]) for row in rows] == [(1, "@yearly"), (2, "@monthly")]
    assert {row["scope_kind"] for row in rows} == {"shard"}
    assert {row["scopes"] for row in rows} == {None}
