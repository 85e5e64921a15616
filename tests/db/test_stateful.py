"""Random calls on one ledger, in any order, against a model of it in plain Python.

Two replicas (the production claimer, finisher and sweeper, driven by hand), a worker in another
language (SQL functions alone) and an operator share a database whose clock stands still until a
rule moves it. After every call each execution is compared with the model, to the column and the
microsecond, and the laws are looked at; in the end everything that waits is made to run, and
`violations` and verify must have nothing to say.

`make test` runs the same few examples each time. CRONLEDGER_STATEFUL=n runs n of them at random,
with more steps each; a failure prints the calls that lead to it.
"""

import asyncio
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from psycopg.types.json import Jsonb
from structlog.testing import capture_logs

from cronledger.audit.verify import verify
from cronledger.ledger.database import step_transaction
from cronledger.ledger.rows import LeaseKey
from cronledger.rules import outcome
from cronledger.rules.outcome import Outcome
from tests.db.engine import FUNCTION, Ledger, Runner, runners
from tests.db.model_of_ledger import COLUMNS, EPOCH, PERIOD, Known, Model, Policy, Row, Rows
from tests.travel import Travel

START = datetime(2030, 1, 7, 12, 0, 30, 500_000, tzinfo=UTC)
TICK = timedelta(milliseconds=1)
REPLICA, WORKER = ("python",), ("external",)
SEARCHED = int(os.environ.get("CRONLEDGER_STATEFUL", "0"))

_STOPPED = """
CREATE OR REPLACE FUNCTION cronledger.db_now() RETURNS timestamptz LANGUAGE sql STABLE
    AS $$ SELECT '{at}'::timestamptz + (SELECT t.ahead FROM cronledger.time_travel t) $$;
CREATE OR REPLACE FUNCTION cronledger.db_clock() RETURNS timestamptz LANGUAGE sql VOLATILE
    AS $$ SELECT '{at}'::timestamptz + (SELECT t.ahead FROM cronledger.time_travel t) $$;
SELECT * FROM cronledger.maintain_partitions();
"""


class Bench:
    """What all examples share: one database, its stopped clock, two replicas."""

    def __init__(self, url: str) -> None:
        self.travel = Travel(url)
        self.ledger = Ledger(url, self.travel)
        self.ledger.rows(_STOPPED.format(at=START.isoformat()))
        self.loop = asyncio.Runner()
        self.replicas = [Runner(url, name) for name in ("r1", "r2")]
        for replica in self.replicas:
            self.loop.run(replica.open())
        self.url = url
        self.examples = 0

    def clear(self) -> None:
        """Nothing is left of the example before."""
        self.examples += 1
        for replica in self.replicas:
            replica.crash()
        with psycopg.connect(self.url, options="-csearch_path=cronledger") as c:
            c.execute("SET session_replication_role = replica")
            for table in ("executions", "skips", "schedules", "job_revisions", "jobs"):
                c.execute(f"DELETE FROM {table}".encode())
            c.execute("DELETE FROM runners WHERE version = 'external'")
            c.execute("UPDATE time_travel SET ahead = '0'")

    def close(self) -> None:
        for replica in self.replicas:
            self.loop.run(replica.close())
        self.loop.close()
        self.ledger.close()
        self.travel.close()


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    overlap = draw(st.sampled_from(["skip", "wait", "allow", "replace"]))
    catch_up = draw(st.sampled_from(["latest", "skip", "all"]))
    return Policy(
        draw(st.sampled_from(["python", "python", "external"])),
        draw(st.sampled_from([None, None, "@every 60s"])),
        overlap,
        "latest" if overlap == "skip" and catch_up == "all" else catch_up,
        draw(st.booleans()),
        draw(st.integers(1, 3)),
        timedelta(seconds=draw(st.sampled_from([0, 30]))),
        timedelta(seconds=draw(st.sampled_from([30, 60]))),
        draw(st.sampled_from([None, None, 1, 2])),
    )


picks = st.integers(0, 11)
replicas = st.integers(0, 1)
keys = st.sampled_from([None, "k", "l"])
marks = st.sampled_from([None, 1, 2, 3, 5, 8])


class Machine(RuleBasedStateMachine):
    """One example."""

    bench: ClassVar[Bench]

    def __init__(self) -> None:
        super().__init__()
        self.bench.clear()
        self.ledger = self.bench.ledger
        self.model = Model()
        self.model.now = START
        self.pushes = 0
        self.before: Rows = {}

    def teardown(self) -> None:
        if self.model.jobs and sys.exc_info()[0] is None:  # else it has failed already
            self.settle_all()

    # -- what rules need ---------------------------------------------------------------------------

    def find(self) -> Rows:
        return {row[0]: Row(*row) for row in self.ledger.rows(f"SELECT {COLUMNS} FROM executions")}

    def pass_time(self, by: timedelta) -> None:
        self.ledger.rows("UPDATE time_travel SET ahead = ahead + %s", by)
        self.model.now += by

    def run(self, step: Any) -> Any:
        return self.bench.loop.run(step)

    def pick_row(self, pick: int) -> Row | None:
        rows = sorted(self.model.rows.values(), key=lambda r: r.id)
        return rows[-1 - pick % len(rows)] if rows else None

    def pick_scope(self, pick: int) -> tuple[str, str]:
        scopes = [(name, s) for name, job in self.model.jobs.items() for s in job.scopes]
        return scopes[pick % len(scopes)]

    def read_revision(self, name: str, policy: Policy) -> None:
        """After a write to a job: its newest revision began now, unless nothing changed."""
        known = self.model.jobs[name]
        known.policy = policy
        number, since = self.ledger.one(
            "SELECT revision, effective_from FROM job_revisions WHERE job_name = %s"
            " ORDER BY revision DESC LIMIT 1", name,
        )  # fmt: skip
        if not known.history or number != known.history[-1][0]:
            known.history.append((number, since, policy))

    # -- jobs --------------------------------------------------------------------------------------

    @initialize(drawn=st.lists(st.tuples(policies(), st.integers(1, 2)), min_size=1, max_size=3))
    def declare(self, drawn: list[tuple[Policy, int]]) -> None:
        for letter, (policy, count) in zip("abc", drawn, strict=False):
            # A name of its own for each example: replicas remember revisions by name.
            name = f"{letter}{self.bench.examples:06}"
            scopes = ("one", "two")[:count]
            target = {"function": FUNCTION} if policy.handler == "python" else {}
            self.ledger.job(
                name, target=target, scope_kind="shard", scopes=list(scopes), **policy.columns()
            )
            self.model.jobs[name] = Known(policy, scopes)
            self.read_revision(name, policy)

    def pick_job(self, pick: int) -> str:
        return sorted(self.model.jobs)[pick % len(self.model.jobs)]

    @rule(pick=picks, change=st.data())
    def edit(self, pick: int, change: Any) -> None:
        name = self.pick_job(pick)
        old = self.model.jobs[name].policy
        new = replace(change.draw(policies()), handler=old.handler, schedule=old.schedule)
        self.ledger.edit(name, **new.columns())
        self.read_revision(name, new)

    @rule(pick=picks, until=st.sampled_from([None, 45, 200]))
    def pause(self, pick: int, until: int | None) -> None:
        name = self.pick_job(pick)
        known, now = self.model.jobs[name], self.model.now
        ends = None if until is None else now + timedelta(seconds=until)
        in_force = known.paused_at is not None and (
            known.paused_until is None or known.paused_until > now
        )
        assert self.ledger.one("SELECT pause(%s, until => %s)", name, ends) is not in_force
        known.paused_at, known.paused_until = (known.paused_at if in_force else now), ends
        self.read_revision(name, known.policy)

    @rule(pick=picks)
    def resume(self, pick: int) -> None:
        name = self.pick_job(pick)
        known = self.model.jobs[name]
        assert self.ledger.one("SELECT resume(%s)", name) is (known.paused_at is not None)
        known.paused_at = known.paused_until = None
        self.read_revision(name, known.policy)

    # -- time --------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([5, 20, 31, 61, 61, 130, 600]))
    def wait(self, seconds: int) -> None:
        self.pass_time(timedelta(seconds=seconds))

    # -- pushes ------------------------------------------------------------------------------------

    @rule(pick=picks, key=keys, watermark=marks, with_payload=st.booleans())
    def enqueue(
        self, pick: int, key: str | None, watermark: int | None, with_payload: bool
    ) -> None:
        where = self.pick_scope(pick)
        self.pushes += 1
        payload = self.pushes if with_payload else None
        answer = self.ledger.one(
            "SELECT enqueue(%s, %s, %s, %s, %s)", *where, watermark,
            None if payload is None else Jsonb(payload), key,
        )  # fmt: skip
        self.model.enqueued(where, key, watermark, payload, answer, self.find())

    @rule(pick=picks, force=st.booleans())
    def trigger(self, pick: int, force: bool) -> None:
        where = self.pick_scope(pick)
        allowed = self.model.may_trigger(*where, force)
        try:
            made = self.ledger.trigger(*where, force=force)
        except psycopg.errors.ObjectNotInPrerequisiteState:
            assert not allowed
            return
        assert allowed
        self.model.triggered(self.find()[made], None)

    # -- replicas ----------------------------------------------------------------------------------

    @rule(number=replicas, steals=st.booleans(), slots=st.sampled_from([100, 100, 1, 2]))
    def claim(self, number: int, steals: bool, slots: int) -> None:
        replica = self.bench.replicas[number]
        replica.slots = len(replica.held) + slots
        before = len(replica.held)
        if steals:
            self.run(replica.steal())
        self.run(replica.settle())
        started = replica.held[before:]
        taken = self.model.claimed(self.find(), replica.name, REPLICA, steals=steals, most=slots)
        # What it starts is what the ledger says it has.
        assert {s.claimed.token for s in started} == {row.token for row in taken}
        for start in started:
            row = self.model.rows[start.claimed.id]
            assert (start.claimed.attempt, start.claimed.max_attempts) == (
                row.attempt, row.max_attempts,
            )  # fmt: skip
            assert start.claimed.payload == row.payload
        if len(started) < slots:
            self.model.rested(REPLICA, steals=steals)
            self.nothing_is_due()

    def nothing_is_due(self) -> None:
        due = self.ledger.rows("SELECT to_jsonb(s) FROM schedules s WHERE next_due_at <= db_now()")
        assert not due, due

    @rule(number=replicas)
    def heartbeat(self, number: int) -> None:
        replica = self.bench.replicas[number]
        if not replica.held:
            return
        beats = [
            LeaseKey(s.claimed.key, s.claimed.token, s.job.stale_timeout) for s in replica.held
        ]
        renewed = dict(self.run(self._beat(replica, beats)))
        for start in replica.held:
            row, token = self.model.rows[start.claimed.id], start.claimed.token
            if not self.model.holds(row, token):
                assert token not in renewed
                continue
            assert renewed[token] is row.ends
            self.model.put(replace(row, stale_after=self.model.now + start.job.stale_timeout))

    @staticmethod
    async def _beat(replica: Runner, beats: list[LeaseKey]) -> list[tuple[UUID, bool]]:
        async with replica.pool.connection() as c:
            async with step_transaction(c):
                answer = await replica.statements.heartbeat_leases(c, beats)
            return [(token, ends) for token, ends in await answer.fetchall()]

    @rule(
        number=replicas, pick=picks,
        how=st.sampled_from(
            ["value", "mark", "nothing", "error", "retry", "discard", "cancelled", "back"]
        ),
        mark=st.integers(1, 9),
    )  # fmt: skip
    def finish(self, number: int, pick: int, how: str, mark: int) -> None:
        replica = self.bench.replicas[number]
        if not replica.held:
            return
        start = replica.held[pick % len(replica.held)]
        row = self.model.rows[start.claimed.id]
        back = how == "back" and start.job.reentrant
        ended = _outcome(how, mark)
        self.run(replica.finish(start, ended, give_back=back))
        if self.model.holds(row, start.claimed.token):
            if back:
                self.model.given_back(row)
            else:
                wait = timedelta(seconds=5) if how == "retry" else start.job.retry_backoff[0]
                self.model.ended(
                    row, ended.status.value, None if ended.final else wait, ended.error_code
                )
                if ended.covers:
                    row = self.model.rows[row.id]
                    self.model.put(replace(row, watermark=ended.watermark))
        self.after_end(row)

    def after_end(self, row: Row) -> None:
        found = self.find()
        self.model.settled(row.where, found)

    @rule(number=replicas)
    def crash(self, number: int) -> None:
        self.bench.replicas[number].crash()

    @rule(number=replicas, fully=st.booleans())
    def sweep(self, number: int, fully: bool) -> None:
        replica = self.bench.replicas[number]
        self.run(replica.repair() if fully else replica.sweep())
        self.model.swept()
        for name, known in self.model.jobs.items():
            if known.paused_until is not None and known.paused_until <= self.model.now:
                known.paused_at = known.paused_until = None
                self.read_revision(name, known.policy)
        if fully:
            found = self.find()
            for name, known in self.model.jobs.items():
                for scope in known.scopes:
                    self.model.settled((name, scope), found)

    # -- the worker in another language ------------------------------------------------------------

    @rule(worker=st.sampled_from(["w1", "w2"]), n=st.sampled_from([1, 2, 50]))
    def claim_next(self, worker: str, n: int) -> None:
        since = self.model.seen(worker)
        rows = self.ledger.rows(
            "SELECT id, lease_token, attempt FROM claim_next('default', %s, %s)", worker, n
        )
        stealable = {
            row.id
            for row in self.model.rows.values()
            if self.model.now - self.model.policy(row).lease >= since
        }
        stolen = {r.id for r in self.model.rows.values() if r.status == "RUNNING"} & {
            id for id, _, _ in rows
        }
        assert stolen <= stealable
        taken = self.model.claimed(self.find(), worker, WORKER, steals=True, most=n)
        assert {(r.id, r.token, r.attempt) for r in taken} == set(rows)
        if not rows:
            self.model.rested(WORKER, steals=False)

    @rule(pick=picks, old=st.sampled_from([0, 0, 1]), call=st.sampled_from(
        ["heartbeat", "heartbeat", "finish", "finish", "covers", "fail", "final", "release"]
    ), mark=st.integers(1, 9))  # fmt: skip
    def write(self, pick: int, old: int, call: str, mark: int) -> None:
        """Whoever has, or had, the token writes."""
        able = [id for id, tokens in self.model.tokens.items() if len(tokens) > old]
        if not able:
            return
        row = self.model.rows[able[-1 - pick % len(able)]]
        token = self.model.tokens[row.id][-1 - old]
        answer = self.ledger.one(_CALLS[call].format(mark=mark), row.id, token)
        if not self.model.holds(row, token):
            over = row.token == token and row.error_code != "stale_timeout"
            assert answer == ("already_finished" if over and call != "heartbeat" else "lost")
            return
        policy = self.model.policy(row)
        if call == "heartbeat":
            assert answer == ("cancel_requested" if row.ends else "ok")
            self.model.put(replace(row, stale_after=self.model.now + policy.lease))
            return
        assert answer == "ok"
        if call == "release":
            self.model.given_back(row)
        elif call in ("finish", "covers"):
            self.model.ended(row, "SUCCESS", None, None)
            if call == "covers":
                self.model.put(replace(self.model.rows[row.id], watermark=mark))
        else:
            status = "CANCELLED" if row.ends else "FAILED"
            self.model.ended(row, status, policy.backoff if call == "fail" else None, "no_good")
        self.after_end(row)

    # -- the operator ------------------------------------------------------------------------------

    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        row = self.pick_row(pick)
        if row is not None:
            assert self.ledger.one("SELECT cancel(%s)", row.id) == self.model.cancelled(row)

    @rule(pick=picks, force=st.booleans())
    def retry(self, pick: int, force: bool) -> None:
        row = self.pick_row(pick)
        if row is None:
            return
        expected = self.model.retried(row, force)
        try:
            answer = self.ledger.one("SELECT retry(%s, force => %s)", row.id, force)
        except psycopg.errors.ObjectNotInPrerequisiteState:
            assert expected is None
            return
        assert answer == expected

    # -- laws --------------------------------------------------------------------------------------

    @invariant()
    def the_ledger_is_as_the_model_says(self) -> None:
        found = self.find()
        assert found == self.model.rows
        for id, row in found.items():
            before = self.before.get(id)
            if before is None:
                continue
            if before.status == "SUCCESS":
                assert row == before  # I4
            assert row.attempt >= before.attempt
            assert row.plan_time == before.plan_time
        assert not self.before.keys() - found.keys()
        self.before = found
        # The next call comes later: only what one call does happens at one instant.
        self.pass_time(TICK)

    @invariant()
    def every_plan_time_is_accounted_for(self) -> None:
        """I2: up to the cursor each lies in one row or in one skip."""
        skips = self.ledger.rows(
            "SELECT job_name, scope_id, from_plan_time, through_plan_time, count FROM skips"
        )
        for name, scope, since, cursor, parked, due in self.ledger.rows(
            "SELECT job_name, scope_id, created_at, planned_through, parked, next_due_at"
            " FROM schedules"
        ):
            known = self.model.jobs[name]
            assert (parked is None) is (due is not None)
            ran = [
                r.plan_time
                for r in self.model.rows.values()
                if r.where == (name, scope) and r.trigger == "schedule"
            ]
            skipped = []
            for job, of, first, last, count in skips:
                if (job, of) == (name, scope):
                    inside = _grid(first - TICK, last)
                    assert (inside[0], inside[-1], len(inside)) == (first, last, count)
                    skipped += inside
            wanted = _grid(since, cursor) if known.policy.schedule else []
            assert sorted(ran + skipped) == wanted
            # Whatever ended re-armed what waited for it.
            assert parked != "waiting" or self.model.running(name, scope)

    @invariant()
    def dirt_is_as_the_model_says(self) -> None:
        for name, known in self.model.jobs.items():
            for scope in known.scopes:
                dirty = self.ledger.one("SELECT is_dirty(%s, %s)", name, scope)
                assert dirty is self.model.dirty((name, scope))

    def work(self, worker: str) -> int:
        """The worker claims what it can and finishes all that it has; answers how many."""
        self.claim_next(worker, 50)
        held = [r for r in self.model.rows.values() if r.runner == worker and r.status == "RUNNING"]
        for row in held:
            assert row.token is not None
            self.ledger.one("SELECT finish(%s, %s)", row.id, row.token)
            self.model.ended(row, "SUCCESS", None, None)
            self.after_end(row)
        return len(held)

    def waiting(self) -> list[Row]:
        rows = self.model.rows.values()
        return [r for r in rows if r.status == "RUNNING" or r.next_attempt_at is not None]

    # -- the end -----------------------------------------------------------------------------------

    def settle_all(self) -> None:
        """Everything resumes, and time passes: in the end nothing runs or waits."""
        for name, known in self.model.jobs.items():
            self.ledger.one("SELECT resume(%s)", name)
            known.paused_at = known.paused_until = None
            self.read_revision(name, known.policy)
        for replica in self.bench.replicas:
            replica.crash()
        for _ in range(40):
            self.pass_time(timedelta(seconds=50))
            self.sweep(0, True)
            self.claim(0, True, 100)
            while self.bench.replicas[0].held:
                self.finish(0, 0, "value", 1)
            while self.work("w1"):
                pass
            self.the_ledger_is_as_the_model_says()
            if not self.waiting():
                break
        else:
            raise AssertionError(f"it does not come to rest: {self.waiting()}")
        self.every_plan_time_is_accounted_for()
        assert not self.ledger.rows("SELECT * FROM violations")
        assert not list(verify(self.bench.url, retention=timedelta(days=10_000)))


_PHASES = [p for p in Phase if p is not Phase.explain]

_CALLS = {
    "heartbeat": "SELECT heartbeat(%s, %s)",
    "finish": "SELECT finish(%s, %s)",
    "covers": "SELECT finish(%s, %s, NULL, {mark}::bigint)",
    "fail": "SELECT fail(%s, %s, 'no_good', 'it broke')",
    "final": "SELECT fail(%s, %s, 'no_good', 'it broke', final => true)",
    "release": "SELECT release(%s, %s)",
}


def _outcome(how: str, mark: int) -> Outcome:  # noqa: PLR0911
    match how:
        case "value":
            return outcome.success(None)
        case "mark":
            return outcome.success(outcome.Result(None, watermark=mark))
        case "nothing":
            return outcome.success(outcome.Result(None, watermark=None))
        case "retry":
            return outcome.failure(outcome.Retry("5s"))
        case "discard":
            return outcome.failure(outcome.Discard("no_use"))
        case "cancelled":
            return outcome.cancelled()
        case _:
            return outcome.failure(ValueError("no"))


def _grid(after: datetime, through: datetime) -> list[datetime]:
    at = EPOCH + ((after - EPOCH) // PERIOD + 1) * PERIOD
    found = []
    while at <= through:
        found.append(at)
        at += PERIOD
    return found


@pytest.fixture
def bench(database_url: str) -> Iterator[Bench]:
    made = Bench(database_url)
    yield made
    made.close()


@pytest.mark.timeout(0 if SEARCHED else 120)
def test_i1_to_i11_whatever_is_called_the_ledger_is_as_the_model_says(bench: Bench) -> None:
    Machine.bench = bench
    with capture_logs():
        _search()


def _search() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=SEARCHED or 50,
            stateful_step_count=60 if SEARCHED else 40,
            derandomize=not SEARCHED,
            database=None,
            deadline=None,
            report_multiple_bugs=False,
            phases=_PHASES,
            suppress_health_check=list(HealthCheck),
        ),
    )


async def test_of_two_that_wait_with_one_key_the_newest_payload_runs_last(
    ledger: Ledger, database_url: str
) -> None:
    """One is given back while its successor waits: the next push belongs to the successor."""
    ledger.job(schedule=None, allow_stale_reentry=True)
    push = "SELECT enqueue('job', key => 'k', payload => %s)"
    first = ledger.one(push, Jsonb(1))
    async with runners(database_url, {}) as (one,):
        (start,) = await one.settle()
        second = ledger.one(push, Jsonb(2))
        await one.finish(start, give_back=True)
        assert ledger.one(push, Jsonb(3)) == second != first
        seen = []
        while started := await one.settle():
            seen += [s.claimed.payload for s in started]
            await one.finish(started[0])
    assert seen == [1, 3]


async def test_what_has_room_starts_though_others_of_its_job_wait_in_front(
    ledger: Ledger, database_url: str
) -> None:
    """Two of one scope are looked at first, of which one may start; the other scope has room."""
    ledger.job(
        schedule=None, max_running=2, overlap="wait", scope_kind="shard", scopes=["a", "b"]
    )  # fmt: skip
    for scope in ("a", "a", "b"):
        ledger.trigger(scope=scope)
    async with runners(database_url, {}) as (one,):
        started = await one.settle()
    assert sorted(s.claimed.key.scope_id for s in started) == ["a", "b"]
