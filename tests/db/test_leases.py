"""The set of held leases, and their heartbeats against a real ledger."""

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock
from uuid import UUID, uuid4

import psycopg
import pytest
from structlog.testing import capture_logs

from cronledger.engine.lease import NEVER, Lease, Leases, Stop, margin
from cronledger.engine.running.heartbeats import LARGEST_BATCH, Heartbeats, batches
from cronledger.ledger.access import Access
from cronledger.ledger.claim_rows import Claimed
from cronledger.ledger.rows import LeaseKey
from cronledger.ledger.statements import Statements
from cronledger.rules.model import ExecutionKey, Handler, Job
from tests.cluster.support.proxy import Proxy
from tests.db.support import rows
from tests.db.support.engine import Ledger
from tests.waiting import PATIENCE, until

EPOCH = datetime(2026, 1, 5, tzinfo=UTC)


def lease(
    plan_time: datetime = EPOCH,
    length: float = 3.0,
    sent: float = 100.0,
    token: UUID | None = None,
    scope: str = "global",
) -> tuple[Lease, list[Stop]]:
    """A lease that counts from `sent`, and the reasons its handler is told."""
    job = Job(name="job", handler=Handler.PYTHON, stale_timeout=timedelta(seconds=length))
    kind = "global" if scope == "global" else "shard"
    claimed = Claimed(
        ExecutionKey("job", kind, scope, plan_time), "default", 1, token or uuid4(), 1, 1,
        "schedule", None, 1, EPOCH, "won",
    )  # fmt: skip
    told: list[Stop] = []
    made = Lease(claimed, job, sent)
    made.stop = told.append
    return made, told


def held(*leases: Lease) -> Leases:
    made = Leases()
    made.add(leases)
    return made


# -- accounting ----------------------------------------------------------------------------------


def test_deadlines_count_from_before_the_send() -> None:
    one, _ = lease(sent=100.0, length=3.0)
    assert one.deadline == pytest.approx(100.0 + 3.0 - margin(3.0))
    assert one.next_beat == pytest.approx(101.0)
    assert margin(3.0) == pytest.approx(0.3)
    assert margin(60.0) == margin(3600.0) == 2.0
    leases = held(one)
    assert leases.renew([one.token], 101.5) == {one.token: pytest.approx(104.2)}
    assert leases.due(102.4) == []
    assert leases.due(102.5) == [one]
    assert leases.next_moment(beats=True) == pytest.approx(102.5)
    assert leases.next_moment(beats=False) == pytest.approx(104.2)


def test_an_expired_lease_is_told_once_and_its_deadline_stays() -> None:
    one, _ = lease(sent=100.0)
    leases = held(one)
    assert leases.expired(102.69) == []
    assert leases.expired(102.71) == [one]
    assert leases.expired(200.0) == []
    assert leases.renew([one.token], 103.0) == {}
    assert one.deadline == pytest.approx(102.7)
    assert not one.usable
    # Its row is kept until the handler has ended, at the usual pace.
    assert leases.due(103.9) == []
    assert leases.due(104.0) == [one]
    assert leases.next_moment(beats=False) == NEVER


def test_a_handler_that_sees_the_end_of_its_lease_first_records_the_cause() -> None:
    # The cause was lost when the handler was faster than the heartbeat thread: the attempt then
    # named the CPU instead of the outage.
    one, _ = lease(sent=time.monotonic() - 3.0)
    leases = held(one)
    leases.failing = "OperationalError: refused"
    with capture_logs() as lines:
        leases.expire(one)
        leases.expire(one)
        assert leases.expired(time.monotonic()) == []
    assert [line["event"] for line in lines] == ["lease_expired"]
    assert one.expired is not None
    unrenewed, error = one.expired
    assert (unrenewed >= 3.0, error) == (True, "OperationalError: refused")
    assert leases.renew([one.token], time.monotonic()) == {}
    leases.lose(one.token)
    other, _ = lease(sent=100.0)
    other.held = False
    leases.expire(other)
    assert other.expired is None


def test_a_request_to_renew_now_outlives_what_was_under_way() -> None:
    early, _ = lease(sent=time.monotonic(), length=60)
    leases = held(early)
    sent = time.monotonic()
    leases.renew_now()
    assert leases.due(time.monotonic()) == [early]
    leases.renew([early.token], sent)  # sent before the request: it may have seen nothing
    assert leases.due(time.monotonic()) == [early]
    # Others see the COMMIT of a claim, and cancel, before its answer has come to the runner.
    claimed, late = (lease(sent=at, length=60)[0] for at in (sent, time.monotonic()))
    leases.add([claimed, late])
    assert leases.due(time.monotonic()) == [early, claimed]
    leases.renew([early.token, claimed.token], time.monotonic())
    assert leases.due(time.monotonic()) == []


def test_a_very_old_lease_has_a_statement_of_its_own() -> None:
    new = [lease(EPOCH + timedelta(seconds=n))[0] for n in range(5)]
    old, _ = lease(EPOCH - timedelta(weeks=5))
    assert list(batches([*new[:3], old, *new[3:]])) == [[old], new]
    assert list(batches([])) == []
    many = [lease(EPOCH)[0] for _ in range(LARGEST_BATCH + 1)]
    assert [len(batch) for batch in batches(many)] == [LARGEST_BATCH, 1]


# -- against the ledger --------------------------------------------------------------------------


class Beating:
    """RUNNING executions, the leases on them, and a heartbeat thread."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.leases = Leases()
        self.extended: dict[str, float] = {}
        self.told: dict[str, list[Stop]] = {}
        self.ledger = Ledger(url)
        self.ledger.job(handler="external")

    def hold(self, *scopes: str, length: float = 3.0) -> list[Lease]:
        """One RUNNING execution of each scope under a lease that begins now."""
        made = []
        for scope in scopes:
            token, sent = uuid4(), time.monotonic()
            plan_time = self.ledger.now()
            rows.execution(
                self.ledger.db, "RUNNING", plan_time=plan_time, scope_kind="shard", scope_id=scope,
                runner_id="me", lease_token=token,
                stale_after=plan_time + timedelta(seconds=length),
            )  # fmt: skip
            one, self.told[scope] = lease(plan_time, length, sent, token, scope)
            made.append(one)
        self.leases.add(made)
        return made

    @contextmanager
    def beating(self, url: str | None = None) -> Iterator[Heartbeats]:
        heartbeats = Heartbeats(Access(url or self.url), Statements(), self.leases)
        heartbeats.extended.then(self.extended.update)
        heartbeats.start()
        try:
            yield heartbeats
        finally:
            heartbeats.close(timeout=PATIENCE)
            assert "heartbeats" not in {thread.name for thread in threading.enumerate()}

    def renewed(self, seconds: float = 3.0) -> set[str]:
        """Return the scopes whose rows were renewed, for so long, since they were made."""
        found = self.ledger.values(
            "SELECT scope_id FROM cronledger.executions WHERE heartbeat_at > started_at"
            " AND stale_after - heartbeat_at BETWEEN %s AND %s",
            timedelta(seconds=seconds), timedelta(seconds=seconds + 1),
        )  # fmt: skip
        return set(found)


@pytest.fixture
def beating(database_url: str) -> Iterator[Beating]:
    made = Beating(database_url)
    yield made
    made.ledger.close()


def test_all_leases_of_a_runner_are_renewed_in_one_statement(
    beating: Beating, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    original = Statements.heartbeat_leases

    async def counted(self: Statements, c: Any, leases: Sequence[LeaseKey], *more: Any) -> Any:
        sent.append(len(leases))
        return await original(self, c, leases, *more)

    monkeypatch.setattr(Statements, "heartbeat_leases", counted)
    scopes = [f"s{number}" for number in range(20)]
    made = beating.hold(*scopes, length=60)  # none is due by itself, however long this takes
    before = {one.token: one.deadline for one in made}
    with beating.beating() as heartbeats:
        heartbeats.renew_now()
        until("all are renewed", lambda: beating.renewed(60) == set(scopes))
        until("deadlines moved", lambda: all(x.deadline > before[x.token] for x in made))
    assert sent[0] == 20
    assert beating.extended.keys() == {str(one.token) for one in made}
    assert not any(beating.told.values())


def test_a_lease_whose_outcome_is_being_or_was_written_is_not_lost(beating: Beating) -> None:
    """It is committed, and the reply is under way. The finisher looks for it itself."""
    ended, written, lost = beating.hold("ended", "written", "lost", length=60)
    ended.ended = True
    beating.ledger.values(
        "UPDATE executions SET status = 'SUCCESS', finished_at = now(), duration_ms = 1"
        " WHERE scope_id = 'written'"
    )
    beating.ledger.values(
        "UPDATE executions SET status = 'FAILED', finished_at = now(), error_code = 'exception',"
        " lease_token = NULL WHERE scope_id <> 'written'"
    )
    with beating.beating() as heartbeats, capture_logs() as logs:
        heartbeats.renew_now()
        until("the third one is lost", lambda: beating.told["lost"])
        until("the next round waits", lambda: ended.next_beat > 0 and written.next_beat > 0)
    assert [x["event"] for x in logs] == ["lease_lost"]
    assert beating.leases.all() == [ended, written]
    assert lost.held is False
    assert not beating.told["ended"] + beating.told["written"]


@pytest.mark.long
def test_a_new_lease_wakes_the_thread_only_if_it_is_due_before_the_next_step(
    beating: Beating,
) -> None:
    with beating.beating() as heartbeats:
        until("it sleeps", lambda: heartbeats._steps_at < NEVER)
        with mock.patch.object(heartbeats, "wake") as wake:
            heartbeats.added(beating.hold("long", length=60))
            assert not wake.called
        heartbeats.added(beating.hold("short", length=3))
        until("it is renewed", lambda: beating.renewed() == {"short"})


def test_a_busy_row_is_not_a_lost_one(beating: Beating) -> None:
    busy, free = beating.hold("busy", "free", length=60)
    deadline, other_deadline = busy.deadline, free.deadline
    with psycopg.connect(beating.url) as other, beating.beating() as heartbeats:
        other.execute("SELECT FROM cronledger.executions WHERE scope_id = 'busy' FOR UPDATE")
        heartbeats.renew_now()
        until("the free one is renewed", lambda: free.deadline > other_deadline)
        assert busy.held
        assert busy.deadline == deadline
        other.rollback()
        until("the busy one is tried again", lambda: busy.deadline > deadline)
    assert not any(beating.told.values())
    assert beating.leases.lost == 0


def test_another_holder_another_end_and_a_missing_row_are_lost_leases(beating: Beating) -> None:
    changes = {
        "stolen": "UPDATE cronledger.executions SET lease_token = gen_random_uuid()",
        "swept": "UPDATE cronledger.executions SET status = 'FAILED', duration_ms = 0,"
        " error_code = 'stale_timeout', finished_at = now()",
        "dropped": "DELETE FROM cronledger.executions",
    }
    *lost, kept = beating.hold(*changes, "kept", length=60)
    for scope, statement in changes.items():
        beating.ledger.values(f"{statement} WHERE scope_id = '{scope}'")
    with capture_logs() as logs, beating.beating() as heartbeats:
        heartbeats.renew_now()
        until("all are told", lambda: all(beating.told[scope] for scope in changes))
    assert beating.told == {key: ["lease_lost"] for key in changes} | {"kept": []}
    assert {(one.held, one.usable) for one in lost} == {(False, False)}
    assert (kept.held, kept.usable) == (True, True)
    assert beating.leases.lost == 3
    assert {x["scope"] for x in logs if x["event"] == "lease_lost"} == changes.keys()


def test_a_cancel_is_told_with_the_heartbeat_though_the_row_is_busy(beating: Beating) -> None:
    beating.hold("free", "busy", length=60)
    beating.ledger.values("UPDATE cronledger.executions SET cancel_requested_at = now()")
    with psycopg.connect(beating.url) as other, beating.beating() as heartbeats:
        other.execute("SELECT FROM cronledger.executions WHERE scope_id = 'busy' FOR UPDATE")
        heartbeats.renew_now()
        until("both are told", lambda: all(beating.told.values()))
    assert {why for told in beating.told.values() for why in told} == {"cancelled"}
    assert len(beating.leases) == 2  # they are held until their ends are written


async def test_the_next_step_is_at_the_deadline_while_a_round_hangs() -> None:
    one, _ = lease(sent=time.monotonic(), length=Heartbeats.IDLE)
    one.next_beat = 0.0  # it is due, and waits for the round
    heartbeats = Heartbeats(Access("postgresql://"), Statements(), held(one))
    heartbeats._busy = asyncio.create_task(asyncio.sleep(600))
    before = time.monotonic()
    assert heartbeats.step() <= one.deadline - before
    heartbeats._busy.cancel()


@pytest.mark.long
def test_a_round_that_hangs_is_given_up_and_heartbeats_go_on(beating: Beating) -> None:
    """Also those of an expired lease, whose row is kept until the handler has ended."""
    with Proxy(beating.url) as proxy, capture_logs() as logs:
        with beating.beating(proxy.dsn) as heartbeats:
            (one,) = beating.hold("hung")
            heartbeats.wake()
            until("it is renewed", beating.renewed)
            proxy.black_hole()
            until("it is told", lambda: beating.told["hung"])
            until("a hanging round is given up", lambda: _events(logs, "heartbeats_failed"))
            proxy.heal()
            until("heartbeats go on", lambda: _events(logs, "heartbeats_resumed"))
        assert beating.told["hung"] == ["lease_lost"]
        assert one.stopped
        assert not one.usable


def _events(logs: Any, name: str) -> list[Any]:
    return [x for x in logs if x["event"] == name]


def test_closing_does_not_wait_for_a_hanging_connection(beating: Beating) -> None:
    with Proxy(beating.url) as proxy:
        with beating.beating(proxy.dsn) as heartbeats:
            beating.hold("hung", length=60)
            heartbeats.renew_now()
            until("it is connected", lambda: beating.extended)
            proxy.black_hole()
            heartbeats.renew_now()
            asked_at = time.monotonic()
        assert time.monotonic() - asked_at < 15


@pytest.mark.long
async def test_a_defect_does_not_end_the_thread(
    beating: Beating, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, defects = Statements.heartbeat_leases, [RuntimeError("a defect"), ValueError("two")]

    async def broken(self: Statements, c: Any, leases: Sequence[LeaseKey], *more: Any) -> Any:
        if defects:
            raise defects.pop()
        return await original(self, c, leases, *more)

    monkeypatch.setattr(Statements, "heartbeat_leases", broken)
    beating.hold("a")
    with beating.beating() as heartbeats:
        heartbeats.renew_now()
        await asyncio.to_thread(until, "it goes on", lambda: beating.renewed() == {"a"})
