"""Each single call that somebody may make on the ledger, as a rule, and the model's word on it."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule
from psycopg.types.json import Jsonb

from cronledger.engine.claiming.dispatcher import REARMED_SECONDS
from cronledger.engine.lease import Lease
from cronledger.ledger.rows import LeaseKey
from cronledger.ledger.transactions import step_transaction
from cronledger.rules import outcome
from cronledger.rules.outcome import Outcome
from tests.db.support.engine import FAILURE, Runner
from tests.db.support.ledger_bench import Bound, picks, policies, replicas
from tests.db.support.model_of_gates import Skipped
from tests.db.support.model_of_rows import EPOCH, HOSTS, PERIOD, Pause, Row

REPLICA, WORKER = ("python",), ("external",)

CALLS = {
    "heartbeat": "SELECT heartbeat(%s, %s)",
    "finish": "SELECT finish(%s, %s)",
    "covers": "SELECT finish(%s, %s, NULL, {mark}::bigint)",
    "fail": "SELECT fail(%s, %s, 'no_good', 'it broke')",
    "final": "SELECT fail(%s, %s, 'no_good', 'it broke', final => true)",
    "release": "SELECT release(%s, %s)",
    "not_ready": "SELECT not_ready(%s, %s, '40 s', 'no file')",
}

keys = st.sampled_from([None, "k", "l"])
marks = st.sampled_from([None, 1, 2, 3, 5, 8])


class Rules(Bound):
    """Two replicas, two workers in another language, an operator, and time."""

    # -- jobs --------------------------------------------------------------------------------------

    @rule(pick=picks, change=st.data())
    def edit(self, pick: int, change: Any) -> None:
        self.take_up_pauses()
        name = self.pick_job(pick)
        old = self.model.jobs[name].policy
        new = replace(
            change.draw(policies()), handler=old.handler, schedule=old.schedule,
            excluded=self.excluded, requires=old.requires, after=old.after, hosts=old.hosts,
        )  # fmt: skip
        if old.after is not None:
            new = replace(new, calendar=old.calendar)
        self.change(name, new)

    @rule(excluded=st.booleans())
    def edit_calendar(self, excluded: bool) -> None:
        self.take_up_pauses()
        self.set_calendar(excluded=excluded)
        for name, known in self.model.jobs.items():
            self.read_revision(name, replace(known.policy, excluded=excluded))

    @rule(pick=picks, first=st.integers(0, 4), more=st.sampled_from([0, 0, 3]), one=st.booleans())
    def skip(self, pick: int, first: int, more: int, one: bool) -> None:
        """Skip a plan_time, or four, of one scope or of all, from the next one on."""
        name = self.pick_job(pick)
        known, scope = self.model.jobs[name], "one" if one else None
        start = self.model.now - (self.model.now - EPOCH) % PERIOD + (1 + first) * PERIOD
        end = start + more * PERIOD
        if known.retired or any(
            None in (scope, of) or of == scope
            for of, begin, last in known.skips.values() if begin <= end and last >= start
        ):  # fmt: skip
            return
        id = self.ledger.one(
            "SELECT skip(%s, %s, 'reason', %s, %s, %s)",
            name, start, end, known.policy.kind if one else None, scope,
        )  # fmt: skip
        known.skips[id] = scope, start, end

    @rule(pick=picks)
    def unskip(self, pick: int) -> None:
        """Withdraw the newest planned skip, unless planning has reached some of it."""
        known = self.model.jobs[self.pick_job(pick)]
        if not known.skips:
            return
        id, (_, start, _) = max(known.skips.items())
        if self.model.now < start:
            assert self.ledger.one("SELECT unskip(%s)", id) == "withdrawn"
            del known.skips[id]

    @rule(pick=picks, until=st.sampled_from([None, 45, 200]))
    def pause(self, pick: int, until: int | None) -> None:
        self.take_up_pauses()
        name = self.pick_job(pick)
        known, now = self.model.jobs[name], self.model.now
        ends = None if until is None else now + timedelta(seconds=until)
        in_force = known.paused_at is not None and (
            known.paused_until is None or known.paused_until > now
        )
        assert self.ledger.one("SELECT pause(%s, until => %s)", name, ends) is not in_force
        own = [p for p in self.model.pauses_of(name) if p.job == name]
        for pause in own:
            pause.until = ends
        if not own:
            id = self.ledger.one("SELECT max(id) FROM pauses")
            self.model.pauses[id] = Pause(name, now, ends, begun=True)
        self.pauses_are_taken_up()

    @rule(pick=picks)
    def resume(self, pick: int) -> None:
        """Refused while a pause of all jobs holds it."""
        self.take_up_pauses()
        name = self.pick_job(pick)
        paused = self.model.jobs[name].paused_at is not None
        if any(p.job is None for p in self.model.pauses_of(name)):
            with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="holds it"):
                self.ledger.one("SELECT resume(%s)", name)
            return
        assert self.ledger.one("SELECT resume(%s)", name) is paused
        for pause in self.model.pauses.values():
            pause.ended = pause.ended or (pause.job == name and pause.begun)
        self.pauses_are_taken_up()
        assert self.model.jobs[name].paused_at is None

    @rule(
        pick=st.none() | picks, begins=st.sampled_from([None, 5, 61, 200]),
        length=st.sampled_from([None, 20, 61, 200]),
    )  # fmt: skip
    def plan_pause(self, pick: int | None, begins: int | None, length: int | None) -> None:
        """Of one job or of all, from now or later."""
        name = None if pick is None else self.pick_job(pick)
        start = self.model.now + timedelta(seconds=begins or 0)
        until = None if length is None else start + timedelta(seconds=length)
        id = self.ledger.one(
            "SELECT plan_pause('freeze', %s, %s, job => %s)",
            None if begins is None else start, until, name,
        )  # fmt: skip
        self.model.pauses[id] = Pause(name, start, until)

    def pick_pause(self, pick: int) -> int | None:
        pauses = sorted(self.model.pauses)
        return pauses[-1 - pick % len(pauses)] if pauses else None

    @rule(pick=picks, begins=st.sampled_from([5, 61]), length=st.sampled_from([20, 200]))
    def change_pause(self, pick: int, begins: int, length: int) -> None:
        """Only one that is still to come."""
        id = self.pick_pause(pick)
        if id is None:
            return
        pause, start = self.model.pauses[id], self.model.now + timedelta(seconds=begins)
        until = start + timedelta(seconds=length)
        try:
            changed = self.ledger.one("SELECT change_pause(%s, %s, %s)", id, start, until)
        except psycopg.errors.ObjectNotInPrerequisiteState:
            assert pause.begins <= self.model.now or pause.ended
            return
        assert pause.begins > self.model.now and not pause.ended
        assert changed is ((pause.begins, pause.until) != (start, until))
        pause.begins, pause.until = start, until

    @rule(pick=picks)
    def end_pause(self, pick: int) -> None:
        """End one that is in force, or withdraw one that is still to come."""
        id = self.pick_pause(pick)
        if id is not None:
            pause = self.model.pauses[id]
            open = not pause.is_over(self.model.now)
            assert self.ledger.one("SELECT end_pause(%s)", id) is open
            pause.ended = True
            self.take_up_pauses()

    def resume_all(self) -> None:
        """End all pauses, also those to come."""
        for number in range(len(self.model.pauses)):
            self.end_pause(number)
        for number in range(len(self.model.jobs)):
            self.resume(number)

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
            kind = self.model.jobs[where[0]].policy.kind
            made = self.ledger.trigger(*where, force=force, scope_kind=kind)
        except psycopg.errors.ObjectNotInPrerequisiteState:
            assert not allowed
            return
        assert allowed
        self.model.triggered(self.find()[made], None)

    @rule(
        pick=picks, first=st.integers(0, 4), more=st.sampled_from([0, 2]),
        reprocess=st.sampled_from(["none", "failed", "all"]),
    )  # fmt: skip
    def backfill(self, pick: int, first: int, more: int, reprocess: str) -> None:
        """Past plan_times of one scope run, and some of them again."""
        name, scope = where = self.pick_scope(pick)
        policy = self.model.jobs[name].policy
        if policy.gate is not None and policy.calendar and policy.excluded:
            return  # its gate would cover all plan_times of the excluded days
        last = EPOCH + ((self.model.now - EPOCH) // PERIOD - first) * PERIOD
        asked = [last - n * PERIOD for n in range(more, -1, -1)]
        reached = self.ledger.one(
            "SELECT planned_through FROM schedules WHERE (job_name, scope_id) = (%s, %s)", *where
        )
        allowed = self.model.may_backfill(where, asked, reached)
        try:
            ((made, retried),) = self.ledger.values(
                "SELECT made, retried FROM backfill(%s, %s, %s, %s, %s)",
                name, asked, policy.kind, scope, reprocess,
            )  # fmt: skip
        except (
            psycopg.errors.ObjectNotInPrerequisiteState, psycopg.errors.InvalidParameterValue,
        ):  # fmt: skip
            assert not allowed
            return
        assert allowed
        assert self.model.backfilled(where, asked, reprocess, self.find()) == (made, retried)
        self.bench.reached["backfilled"] += made

    # -- replicas ----------------------------------------------------------------------------------

    @rule(number=replicas, steals=st.booleans(), slots=st.sampled_from([100, 100, 1, 2]))
    def claim(self, number: int, steals: bool, slots: int) -> None:
        replica = self.bench.replicas[number]
        replica.slots = len(replica.held) + slots
        before = len(replica.held)
        due = self.run(replica.poll()).due
        self.model.checked_in[HOSTS[replica.name]] = self.model.now
        overdue = self.due_schedules(replica)
        if steals:
            self.run(replica.steal())
        self.run(replica.settle())
        if replica.delay <= REARMED_SECONDS:  # a pause has begun or ended
            self.run(replica.settle())
        started = replica.held[before:]
        self.pauses_are_taken_up()
        taken = self.model.claimed(self.find(), replica.name, REPLICA, steals=steals, most=slots)
        # A poll that finds nothing due hides nothing that a claim would start or plan.
        if overdue or any(s.claimed.how != "stolen" for s in started):
            assert due is not None and due <= self.model.now
        # What it starts is what the ledger says it has.
        assert {s.claimed.token for s in started} == {row.token for row in taken}
        for start in started:
            row = self.model.rows[start.claimed.id]
            assert (start.claimed.attempt, start.claimed.max_attempts) == (
                row.attempt, row.max_attempts,
            )  # fmt: skip
            assert start.claimed.payload == row.payload
        if len(started) < slots:
            self.model.rested(REPLICA, replica.name, steals=steals)
            assert not (due := self.due_schedules(replica)), due

    def due_schedules(self, replica: Runner) -> list[Any]:
        """Those that the replica has to claim."""
        return self.ledger.values(
            "SELECT to_jsonb(s) FROM schedules s WHERE next_due_at <= db_now()"
            " AND (scope_kind, scope_id) NOT IN (SELECT 'host', unnest(%s::text[]))",
            [host for name, host in HOSTS.items() if name != replica.name],
        )

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
            [
                "value", "mark", "nothing", "error", "retry", "discard", "cancelled", "back",
                "not_ready",
            ]
        ),
        mark=st.integers(1, 9),
    )  # fmt: skip
    def finish(self, number: int, pick: int, how: str, mark: int) -> None:
        replica = self.bench.replicas[number]
        if not replica.held:
            return
        self.end(replica, replica.held[pick % len(replica.held)], how, mark)

    def end(self, replica: Runner, start: Lease, how: str, mark: int) -> None:
        """The replica writes how this attempt ended, whoever has the row by now."""
        row = self.model.rows[start.claimed.id]
        back = how == "back" and start.job.reentrant
        ended, following = _outcome(how, mark), self.following(row)
        self.run(replica.finish(start, ended, release=back))
        if self.model.holds(row, start.claimed.token):
            if back:
                self.model.released(row)
            elif ended.postpone is not None:
                self.postpone(row, ended.postpone, following)
            else:
                wait = timedelta(seconds=5) if how == "retry" else start.job.retry_backoff[0]
                self.model.ended(
                    row, ended.status.value, None if ended.final else wait, ended.error_code
                )
                if ended.covers:
                    row = self.model.rows[row.id]
                    self.model.put(replace(row, watermark=ended.watermark))
        self.after_end(row)

    def following(self, row: Row) -> datetime | None:
        """The next plan_time of the scope."""
        found: datetime | None = self.ledger.one(
            "SELECT next_plan_time FROM schedules WHERE (job_name, scope_id) = (%s, %s)", *row.where
        )
        return found

    def postpone(self, row: Row, wait: timedelta, following: datetime | None) -> None:
        self.bench.reached["not ready"] += self.model.postponed(row, wait, following)

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
        self.model.checked_in[HOSTS[replica.name]] = self.model.now
        self.model.swept()
        self.take_up_pauses()
        for known in self.model.jobs.values():
            assert known.paused_until is None or known.paused_until > self.model.now
        if fully:
            found = self.find()
            for name, known in self.model.jobs.items():
                for scope in known.scopes:
                    self.model.settled((name, scope), found)

    # -- gates -------------------------------------------------------------------------------------

    @rule(number=replicas)
    def check_gates(self, number: int) -> None:
        self.run(self.bench.replicas[number].gates.check_all())
        skips = [
            Skipped((name, scope), *more)
            for name, scope, *more in self.ledger.values(
                "SELECT job_name, scope_id, from_plan_time, through_plan_time, reason, revision"
                " FROM skips"
            )
        ]
        woken = {
            (name, scope): through for name, scope, through in self.ledger.values(
                "SELECT job_name, scope_id, planned_through FROM schedules WHERE woken"
            )
        }  # fmt: skip
        opened, expired = self.model.gates_checked(self.find(), skips, woken)
        for row in expired:
            if row.trigger == "schedule":
                del self.before[row.id]
        self.bench.reached["a gate opens"] += len(opened)
        self.bench.reached["the wait of a gate ends"] += len(expired)

    # -- the worker in another language ------------------------------------------------------------

    @rule(worker=st.sampled_from(["w1", "w2"]), n=st.sampled_from([1, 2, 50]))
    def claim_next(self, worker: str, n: int) -> None:
        since = self.model.seen(worker)
        rows = self.ledger.values(
            "SELECT id, lease_token, attempt FROM claim_next('default', %s, %s)", worker, n
        )
        self.pauses_are_taken_up()
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
            self.model.rested(WORKER, worker, steals=False)

    @rule(pick=picks, old=st.sampled_from([0, 0, 1]), call=st.sampled_from(
        [
            "heartbeat", "heartbeat", "finish", "finish", "covers", "fail", "final", "release",
            "not_ready",
        ]
    ), mark=st.integers(1, 9))  # fmt: skip
    def write(self, pick: int, old: int, call: str, mark: int) -> None:
        """Whoever has, or had, the token writes."""
        able = [id for id, tokens in self.model.tokens.items() if len(tokens) > old]
        if not able:
            return
        row = self.model.rows[able[-1 - pick % len(able)]]
        self.write_as(row, self.model.tokens[row.id][-1 - old], call, mark)

    def write_as(self, row: Row, token: UUID, call: str, mark: int) -> None:
        """One of the worker's functions under this token, whoever has the row by now."""
        following = self.following(row)
        answer = self.ledger.one(CALLS[call].format(mark=mark), row.id, token)
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
            self.model.released(row)
        elif call == "not_ready":
            self.postpone(row, timedelta(seconds=40), following)
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
            self.cancel_row(row)

    def cancel_row(self, row: Row) -> None:
        assert self.ledger.one("SELECT cancel(%s)", row.id) == self.model.cancelled(row)

    @rule(pick=picks, force=st.booleans())
    def retry(self, pick: int, force: bool) -> None:
        row = self.pick_row(pick)
        if row is not None:
            self.retry_row(row, force)

    def retry_row(self, row: Row, force: bool) -> None:
        expected = self.model.retried(row, force)
        try:
            answer = self.ledger.one("SELECT retry(%s, force => %s)", row.id, force)
        except psycopg.errors.ObjectNotInPrerequisiteState:
            assert expected is None
            return
        assert answer == expected


def _outcome(how: str, mark: int) -> Outcome:
    ends = {
        "value": outcome.success(None),
        "mark": outcome.success(outcome.Result(None, watermark=mark)),
        "nothing": outcome.success(outcome.Result(None, watermark=None)),
        "retry": outcome.failure(outcome.Retry("5s")),
        "discard": outcome.failure(outcome.Discard("no_use")),
        "cancelled": outcome.cancelled(),
        "not_ready": outcome.failure(outcome.NotReady("40s")),
    }
    return ends.get(how, FAILURE)
