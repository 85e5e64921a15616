"""Random histories of claims, ends, crashes, edits, pauses: judged from the ledger afterwards."""

from contextlib import suppress
from datetime import datetime, timedelta
from random import Random
from typing import Any

import psycopg
import pytest

from cronledger.rules import outcome
from tests.db.support.engine import Ledger, Runner, runners
from tests.marks import first_fast

EVERY = {"* * * * *": 1, "*/2 * * * *": 2, "*/3 * * * *": 3}
LEAPS = (5, 20, 40, 70, 200, 3000)
SCOPES = ("a", "b", "c")
FAILURE = outcome.failure(ValueError("no"))

# Every start, as its own transaction sees the world.
_STARTS = """
CREATE TABLE cronledger.starts
    (token uuid PRIMARY KEY, early boolean, beside bigint, of_job bigint);
CREATE FUNCTION cronledger.note_start() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.status = 'RUNNING'
       AND (TG_OP = 'INSERT' OR OLD.lease_token IS DISTINCT FROM NEW.lease_token) THEN
        INSERT INTO cronledger.starts
        SELECT NEW.lease_token, NEW.started_at < NEW.due_at,
               count(*) FILTER (WHERE e.scope_id = NEW.scope_id), count(*)
        FROM cronledger.executions e WHERE e.job_name = NEW.job_name AND e.status = 'RUNNING';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER note_start AFTER INSERT OR UPDATE ON cronledger.executions
    FOR EACH ROW EXECUTE FUNCTION cronledger.note_start();
"""


@pytest.mark.parametrize(
    ("seed", "overlap"), first_fast(enumerate(["skip", "wait", "allow", "replace"]))
)
async def test_i2_i5_i7_i8_i10_i11_hold_in_any_history(
    ledger: Ledger, database_url: str, seed: int, overlap: str
) -> None:
    random = Random(seed)
    reentrant, limit = seed % 2 == 0, 2 if seed > 1 else None
    ledger.values(_STARTS)
    ledger.job(
        schedule="* * * * *", overlap=overlap, allow_stale_reentry=reentrant, max_running=limit,
        catch_up="latest" if overlap == "skip" else random.choice(["latest", "all"]),
        max_attempts=random.choice([1, 3]), retry_backoff=["20 s"], scope_kind="shard",
        scopes=list(SCOPES), schedule_delay=random.choice(["0 s", "30 s"]),
    )  # fmt: skip
    async with runners(database_url, {"slots": 3}, {}, {"slots": 2}) as three:
        for _ in range(120):
            await _act(ledger, random, random.choice(three), reentrant)
        ledger.values("UPDATE jobs SET paused_at = NULL, retired_at = NULL")
        await _come_to_rest(ledger, three)
    beside = ledger.one("SELECT max(beside) FROM starts")
    assert overlap == "allow" or beside == 1
    assert limit is None or ledger.one("SELECT max(of_job) FROM starts") <= limit
    assert ledger.one("SELECT count(*) FROM starts WHERE early") == 0
    assert ledger.one("SELECT count(*) FROM executions WHERE attempt > max_attempts") == 0
    assert ledger.values("SELECT parked FROM schedules") == [None] * len(SCOPES)
    for scope in SCOPES:
        _account_for(ledger, scope)


async def _act(ledger: Ledger, random: Random, runner: Runner, reentrant: bool) -> None:
    runner.trust()
    match random.random():
        case x if x < 0.35:
            await runner.step()
        case x if x < 0.60 and runner.held:
            ended = FAILURE if random.random() < 0.4 else None
            back = reentrant and random.random() < 0.2
            await runner.finish(random.choice(runner.held), ended, release=back)
        case x if x < 0.72:
            ledger.travel(by=timedelta(seconds=random.choice(LEAPS)))
        case x if x < 0.78:
            ledger.edit(schedule=random.choice(list(EVERY)))
        case x if x < 0.86:
            call = random.choice(["pause('job')", "resume('job')", "trigger('job', 'shard', 'a')"])
            # Refused where retired, paused, or RUNNING under skip.
            with suppress(psycopg.errors.ObjectNotInPrerequisiteState):
                ledger.values(f"SELECT {call}")
        case x if x < 0.88:
            ledger.edit(retired_at=random.choice([None, ledger.now()]))
        case x if x < 0.92:
            await runner.steal()
        case x if x < 0.94:
            runner.crash()
        case _:
            await runner.repair()


async def _come_to_rest(ledger: Ledger, three: list[Runner]) -> None:
    for _ in range(100):
        for runner in three:
            await runner.step()
            await runner.steal()
            for start in list(runner.held):
                await runner.finish(start)
            await runner.repair()
        ledger.expire()
        if not ledger.values(
            "SELECT FROM executions WHERE status = 'RUNNING'"
        ) and not ledger.values(
            "SELECT FROM schedules WHERE next_due_at <= db_now() OR parked IS NOT NULL"
        ):
            return
    raise AssertionError("it does not come to rest")


def _account_for(ledger: Ledger, scope: str) -> None:
    """Each plan_time up to the cursor is an execution or lies in one skip, of its own revision."""
    expected = _expected(ledger, scope)
    ran = dict(ledger.values(
        "SELECT plan_time, revision FROM executions WHERE scope_id = %s AND trigger = 'schedule'",
        scope,
    ))  # fmt: skip
    found: dict[datetime, int] = dict(ran)
    for first, last, count, revision in ledger.values(
        "SELECT from_plan_time, through_plan_time, count, revision FROM skips WHERE scope_id = %s",
        scope,
    ):
        inside = [at for at in expected if first <= at <= last]
        assert len(inside) == count
        assert not found.keys() & set(inside)
        found |= dict.fromkeys(inside, revision)
    assert found == expected


def _expected(ledger: Ledger, scope: str) -> dict[datetime, int]:
    cursor = ledger.one("SELECT planned_through FROM schedules WHERE scope_id = %s", scope)
    history: list[Any] = ledger.values(
        "SELECT revision, effective_from, definition ->> 'schedule' FROM job_revisions ORDER BY 1"
    )
    ends = [*(since for _, since, _ in history[1:]), cursor]
    plan_times = {}
    for (revision, since, schedule), end in zip(history, ends, strict=True):
        at = since.replace(second=0, microsecond=0) + timedelta(minutes=1)
        while at <= min(end, cursor):
            if at.minute % EVERY[schedule] == 0:
                plan_times[at] = revision
            at += timedelta(minutes=1)
    return plan_times
