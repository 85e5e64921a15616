"""What workers in other languages call, beside the engine's own claims."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from cronledger.engine.clock import DatabaseClock
from tests.db.support.engine import Ledger, Runner, runners
from tests.db.support.rows import connected, start_blocked
from tests.marks import first_fast

MINUTE = timedelta(minutes=1)
CALLS = {
    "heartbeat": "SELECT heartbeat(%s, %s)",
    "finish": "SELECT finish(%s, %s)",
    "fail": "SELECT fail(%s, %s, 'no_good', 'it broke')",
    "release": "SELECT release(%s, %s)",
}


def external(ledger: Ledger, name: str = "job", **columns: Any) -> None:
    values: dict[str, Any] = {
        "handler": "external",
        "target": {},
        "schedule": None,
        "stale_timeout": "30 s",
    }
    ledger.job(name, **{**values, **columns})


def claim(ledger: Ledger, runner: str = "w1", n: int = 1, queue: str = "default") -> list[Any]:
    """id, token, job, attempt of each."""
    return ledger.values(
        "SELECT id, lease_token, job_name, attempt FROM claim_next(%s, %s, %s)", queue, runner, n
    )


def state(ledger: Ledger, execution: int) -> dict[str, Any]:
    row: dict[str, Any] = ledger.one(
        "SELECT to_jsonb(e) FROM executions e WHERE id = %s", execution
    )
    return row


@pytest.fixture
def held(ledger: Ledger) -> Iterator[tuple[int, Any]]:
    """One execution that w1 claimed."""
    external(ledger, max_attempts=3)
    ledger.trigger()
    ((execution, token, _, _),) = claim(ledger)
    yield execution, token


def test_the_jitter_of_a_retry_is_added_to_its_backoff(ledger: Ledger) -> None:
    external(ledger, overlap="allow", max_attempts=2, retry_backoff=["10 m"], retry_jitter=0.5)
    for _ in range(8):
        ledger.trigger()
    for execution, token, _, _ in claim(ledger, n=8):
        assert ledger.one(CALLS["fail"], execution, token) == "ok"
    waits = ledger.values("SELECT next_attempt_at - finished_at FROM executions")
    assert len(set(waits)) == 8
    assert all(10 * MINUTE <= wait <= 15 * MINUTE + timedelta(seconds=1) for wait in waits)


async def test_firings_are_planned_into_pending_and_claimed_by_workers_only(
    ledger: Ledger, database_url: str
) -> None:
    external(ledger, schedule="* * * * *", payload={"a": [1]}, run_timeout="7 m")
    ledger.travel(by=MINUTE)
    async with runners(database_url, {}) as (one,):
        assert await one.settle() == []
        assert ledger.statuses() == ["PENDING"]
        assert await one.settle() == []
    ((trigger, payload, run_timeout, attempt),) = ledger.values(
        "SELECT trigger, payload, run_timeout, attempt FROM claim_next('default', 'w1', 5)"
    )
    assert (trigger, payload, run_timeout, attempt) == (
        "schedule", {"a": [1]}, timedelta(minutes=7), 1,
    )  # fmt: skip
    assert ledger.one("SELECT runner_id, state FROM runner_status WHERE runner_id = 'w1'") == (
        "w1", "alive",
    )  # fmt: skip
    assert claim(ledger) == []


@pytest.mark.parametrize(
    ("policies", "waiting", "skips"),
    first_fast(
        [
            ({"overlap": "skip"}, 1, [("overlap", 3)]),
            ({"overlap": "wait"}, 1, [("overlap", 3)]),
            ({"overlap": "replace"}, 1, [("overlap", 3)]),
            ({"overlap": "allow"}, 4, []),
            ({"overlap": "wait", "catch_up": "all"}, 4, []),
        ]
    ),
)
async def test_firings_that_nobody_claims_do_not_pile_up(
    ledger: Ledger, database_url: str, policies: dict[str, str], waiting: int, skips: list[Any]
) -> None:
    external(ledger, schedule="* * * * *", **policies)
    async with runners(database_url, {}) as (one,):
        for _ in range(4):
            ledger.travel(by=MINUTE)
            await one.settle()
    assert ledger.statuses() == ["PENDING"] * waiting
    assert ledger.skipped() == skips
    assert ledger.accounted() == 4


async def test_a_python_replica_leaves_external_work_to_its_workers(
    ledger: Ledger, database_url: str
) -> None:
    external(ledger)
    ledger.job("python", schedule=None)
    ledger.trigger()
    ledger.trigger("python")
    async with runners(database_url, {}) as (one,):
        assert [s.claimed.key.job_name for s in await one.settle()] == ["python"]
    assert [row[2] for row in claim(ledger, n=5)] == ["job"]


def test_overlap_and_limits_hold_for_workers(ledger: Ledger) -> None:
    external(ledger, "once", overlap="wait")
    external(ledger, "two", overlap="allow", max_running=2)
    for name in ("once", "once", "two", "two", "two"):
        ledger.trigger(name)
    won = claim(ledger, n=10)
    assert sorted(row[2] for row in won) == ["once", "two", "two"]
    assert claim(ledger, "w2", n=10) == []
    for execution, token, _, _ in won:
        assert ledger.one(CALLS["finish"], execution, token) == "ok"
    assert sorted(row[2] for row in claim(ledger, "w2", n=10)) == ["once", "two"]


def test_a_queue_limit_counts_workers_and_replicas_alike(ledger: Ledger) -> None:
    external(ledger, overlap="allow")
    ledger.values("INSERT INTO queues (name, max_running) VALUES ('default', 1)")
    ledger.trigger()
    ledger.trigger()
    ((execution, token, _, _),) = claim(ledger, n=5)
    assert claim(ledger, n=5) == []
    ledger.one(CALLS["release"], execution, token)
    assert [(row[0], row[3]) for row in claim(ledger, n=1)] == [(execution, 2)]


async def test_a_finish_re_arms_what_waited_for_it(ledger: Ledger, database_url: str) -> None:
    external(ledger, schedule="* * * * *", overlap="wait")
    ledger.trigger()
    ((execution, token, _, _),) = claim(ledger)
    ledger.travel(by=MINUTE)
    async with runners(database_url, {}) as (one,):
        await one.settle()
        assert ledger.parked() == "waiting"
        assert ledger.one(CALLS["finish"], execution, token) == "ok"
        assert ledger.parked() is None
        await one.settle()
    assert ledger.statuses() == ["PENDING", "SUCCESS"]


def test_a_refused_value_costs_no_other_its_claim(ledger: Ledger) -> None:
    for name in ("bad", "good"):
        external(ledger, name)
        ledger.trigger(name)
    ledger.values(
        "ALTER TABLE executions ADD CONSTRAINT of_this_site"
        " CHECK (job_name <> 'bad' OR status <> 'RUNNING')"
    )
    assert [row[2] for row in claim(ledger, n=1)] == ["good"]
    assert claim(ledger, n=1) == []
    assert "of_this_site" in ledger.one("SELECT spec_error FROM jobs WHERE name = 'bad'")


@pytest.mark.parametrize("call", CALLS)
def test_finish_fail_release_only_with_the_right_token(
    ledger: Ledger, held: tuple[int, Any], call: str
) -> None:
    execution, token = held
    before = state(ledger, execution)
    assert ledger.one(CALLS[call], execution, uuid4()) == "lost"
    assert ledger.one(CALLS[call], execution, None) == "lost"
    assert state(ledger, execution) == before
    assert ledger.one(CALLS[call], execution, token) == "ok"
    with pytest.raises(psycopg.errors.NoDataFound, match="does not exist"):
        ledger.one(CALLS[call], execution + 1, token)


def test_what_was_written_already_is_told_from_what_is_lost(
    ledger: Ledger, held: tuple[int, Any]
) -> None:
    execution, token = held
    assert ledger.one(CALLS["finish"], execution, token) == "ok"
    for call in ("finish", "fail", "release"):
        assert ledger.one(CALLS[call], execution, token) == "already_finished"
    assert ledger.one(CALLS["heartbeat"], execution, token) == "lost"
    assert state(ledger, execution)["status"] == "SUCCESS"


async def test_what_was_swept_is_lost(
    ledger: Ledger, database_url: str, held: tuple[int, Any]
) -> None:
    execution, token = held
    ledger.expire()
    async with runners(database_url, {}) as (one,):
        await one.sweep()
    assert state(ledger, execution)["error_code"] == "stale_timeout"
    assert ledger.one(CALLS["finish"], execution, token) == "lost"
    assert ledger.one("SELECT runner_id, error_code FROM crashes") == ("w1", "stale_timeout")


def test_a_renewal_counts_from_the_databases_clock(ledger: Ledger, held: tuple[int, Any]) -> None:
    execution, token = held
    ledger.travel(by=timedelta(seconds=20))
    assert ledger.one(CALLS["heartbeat"], execution, token) == "ok"
    left = "SELECT extract(epoch FROM stale_after - db_now())::float8 FROM executions WHERE id = %s"
    assert 29 < ledger.one(left, execution) <= 30
    assert ledger.one("SELECT heartbeat(%s, %s, '5 m')", execution, token) == "ok"
    assert 299 < ledger.one(left, execution) <= 300
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="lease"):
        ledger.one("SELECT heartbeat(%s, %s, '1 s')", execution, token)


def test_a_renewal_stands_whatever_becomes_of_the_rest(
    ledger: Ledger, database_url: str, held: tuple[int, Any]
) -> None:
    """The worker's row is locked by somebody: the lease is renewed all the same, at once."""
    execution, token = held
    with psycopg.connect(database_url) as other:
        other.execute("SELECT FROM cronledger.runners WHERE id = 'w1' FOR UPDATE")
        ledger.values("SET lock_timeout = '2 s'")
        assert ledger.one(CALLS["heartbeat"], execution, token) == "ok"


def test_failed_execution_carries_its_result(ledger: Ledger, held: tuple[int, Any]) -> None:
    execution, token = held
    answer = ledger.one(
        "SELECT fail(%s, %s, 'no_good', %s, %s, final => true)", execution, token, "x" * 5000,
        Jsonb({"seen": 3}),
    )  # fmt: skip
    row = state(ledger, execution)
    assert answer == "ok"
    assert (row["status"], row["error_code"], row["result"]) == ("FAILED", "no_good", {"seen": 3})
    assert (len(row["error_msg"]), row["next_attempt_at"]) == (4000, None)


def test_a_result_that_is_too_large_is_a_success_with_a_note(
    ledger: Ledger, held: tuple[int, Any]
) -> None:
    execution, token = held
    assert ledger.one("SELECT finish(%s, %s, %s)", execution, token, Jsonb("x" * 20_000)) == "ok"
    row = state(ledger, execution)
    assert (row["status"], row["error_code"], row["result"]) == (
        "SUCCESS", "result_too_large", None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("retry_after", "final", "wait"), [(None, False, 60), ("5 s", False, 5), (None, True, None)]
)
def test_fail_retries_as_a_replica_would(
    ledger: Ledger, held: tuple[int, Any], retry_after: str | None, final: bool, wait: int | None
) -> None:
    execution, token = held
    fail = "SELECT fail(%s, %s, 'no_good', 'no', retry_after => %s::interval, final => %s)"
    assert ledger.one(fail, execution, token, retry_after, final) == "ok"
    due = "SELECT round(extract(epoch FROM next_attempt_at - finished_at))::int FROM executions"
    assert ledger.one(due) == wait
    ledger.travel(by=2 * MINUTE)
    assert [row[3] for row in claim(ledger)] == ([] if wait is None else [2])


def test_a_request_to_cancel_reaches_the_worker_and_ends_it(
    ledger: Ledger, held: tuple[int, Any]
) -> None:
    execution, token = held
    assert ledger.one("SELECT cancel(%s)", execution) == "requested"
    assert ledger.one(CALLS["heartbeat"], execution, token) == "cancel_requested"
    assert ledger.one(CALLS["fail"], execution, token) == "ok"
    assert state(ledger, execution)["status"] == "CANCELLED"
    assert claim(ledger) == []


def test_a_stale_lease_is_stolen_by_a_worker_that_was_there_long_enough(ledger: Ledger) -> None:
    external(ledger, allow_stale_reentry=True)
    ledger.trigger()
    ((execution, old, _, _),) = claim(ledger)
    assert claim(ledger, "thief") == []
    ledger.travel(by=timedelta(seconds=31))
    assert claim(ledger, "newcomer") == []  # it cannot know yet
    assert [(row[0], row[3]) for row in claim(ledger, "thief")] == [(execution, 2)]
    assert ledger.one(CALLS["finish"], execution, old) == "lost"
    entry = ledger.one("SELECT attempts -> 0 FROM executions")
    assert (entry["error_code"], entry["runner_id"]) == ("runner_crashed", "w1")
    assert ledger.one("SELECT runner_id FROM crashes") == "w1"


def test_a_leap_of_the_clock_steals_nothing(ledger: Ledger) -> None:
    external(ledger, allow_stale_reentry=True)
    ledger.trigger()
    claim(ledger)
    claim(ledger, "thief")
    ledger.travel(by=timedelta(hours=1))
    assert claim(ledger, "thief") == []


@pytest.mark.parametrize(
    "call",
    [
        "claim_next('default', 'w', 0)",
        "claim_next('default', '', 1)",
        "claim_next(NULL, 'w', 1)",
        "fail(1, gen_random_uuid(), '', 'no')",
        "fail(1, gen_random_uuid(), 'stale_timeout', 'no')",
        "fail(1, gen_random_uuid(), 'x', 'no', retry_after => '-1 s')",
    ],
)
def test_bad_input_is_refused(ledger: Ledger, call: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue) as refused:
        ledger.values(f"SELECT * FROM {call}")
    assert refused.value.diag.message_hint


async def test_a_worker_cannot_take_the_name_of_a_live_replica(
    ledger: Ledger, database_url: str
) -> None:
    async with runners(database_url, {}) as (one,):
        assert isinstance(one, Runner)
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="a live replica has"):
            claim(ledger, one.name)


def test_the_runner_role_may_call_them(ledger: Ledger) -> None:
    external(ledger)
    ledger.trigger()
    ledger.values("SET ROLE cronledger_runner")
    ((execution, token, _, _),) = claim(ledger)
    for call in ("heartbeat", "release"):
        assert ledger.one(CALLS[call], execution, token) == "ok"
    ledger.values("RESET ROLE")


# -- the beginning of a lease ----------------------------------------------------------------------

STOLEN = "UPDATE executions SET stale_after = db_now() - interval '1 s' WHERE status = 'RUNNING'"


def stand_still(ledger: Ledger) -> None:
    """From now on, each statement began at this instant, and has waited for a lock for an hour."""
    began = ledger.now()
    for name, at in (("db_now", began), ("db_clock", began + timedelta(hours=1))):
        ledger.values(
            f"CREATE OR REPLACE FUNCTION cronledger.{name}() RETURNS timestamptz LANGUAGE sql"
            f" {'STABLE' if name == 'db_now' else 'VOLATILE'} AS $$ SELECT timestamptz '{at}' $$"
        )


def lease_left(ledger: Ledger, table: str = "executions") -> list[timedelta]:
    """The rest of each lease at the end of the statement that wrote it."""
    return ledger.values(f"SELECT stale_after - db_clock() FROM {table}")


@pytest.mark.parametrize("how", ["won", "retried", "stolen"])
@pytest.mark.parametrize("function", ["claim_next", "claim"])
def test_a_worker_gets_its_whole_lease_although_its_claim_waited_for_a_lock(
    ledger: Ledger, function: str, how: str
) -> None:
    external(ledger, max_attempts=3, allow_stale_reentry=True, retry_backoff=["0 s"])
    ledger.trigger()
    if how != "won":
        ((execution, token, _, _),) = claim(ledger)
        if how == "retried":
            ledger.one(CALLS["fail"], execution, token)
        else:
            ledger.values(
                "UPDATE runners SET started_at = db_now() - interval '1 day',"
                " stale_after = db_now() + interval '1 day'"
            )
            ledger.values(STOLEN)
    stand_still(ledger)
    if function == "claim_next":
        assert len(claim(ledger)) == 1
    else:
        assert ledger.one("SELECT answer FROM claim('job', 'w1')") == how
    assert ledger.statuses() == ["RUNNING"]
    assert lease_left(ledger) == [timedelta(seconds=30)]
    assert lease_left(ledger, "runners") == [MINUTE]


def test_a_claim_waits_for_no_lock_after_it_has_written_a_lease(
    ledger: Ledger, database_url: str
) -> None:
    """The job of the second execution gets a spec_error, which needs a lock on jobs."""
    for name in ("a", "bad"):
        external(ledger, name)
        ledger.trigger(name)
    ledger.values(
        "ALTER TABLE executions ADD CONSTRAINT refuses"
        " CHECK (job_name <> 'bad' OR status <> 'RUNNING') NOT VALID"
    )
    with connected(database_url) as watcher, connected(database_url) as worker:
        watcher.execute("BEGIN")
        watcher.execute("LOCK TABLE cronledger.jobs IN SHARE MODE")
        claim_next = "SELECT stale_after FROM cronledger.claim_next('default', 'w1', 2)"
        claiming = start_blocked(
            watcher, worker, lambda: worker.execute(claim_next.encode()).fetchall()
        )
        ledger.travel(by=MINUTE)
        watcher.execute("COMMIT")
        (claimed,) = claiming.result()
    assert claimed["stale_after"] > ledger.now()
    assert ledger.one("SELECT spec_error IS NOT NULL FROM jobs WHERE name = 'bad'")


def test_a_heartbeat_that_waited_for_a_lock_renews_the_lease_from_then_on(
    ledger: Ledger, held: tuple[int, Any]
) -> None:
    stand_still(ledger)
    assert ledger.one(CALLS["heartbeat"], *held) == "ok"
    assert lease_left(ledger) == [timedelta(seconds=30)]
    assert lease_left(ledger, "runners") == [MINUTE]


async def test_a_replica_gets_its_whole_lease_although_its_claim_waited_for_a_lock(
    ledger: Ledger, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The clock of the replica has moved on during the wait as well.
    monkeypatch.setattr(DatabaseClock, "agrees", lambda *_: True)
    ledger.job(
        "planned", schedule="* * * * *", overlap="allow", stale_timeout="30 s",
        ends_at=ledger.now() + 2 * MINUTE,
    )  # fmt: skip
    ledger.job("waiting", schedule=None, stale_timeout="30 s")
    ledger.job("stolen", schedule=None, stale_timeout="30 s", allow_stale_reentry=True)
    ledger.trigger("stolen")
    ledger.travel(by=MINUTE)
    async with runners(database_url, {}) as (one,):
        await one.settle()
        ledger.values(STOLEN)
        ledger.trigger("waiting")
        ledger.travel(by=MINUTE)
        stand_still(ledger)
        await one.live_through()
        assert lease_left(ledger, "runners") == [timedelta(seconds=20)]
        claimed = [*await one.steal(), *await one.settle()]
        assert {lease.claimed.how for lease in claimed} == {"won", "stolen"}
    left = ledger.values(
        "SELECT job_name, stale_after - db_clock() FROM executions"
        " WHERE runner_id = 'r1' AND status = 'RUNNING' AND stale_after > db_now() ORDER BY 1"
    )
    assert {name for name, _ in left} == {"planned", "waiting", "stolen"}
    assert {rest for _, rest in left} == {timedelta(seconds=30)}
