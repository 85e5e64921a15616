"""What workers in other languages call, beside the engine's own claims."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from cronledger.engine.clock import DatabaseClock
from tests.db.support.engine import MINUTE, Ledger, Runner
from tests.db.support.rows import Db, start_blocked

CALLS = {
    "heartbeat": "SELECT heartbeat(%s, %s)",
    "finish": "SELECT finish(%s, %s)",
    "fail": "SELECT fail(%s, %s, 'no_good', 'it broke')",
    "release": "SELECT release(%s, %s)",
}


def external(ledger: Ledger, name: str = "job", **columns: Any) -> None:
    values: dict[str, Any] = {"schedule": None, "stale_timeout": "30 s"}
    ledger.job(name, handler="external", target={}, **values | columns)


def claim(ledger: Ledger, runner: str = "w1", n: int = 1, queue: str = "default") -> list[Any]:
    """id, token, job, attempt of each."""
    return ledger.values(
        "SELECT id, lease_token, job_name, attempt FROM claim_next(%s, %s, %s)", queue, runner, n
    )


def state(ledger: Ledger, execution: int) -> dict[str, Any]:
    found: dict[str, Any]
    found = ledger.one("SELECT to_jsonb(e) FROM executions e WHERE id = %s", execution)
    return found


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
    ledger: Ledger, one: Runner
) -> None:
    external(ledger, schedule="* * * * *", payload={"a": [1]}, run_timeout="7 m")
    ledger.travel(by=MINUTE)
    assert await one.settle() == []
    assert ledger.statuses() == ["PENDING"]
    assert await one.settle() == []
    claim_next = "SELECT trigger, payload, run_timeout, attempt FROM claim_next('default', 'w1', 5)"
    assert ledger.values(claim_next) == [("schedule", {"a": [1]}, 7 * MINUTE, 1)]
    assert ledger.one("SELECT state FROM runner_status WHERE runner_id = 'w1'") == "alive"
    assert claim(ledger) == []


async def test_firings_that_nobody_claims_do_not_pile_up(ledger: Ledger, one: Runner) -> None:
    overlaps = ("skip", "wait", "replace", "allow")
    for overlap in overlaps:
        external(ledger, overlap, schedule="0 * * * *", overlap=overlap)
    external(ledger, "all", schedule="0 * * * *", overlap="wait", catch_up="all")
    for _ in range(4):
        ledger.travel(by=60 * MINUTE)
        await one.settle()
    for name in (*overlaps, "all"):
        piles_up = name in ("allow", "all")
        assert ledger.statuses(name) == ["PENDING"] * (4 if piles_up else 1)
        assert ledger.skipped(name) == ([] if piles_up else [("overlap", 3)])
        assert ledger.accounted(name) == 4


def test_limits_of_queues_hold_for_workers(ledger: Ledger) -> None:
    """As overlap and max_running do, which the stateful tests show."""
    external(ledger, overlap="allow", queue="tight")
    ledger.values("INSERT INTO queues (name, max_running) VALUES ('tight', 1)")
    for _ in range(2):
        ledger.trigger()
    ((execution, token, _, _),) = claim(ledger, n=5, queue="tight")
    assert claim(ledger, n=5, queue="tight") == []
    ledger.one(CALLS["release"], execution, token)
    assert [(row[0], row[3]) for row in claim(ledger, n=1, queue="tight")] == [(execution, 2)]


def test_only_the_holder_of_the_token_writes_and_only_once(ledger: Ledger) -> None:
    external(ledger, max_attempts=9, overlap="allow")
    for call, statement in CALLS.items():
        ledger.trigger()
        ((execution, token, _, _),) = claim(ledger)
        before = state(ledger, execution)
        for other in (uuid4(), None):
            assert ledger.one(statement, execution, other) == "lost"
        assert state(ledger, execution) == before
        with pytest.raises(psycopg.errors.NoDataFound, match="does not exist"):
            ledger.one(statement, 4711, token)
        assert ledger.one(statement, execution, token) == "ok"
        if call in ("finish", "fail"):
            after = state(ledger, execution)
            for again in ("finish", "fail", "release"):
                assert ledger.one(CALLS[again], execution, token) == "already_finished"
            assert ledger.one(CALLS["heartbeat"], execution, token) == "lost"
            assert state(ledger, execution) == after


def test_a_renewal_does_not_wait_for_the_row_of_the_worker(
    ledger: Ledger, held: tuple[int, Any]
) -> None:
    """The worker's row is locked by somebody: the lease is renewed all the same, at once."""
    execution, token = held
    with psycopg.connect(ledger.url) as other:
        other.execute("SELECT FROM cronledger.runners WHERE id = 'w1' FOR UPDATE")
        ledger.values("SET lock_timeout = '2 s'")
        assert ledger.one(CALLS["heartbeat"], execution, token) == "ok"


def test_an_end_carries_its_result_and_a_note_if_that_is_too_large(ledger: Ledger) -> None:
    external(ledger, overlap="allow", max_attempts=3)
    for _ in range(2):
        ledger.trigger()
    (failed, token, _, _), (finished, other, _, _) = claim(ledger, n=2)
    fail = "SELECT fail(%s, %s, 'no_good', %s, %s, final => true)"
    assert ledger.one(fail, failed, token, "x" * 5000, Jsonb({"seen": 3})) == "ok"
    row = state(ledger, failed)
    assert (row["status"], row["error_code"], row["result"]) == ("FAILED", "no_good", {"seen": 3})
    assert (len(row["error_msg"]), row["next_attempt_at"]) == (4000, None)
    assert ledger.one("SELECT finish(%s, %s, %s)", finished, other, Jsonb("x" * 20_000)) == "ok"
    row = state(ledger, finished)
    ended = (row["status"], row["error_code"], row["result"])
    assert ended == ("SUCCESS", "result_too_large", None)


def test_fail_retries_as_a_replica_would(ledger: Ledger) -> None:
    external(ledger, overlap="allow", max_attempts=3)
    due = "SELECT round(extract(epoch FROM next_attempt_at - finished_at))::int FROM executions"
    fail = "SELECT fail(%s, %s, 'no_good', 'no', retry_after => %s::interval, final => %s)"
    retried = set()
    for retry_after, final, wait in ((None, False, 60), ("5 m", False, 300), (None, True, None)):
        ledger.trigger()
        ((execution, token, _, _),) = claim(ledger)
        assert ledger.one(fail, execution, token, retry_after, final) == "ok"
        assert ledger.one(f"{due} WHERE id = %s", execution) == wait
        if wait is not None:
            retried.add((execution, 2))
    ledger.travel(by=6 * MINUTE)
    assert {(row[0], row[3]) for row in claim(ledger, n=9)} == retried


def test_a_stale_lease_is_stolen_by_a_worker_that_was_there_long_enough(ledger: Ledger) -> None:
    external(ledger, allow_stale_reentry=True)
    ledger.trigger()
    ((execution, old, _, _),) = claim(ledger)
    assert claim(ledger, "thief") == []
    assert claim(ledger, "away") == []
    ledger.travel(by=timedelta(seconds=31))
    assert claim(ledger, "newcomer") == []  # it cannot know yet
    assert [(row[0], row[3]) for row in claim(ledger, "thief")] == [(execution, 2)]
    assert ledger.one(CALLS["finish"], execution, old) == "lost"
    entry = ledger.one("SELECT attempts -> 0 FROM executions")
    assert (entry["error_code"], entry["runner_id"]) == ("runner_crashed", "w1")
    assert ledger.one("SELECT runner_id FROM crashes") == "w1"
    ledger.travel(by=timedelta(hours=1))
    assert claim(ledger, "away") == []  # a leap of the clock: its view has a gap


async def test_a_worker_has_no_name_of_a_replica_or_of_observed_runs(
    ledger: Ledger, one: Runner
) -> None:
    external(ledger)
    refused = {one.name: "a live replica has", "observed": "runner observed: this name"}
    for (name, said), call in product(refused.items(), ("claim_next('default'", "claim('job'")):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=said):
            ledger.values(f"SELECT * FROM {call}, %s)", name)


# -- the beginning of a lease ----------------------------------------------------------------------


def stand_still(ledger: Ledger) -> None:
    """From now on, each statement began at this instant, and has waited for a lock for an hour."""
    began = ledger.now()
    ledger.show(f"timestamptz '{began}'", "db_now")
    ledger.show(f"timestamptz '{began + timedelta(hours=1)}'")


def lease_left(ledger: Ledger, table: str = "executions") -> list[timedelta]:
    """The rest of each lease at the end of the statement that wrote it."""
    return ledger.values(f"SELECT stale_after - db_clock() FROM {table}")


def test_a_worker_gets_its_whole_lease_although_its_claim_waited_for_a_lock(
    ledger: Ledger,
) -> None:
    """Replicas claim what exists by the same statement."""
    for kind in ("retried", "stolen", "won"):
        external(ledger, kind, max_attempts=3, allow_stale_reentry=True, retry_backoff=["0 s"])
        if kind != "won":
            ledger.trigger(kind)
    held = {row[2]: row for row in claim(ledger, n=2)}
    ledger.one(CALLS["fail"], *held["retried"][:2])
    ledger.values(
        "UPDATE runners SET started_at = db_now() - interval '1 day',"
        " stale_after = db_now() + interval '1 day'"
    )
    ledger.expire("stolen")
    ledger.trigger("won")
    stand_still(ledger)
    assert len(claim(ledger, n=3)) == 3
    assert lease_left(ledger) == [timedelta(seconds=30)] * 3
    assert lease_left(ledger, "runners") == [MINUTE]


def test_a_claim_waits_for_no_lock_after_it_has_written_a_lease(
    ledger: Ledger, db: Db, other: Db
) -> None:
    """The job of the refused execution gets a spec_error, which needs a lock on jobs."""
    for name in ("a", "bad"):
        external(ledger, name)
        ledger.trigger(name)
    ledger.values(
        "ALTER TABLE executions ADD CONSTRAINT refuses"
        " CHECK (job_name <> 'bad' OR status <> 'RUNNING') NOT VALID"
    )
    claim_next = b"SELECT stale_after FROM cronledger.claim_next('default', 'w1', 2)"
    with db.transaction():
        db.execute("LOCK TABLE cronledger.jobs IN SHARE MODE")
        claiming = start_blocked(db, other, lambda: other.execute(claim_next).fetchall())
        ledger.travel(by=MINUTE)
    (claimed,) = claiming.result()
    assert claimed["stale_after"] > ledger.now()
    assert "refuses" in ledger.one("SELECT spec_error FROM jobs WHERE name = 'bad'")


def test_a_heartbeat_that_waited_for_a_lock_renews_the_lease_from_then_on(
    ledger: Ledger, held: tuple[int, Any]
) -> None:
    stand_still(ledger)
    assert ledger.one(CALLS["heartbeat"], *held) == "ok"
    assert lease_left(ledger) == [timedelta(seconds=30)]
    assert lease_left(ledger, "runners") == [MINUTE]
    assert ledger.one("SELECT heartbeat(%s, %s, '5 m')", *held) == "ok"
    assert lease_left(ledger) == [5 * MINUTE]
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="lease"):
        ledger.one("SELECT heartbeat(%s, %s, '1 s')", *held)


async def test_a_replica_gets_its_whole_lease_although_its_claim_waited_for_a_lock(
    ledger: Ledger, one: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The clock of the replica has moved on during the wait as well.
    monkeypatch.setattr(DatabaseClock, "agrees", lambda *_: True)
    ledger.job(schedule="* * * * *", stale_timeout="30 s", ends_at=ledger.now() + MINUTE)
    await one.settle()
    ledger.travel(by=MINUTE)
    stand_still(ledger)
    await one.live_through()
    assert lease_left(ledger, "runners") == [timedelta(seconds=20)]
    (planned,) = await one.settle()
    assert planned.claimed.how == "won"
    assert lease_left(ledger) == [timedelta(seconds=30)]
