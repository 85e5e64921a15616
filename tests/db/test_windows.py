"""Windows of executions: each begins where the last SUCCESS of its scope ended."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest

from cronledger.audit.verify import verify
from cronledger.declaring.app import Context
from cronledger.engine.lease import Lease
from cronledger.rules import outcome
from cronledger.rules.outcome import Discard, Outcome, Retry
from tests.db.support import rows
from tests.db.support.engine import HOUR, MINUTE, Ledger, Runner
from tests.db.support.whole_replica import Whole
from tests.marks import first_short
from tests.waiting import eventually

FAILED = outcome.failure(Discard("broken"))
RETRIED = outcome.failure(Retry("10m"))


@pytest.fixture
def began(ledger: Ledger) -> datetime:
    """Return when the hourly `job` was created, which has windows. That is half past noon."""
    hourly(ledger)
    return created(ledger)


def hourly(ledger: Ledger, **columns: Any) -> None:
    ledger.job("job", **{"schedule": "@hourly", "windows": True, "overlap": "wait"} | columns)


def created(ledger: Ledger) -> datetime:
    found: datetime = ledger.one("SELECT created_at FROM schedules")
    return found.astimezone(UTC)


def noon(ledger: Ledger) -> datetime:
    return ledger.now().astimezone(UTC).replace(minute=0, second=0, microsecond=0)


async def start(ledger: Ledger, one: Runner, after: timedelta = HOUR) -> Lease:
    """Return the only execution that starts after this time."""
    ledger.travel(by=after)
    (lease,) = await one.settle()
    return lease


async def run(ledger: Ledger, one: Runner, ended: Outcome | None = None) -> None:
    """Run the execution of the next hour."""
    await one.finish(await start(ledger, one), ended)


def chain(ledger: Ledger) -> list[tuple[datetime, datetime]]:
    """Return the windows of the successes, in order."""
    return ledger.values("SELECT window_start, window_end FROM windows ORDER BY 1")


def ends(ledger: Ledger) -> list[tuple[str, str | None, str | None]]:
    return ledger.values("SELECT status, error_code, error_msg FROM executions ORDER BY plan_time")


# --- the interval ---------------------------------------------------------------------------------


async def test_a_window_ends_at_plan_time_and_begins_where_the_last_success_ended(
    ledger: Ledger, one: Runner, began: datetime
) -> None:
    at = noon(ledger)
    windows = [(began, at + HOUR)]
    windows += [(at + n * HOUR, at + (n + 1) * HOUR) for n in (1, 2)]
    for window in windows:
        lease = await start(ledger, one)
        assert lease.claimed.window == window
        await one.finish(lease)
    assert chain(ledger) == windows
    rows = ledger.values("SELECT window_start, plan_time FROM execution_status ORDER BY plan_time")
    assert rows == chain(ledger)
    assert ledger.violations() == []


async def test_failed_skipped_and_missed_firings_leave_no_hole(
    ledger: Ledger, one: Runner, began: datetime
) -> None:
    at = noon(ledger)
    await run(ledger, one, FAILED)
    ledger.values("SELECT pause('job')")
    ledger.travel(by=2 * HOUR)
    assert await one.settle() == []
    ledger.values("SELECT resume('job')")
    ledger.travel(by=3 * HOUR)  # two of these are superseded
    (lease,) = await one.settle()
    assert lease.claimed.window == (began, at + 6 * HOUR)
    await one.finish(lease)
    assert chain(ledger) == [(began, at + 6 * HOUR)]
    assert ledger.violations() == []


async def test_a_retry_a_release_and_a_steal_keep_the_window(ledger: Ledger, one: Runner) -> None:
    hourly(ledger, max_attempts=9, allow_stale_reentry=True, overlap="skip")
    began, at = created(ledger), noon(ledger)
    first = await start(ledger, one)
    await one.finish(first, RETRIED)
    retried = await start(ledger, one, 11 * MINUTE)
    await one.finish(retried, outcome.shutdown(None, end_known=True), release=True)
    (released,) = await one.settle()
    one.crash()
    ledger.expire()
    (stolen,) = await one.steal()
    for lease in (first, retried, released, stolen):
        assert lease.claimed.window == (began, at + HOUR)
    await one.finish(stolen)
    assert ledger.violations() == []


async def test_an_enqueued_execution_has_no_window(
    ledger: Ledger, one: Runner, began: datetime
) -> None:
    ledger.values("SELECT enqueue('job', payload => '1')")
    (enqueued,) = await one.settle()
    assert enqueued.claimed.window is None
    await one.finish(enqueued, FAILED)
    lease = await start(ledger, one)
    assert lease.claimed.window == (began, noon(ledger))
    await one.finish(lease)
    ledger.values("SELECT retry(%s)", enqueued.claimed.id)
    (lease,) = await one.settle()
    assert (lease.claimed.id, lease.claimed.window) == (enqueued.claimed.id, None)
    await one.finish(lease)
    assert ledger.violations() == []


# --- nothing is processed twice -------------------------------------------------------------------


async def test_a_retry_ends_if_a_later_success_has_processed_its_window(
    ledger: Ledger, one: Runner
) -> None:
    """What waits behind it starts at once."""
    hourly(ledger, max_attempts=2, max_running=1)
    at, began = noon(ledger), created(ledger)
    await run(ledger, one, outcome.failure(Retry("90m", "not yet")))
    await run(ledger, one)
    assert chain(ledger) == [(began, at + 2 * HOUR)]
    ledger.travel(by=31 * MINUTE)
    execution = ledger.trigger()
    assert [start.claimed.id for start in await one.settle()] == [execution]
    (status, code, text), *_ = ends(ledger)
    assert (status, code) == ("FAILED", "retry_requested")
    assert text is not None
    assert text.startswith("not yet\nnot retried: its window was processed by the execution of ")
    assert ledger.values("SELECT id FROM executions WHERE next_attempt_at IS NOT NULL") == []
    assert ledger.violations() == []


async def test_what_waits_behind_more_of_them_than_a_claim_ends_starts_without_a_poll(
    ledger: Ledger, one: Runner
) -> None:
    hourly(ledger, max_running=1)
    await run(ledger, one)
    for seconds in range(1, 102):  # the limit of one execution makes each a round of its own
        at = noon(ledger) - timedelta(seconds=seconds)
        rows.execution(ledger.db, "PENDING", plan_time=at, trigger="backfill")
    execution = ledger.trigger()
    assert [start.claimed.id for start in await one.settle()] == [execution]
    assert ledger.statuses().count("CANCELLED") == 101


async def test_a_waiting_execution_is_cancelled_if_its_window_is_processed(
    ledger: Ledger, one: Runner, began: datetime
) -> None:
    at = noon(ledger)
    await run(ledger, one, FAILED)
    await run(ledger, one, FAILED)
    ledger.values("UPDATE jobs SET max_attempts = 3")
    for ago in (1, 2):  # the later one first
        ledger.values(
            "DELETE FROM executions WHERE plan_time = %s", noon(ledger) - (ago - 1) * HOUR
        )
    plan_times = [at + 2 * HOUR, at + HOUR]
    ledger.values("SELECT backfill('job', %s::timestamptz[])", plan_times)
    assert await one.run_due() == 1
    processed, ended = ends(ledger)
    assert processed[:2] == ("CANCELLED", "window_processed")
    assert ended[0] == "SUCCESS"
    assert chain(ledger) == [(began, at + 2 * HOUR)]
    detail = ledger.one("SELECT detail FROM ledger WHERE outcome = 'CANCELLED'")
    assert detail.startswith("not run: its window was processed by the execution of ")


async def test_a_firing_whose_window_is_processed_is_superseded(
    ledger: Ledger, one: Runner, began: datetime
) -> None:
    ledger.travel(by=HOUR + MINUTE)
    ledger.trigger()
    assert await one.run_due() == 1  # what exists is claimed first
    assert ledger.skipped() == [("superseded", 1)]
    (window,) = chain(ledger)
    assert window[0] == began
    assert window[1] > noon(ledger)
    assert ledger.violations() == []


def test_a_superseded_firing_needs_a_later_success(ledger: Ledger, began: datetime) -> None:
    ledger.travel(by=HOUR)
    ledger.values("UPDATE schedules SET planned_through = db_clock()")
    rows.skip(ledger.db, noon(ledger), reason="superseded")
    (found,) = ledger.violations()
    assert "no newer plan_time followed" in found


async def test_backfill_and_retry_refuse_what_is_processed(
    ledger: Ledger, one: Runner, began: datetime
) -> None:
    at = noon(ledger)
    await run(ledger, one, FAILED)
    await run(ledger, one)
    await run(ledger, one, FAILED)
    ids = ledger.values("SELECT id FROM executions ORDER BY plan_time")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as refused:
        ledger.values("SELECT retry(%s)", ids[0])
    assert "the windows of global/global are processed up to" in str(refused.value)
    assert "with a job without windows" in str(refused.value.diag.message_hint)
    call = "SELECT made, retried FROM backfill('job', %s::timestamptz[], reprocess => 'all')"
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="are processed up to"):
        ledger.values(call, [at + 2 * HOUR, at + 3 * HOUR])
    assert ledger.values(call, [at + 3 * HOUR]) == [(0, 1)]
    (lease,) = await one.settle()
    assert lease.claimed.window == (at + 2 * HOUR, at + 3 * HOUR)


async def test_a_write_of_unknown_outcome_records_the_window_once(
    ledger: Ledger, one: Runner, began: datetime
) -> None:
    lease = await start(ledger, one)
    one.put(lease)
    ended = one.finisher._waiting[0]
    await one.finisher.step()
    one.leases.add([lease])
    one.finisher.put(ended)  # the reply to the first write was lost
    await one.finisher.step()
    assert len(chain(ledger)) == 1
    assert one.lost == []
    assert ends(ledger) == [("SUCCESS", None, None)]


# --- edits ----------------------------------------------------------------------------------------


async def test_windows_that_are_turned_on_begin_at_the_last_success(
    ledger: Ledger, one: Runner
) -> None:
    hourly(ledger, windows=False)
    at = noon(ledger)
    await run(ledger, one)
    await run(ledger, one, FAILED)
    ledger.edit(windows=True)
    await run(ledger, one)
    assert chain(ledger) == [(at + HOUR, at + 3 * HOUR)]
    assert ledger.violations() == []


# --- constraints, upkeep and verify ---------------------------------------------------------------


def add(ledger: Ledger, start: datetime, end: datetime, previous: datetime | None) -> None:
    ledger.values(
        "INSERT INTO windows (job_name, scope_kind, scope_id, window_start, window_end,"
        " previous_end, execution_id) VALUES ('job', 'global', 'global', %s, %s, %s, 1)",
        start, end, previous,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("window", "constraint"),
    [
        ((2, 3, None), "one_first_window"),
        ((2, 3, 2), "window_follows_another"),
        ((0, 2, 0), "one_window_from_a_start"),
        ((2, 3, 1), "window_begins_at_an_end"),
        ((1, 1, 1), "window_ends_after_its_start"),
        ((0, 1, 0), "windows_pkey"),
    ],
)
def test_the_ledger_refuses_overlaps_and_gaps(
    ledger: Ledger, window: tuple[int | None, ...], constraint: str
) -> None:
    at = noon(ledger)
    add(ledger, at, at + HOUR, None)
    start, end, previous = (None if n is None else at + n * HOUR for n in window)
    assert start is not None
    assert end is not None
    with pytest.raises(psycopg.IntegrityError) as refused:
        add(ledger, start, end, previous)
    assert refused.value.diag.constraint_name == constraint


def test_the_upkeep_of_partitions_keeps_the_last_window(ledger: Ledger, began: datetime) -> None:
    at = noon(ledger)
    add(ledger, at, at + HOUR, None)
    add(ledger, at + HOUR, at + 2 * HOUR, at + HOUR)
    add(ledger, at + 2 * HOUR, at + 3 * HOUR, at + 2 * HOUR)
    ledger.values("SELECT * FROM maintain_partitions()")
    assert len(chain(ledger)) == 3
    ledger.values("UPDATE pruned SET through = %s", at + 3 * HOUR)
    ledger.values("SELECT * FROM maintain_partitions()")
    assert chain(ledger) == [(at + 2 * HOUR, at + 3 * HOUR)]
    assert ledger.one("SELECT previous_end FROM windows") is None
    add(ledger, at + 3 * HOUR, at + 4 * HOUR, at + 3 * HOUR)


MOVED = """
ALTER TABLE windows DROP CONSTRAINT window_begins_at_an_end;
UPDATE windows SET window_start = window_start {0} WHERE previous_end IS NOT NULL;
UPDATE executions SET window_start = window_start {0}
WHERE plan_time = (SELECT max(plan_time) FROM executions)
"""
"""The second window begins elsewhere, in both tables. Only a lost constraint allows that."""


@pytest.mark.parametrize(
    ("change", "said"),
    first_short([
        (
            "UPDATE executions SET window_start = window_start - interval '1 s'",
            ["the time until", "is missing in windows", "no execution of this plan_time succeeded",
             "no execution of this plan_time succeeded"],
        ),
        (MOVED.format("- interval '1 s'"), ["the time until"]),
        (MOVED.format("+ interval '1 s'"), ["is left out"]),
        ("DELETE FROM windows", ["is missing in windows", "is missing in windows"]),
        (
            "UPDATE executions SET window_start = NULL WHERE plan_time = (SELECT max(plan_time)"
            " FROM executions)",
            ["succeeded without a window", "no execution of this plan_time succeeded"],
        ),
    ]),
)  # fmt: skip
async def test_verify_finds_wrong_windows(
    ledger: Ledger, one: Runner, began: datetime, change: str, said: list[str]
) -> None:
    await run(ledger, one)
    await run(ledger, one)
    assert ledger.violations() == []
    ledger.values(change)
    found = ledger.violations()
    assert len(found) == len(said)
    for text in said:
        assert any(text in violation for violation in found), (text, found)
    kinds = ledger.values("SELECT DISTINCT kind FROM violations")
    assert kinds == ["window"]


# --- handlers -------------------------------------------------------------------------------------


async def test_workers_get_the_window_with_their_claim(ledger: Ledger, one: Runner) -> None:
    hourly(ledger, handler="external", target={})
    at, began = noon(ledger), created(ledger)
    ledger.travel(by=HOUR)
    assert await one.settle() == []
    found = ledger.one("SELECT window_start, plan_time FROM claim_next('default', 'w1')")
    assert found == (began, at + HOUR)
    ended = "SELECT finish(id, lease_token) FROM executions WHERE status = 'RUNNING'"
    assert ledger.one(ended) == "ok"
    ledger.travel(by=HOUR)
    assert await one.settle() == []
    found = ledger.one("SELECT answer, window_start, plan_time FROM claim('job', 'w1')")
    assert found == ("won", at + HOUR, at + 2 * HOUR)
    assert ledger.one(ended) == "ok"
    assert len(chain(ledger)) == 2
    found = ledger.one("SELECT answer, window_start FROM claim('job', 'w1')")
    assert found == ("won", None)
    assert ledger.violations() == []


def insert(words: str) -> str:
    return f"INSERT INTO seen VALUES (current_setting('cronledger.job'), {words})"


@pytest.mark.long
async def test_every_handler_gets_the_window(whole: Whole) -> None:
    whole.rows("CREATE TABLE seen (job text, window_start timestamptz, window_end timestamptz)")

    async def own(ctx: Context) -> None:
        assert ctx.window is not None
        async with ctx.transaction() as c:
            await c.execute("INSERT INTO seen VALUES (%s, %s, %s)", [ctx.job, *ctx.window])

    settings = ("window_start", "window_end")
    words = ", ".join(f"current_setting('cronledger.{name}')::timestamptz" for name in settings)
    whole.job(own, windows=True)
    whole.declare("sql", "sql", {"sql": insert(words)}, windows=True)
    environment = 'echo "$CRONLEDGER_WINDOW_START $CRONLEDGER_WINDOW_END"'
    whole.declare("command", "command", {"command": environment}, windows=True)
    async with whole.replica():
        for name in ("own", "sql", "command", "own"):
            ended = partial(whole.ended, await whole.trigger(name))
            row = await eventually("it ends", ended)
            assert (row["status"], row["error_msg"]) == ("SUCCESS", None)
            window = (row["window_start"], row["plan_time"])
            if name == "command":
                words = " ".join(instant.astimezone(UTC).isoformat() for instant in window)
                assert row["output"] == f"{words}\n"
            else:
                (*_, seen) = whole.rows("SELECT * FROM seen WHERE job = %s ORDER BY 2", name)
                assert tuple(seen.values()) == (name, *window)
    assert whole.one("SELECT count(*) FROM cronledger.windows") == 4
    assert list(verify(whole.url)) == []
