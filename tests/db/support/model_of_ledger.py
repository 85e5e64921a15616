"""What the ledger must hold after each call, in plain Python: no SQL, no clock of its own.

`Model` is told what was called and what came back, and predicts every execution to the column and
the microsecond. What a claim may choose from is not predicted but judged: what it took had to be
free to take (I1, I3 to I8, I11), and nothing that was free may be left when it rests.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from tests.db.support.model_of_gates import Gates
from tests.db.support.model_of_rows import EPOCH, GRACE, PERIOD, Row, Rows, Scope

_WAITING = {
    "status": "PENDING", "runner": None, "token": None, "stale_after": None, "started_at": None,
}  # fmt: skip


def _entry(before: Row) -> str:
    """The entry of an attempt that another one follows."""
    if before.status == "PENDING":
        return ""
    return "n" if before.error_code == "not_ready" else "-"


class Model(Gates):
    """The ledger as it must be."""

    def claimed(
        self, found: Rows, by: str, kinds: Sequence[str], *, steals: bool, most: int = 10_000
    ) -> list[Row]:
        """A claim by `by`, after which the ledger holds `found`: each row that it took was free.

        Answers what it took. What it planned is judged by `_planned`.
        """
        taken = [row for id, row in found.items() if self._is_new_claim(row)]
        assert len(taken) <= most
        # Steals first: they take no room, and free none.
        for row in sorted(taken, key=lambda r: not self._was_running(r)):
            assert self.may_run(row, kinds, by), row
            before = self.rows.get(row.id)
            if before is None:
                self._planned(row)
                continue
            if before.status == "RUNNING":
                assert steals, (before, row)
                assert self.may_be_stolen(before, kinds, by), (before, row)
            else:
                assert self.is_free(before, kinds, by), (before, row)
            self._take(before, row, by)
        for id, row in found.items():
            before = self.rows.get(id)
            if before is None:
                assert row.gated_at or self.jobs[row.job].policy.handler == "external", row
                self._planned(row)
            elif row.ends and not before.ends and before.status == "RUNNING":  # perhaps new
                assert self.policy(row).overlap == "replace", row
                self.put(replace(before, ends=True))
            elif before.next_attempt_at is not None and row.next_attempt_at is None:
                self._given_up(before)
        return [self.rows[row.id] for row in taken]

    def _given_up(self, row: Row) -> None:
        """It was due, and does not run, because its window is processed."""
        assert self.is_processed(row), row
        pending = row.status == "PENDING"
        status, error = ("CANCELLED", "window_processed") if pending else ("FAILED", row.error_code)
        self.put(replace(row, status=status, error_code=error, next_attempt_at=None))

    def _was_running(self, row: Row) -> bool:
        return row.id in self.rows and self.rows[row.id].status == "RUNNING"

    def _is_new_claim(self, row: Row) -> bool:
        before = self.rows.get(row.id)
        return row.status == "RUNNING" and (before is None or before.token != row.token)

    def _take(self, before: Row, row: Row, by: str) -> None:
        assert row.token is not None
        assert row.token not in self.tokens.get(row.id, []), "a token came back"  # I5
        pushed = self.inputs.get(row.where)
        self.put(
            replace(
                before,
                status="RUNNING",
                attempt=before.attempt + 1,
                max_attempts=max(before.max_attempts, before.attempt + 1),
                next_attempt_at=None,
                runner=by,
                token=row.token,
                stale_after=self.now + self.policy(row).lease,
                started_at=self.now,
                error_code=None,
                watermark=before.watermark if pushed is None else pushed,
                ends=False,
                attempts=before.attempts + _entry(before),
                window_start=self.window_start(before),
            )
        )
        self.tokens.setdefault(row.id, []).append(row.token)
        self._in_order(before)

    def _in_order(self, row: Row) -> None:
        """An old payload does not run after a new one of its key."""
        if row.key is None or row.payload is None or row.id in self.by_hand:
            return
        newest = self.started.get((row.where, row.key), 0)
        if all(x[2].overlap != "allow" for x in self.jobs[row.job].history):
            assert row.payload >= newest, f"{row} after payload {newest}"
        self.started[row.where, row.key] = max(newest, row.payload)

    def _planned(self, row: Row) -> None:
        """A firing of the schedule, RUNNING (or PENDING, for a worker) by this claim."""
        known = self.jobs[row.job]
        assert known.policy.schedule is not None, row
        assert row.trigger == "schedule", row
        assert not (row.plan_time - EPOCH) % PERIOD, row
        assert row.plan_time == row.due_at <= self.now, row  # I8
        until = known.paused_until  # a pause that is over needs no resume
        assert known.paused_at is None or (until is not None and until < row.due_at), row
        assert not known.retired, row
        number, policy = known.at(row.plan_time)
        assert (row.revision, row.max_attempts) == (number, policy.max_attempts), row
        assert not (policy.calendar and policy.excluded), row
        assert not known.skips_of(row.scope, row.plan_time), row
        assert not self.is_processed(row), row
        gated_at = None if policy.gate is None else self.now
        assert (row.gated_at, row.waits_until) == (gated_at, None), row
        if policy.gate is not None:
            assert (row.status, row.attempt, row.next_attempt_at) == ("PENDING", 0, None), row
            assert row.window_start is None
        elif known.policy.handler == "external":
            assert (row.status, row.attempt, row.next_attempt_at) == ("PENDING", 0, row.due_at)
            assert row.window_start is None
        else:
            assert row.status == "RUNNING", row
            assert self._has_room(row), row  # I7, I11
            assert (row.attempt, row.stale_after) == (1, self.now + known.policy.lease)
            assert row.window_start == self.window_start(row)
            assert row.token is not None
            self.tokens[row.id] = [row.token]
        pushed = None if row.status == "PENDING" else self.inputs.get(row.where)
        assert (row.watermark, row.key, row.attempts) == (pushed, None, ""), row
        self.put(replace(row, ends=False))

    def rested(self, kinds: Sequence[str], by: str, *, steals: bool) -> None:
        """Nothing is left that a claim of these kinds could have taken."""
        for row in self.rows.values():
            assert not self.is_due(row, kinds, by), f"left: {row}"
            assert not (steals and self.may_be_stolen(row, kinds, by)), f"not stolen: {row}"

    def ended(self, row: Row, status: str, wait: timedelta | None, error: str | None) -> None:
        """The holder wrote its end; `wait` before the next attempt, if there may be one."""
        if status == "FAILED" and row.ends:
            status = "CANCELLED"
        again = status == "FAILED" and row.attempt < row.max_attempts
        due = self.now + wait if again and wait is not None else None
        self.put(replace(row, status=status, next_attempt_at=due, error_code=error))

    def released(self, row: Row) -> None:
        kept = {"status": "CANCELLED"} if row.ends else {
            **_WAITING, "next_attempt_at": self._released_until(row),
        }  # fmt: skip
        more = {"max_attempts": row.max_attempts + 1, "attempts": row.attempts + "-"}
        self.put(replace(row, **kept, **more))  # type: ignore[arg-type]

    def postponed(self, row: Row, wait: timedelta, following: datetime | None) -> bool:
        """The holder found that its work is not ready. `following`: the next plan_time of the
        scope. Returns whether it waits."""
        until, at_most = row.waits_until, self.policy(row).wait_at_most
        assert row.started_at is not None
        if until is None and at_most is not None:
            until = max(row.due_at, row.started_at) + at_most
        elif until is None and following is not None and following > row.plan_time:
            until = following
        row = replace(row, waits_until=until)
        if row.ends or (until is not None and until <= self.now):
            self.ended(row, "FAILED", None, "not_ready")
            return False
        due = max(self.now + wait, row.due_at)
        self.put(replace(
            row, next_attempt_at=due if until is None else min(due, until),
            max_attempts=row.max_attempts + 1,
            attempts=row.attempts if row.attempts.endswith("nn") else row.attempts + "n",
            **_WAITING,  # type: ignore[arg-type]
        ))  # fmt: skip
        return True

    @staticmethod
    def _released_until(row: Row) -> datetime:
        if row.gated_at is None:
            return row.due_at
        assert row.started_at is not None
        return max(row.due_at, row.started_at)

    def swept(self) -> int:
        """Every stale lease that nobody may steal is ended; answers how many."""
        over = [row for row in self.rows.values() if self.is_swept(row)]
        for row in over:
            status = "CANCELLED" if row.ends else "FAILED"
            self.put(replace(row, status=status, error_code="stale_timeout"))
        return len(over)

    def cancelled(self, row: Row) -> str:
        if row.next_attempt_at is None and row.status not in ("RUNNING", "PENDING"):
            return "already_finished"
        if row.status == "RUNNING":
            self.put(replace(row, ends=True))
            return "requested"
        self.put(replace(row, status="CANCELLED", next_attempt_at=None, ends=True))
        return "cancelled"

    def retried(self, row: Row, force: bool) -> str | None:
        """None: refused."""
        known = self.jobs[row.job]
        unknown = row.error_code in ("stale_timeout", "shutdown") and not known.policy.reentrant
        if row.status not in ("FAILED", "CANCELLED") or known.retired or (unknown and not force):
            return None
        if self.is_processed(row):
            return None
        more = {"max_attempts": max(row.max_attempts, row.attempt + 1), "ends": False}
        if row.token is None:
            more["waits_until"] = None  # type: ignore[assignment]
            gated = row.gated_at is not None and row.attempt == 0
            more |= {"gated_at": self.now} if gated else {}  # type: ignore[dict-item]
            due = None if gated else row.due_at
            new = replace(
                row, status="PENDING", next_attempt_at=due, error_code=None, **more  # type: ignore[arg-type]
            )  # fmt: skip
        else:
            due = min(row.next_attempt_at or self.now, self.now)
            error = row.error_code or "cancelled"
            new = replace(
                row, status="FAILED", next_attempt_at=due, error_code=error, **more  # type: ignore[arg-type]
            )  # fmt: skip
        self.put(new)
        self.by_hand.add(row.id)
        return "retried" if row.next_attempt_at is None else "brought_forward"

    def may_trigger(self, job: str, scope: str, force: bool) -> bool:
        known = self.jobs[job]
        until = known.paused_until
        paused = known.paused_at is not None and (until is None or until > self.now)
        if known.retired or (paused and not force):
            return False
        return known.policy.overlap != "skip" or not self.running(job, scope)

    def triggered(self, row: Row, payload: int | None) -> None:
        """`row` is what trigger made."""
        self._is_fresh(row, payload)
        assert (row.trigger, row.key, row.watermark) == ("manual", None, None), row
        if self.policy(row).overlap == "replace":
            for other in self.running(*row.where):
                self.put(replace(other, ends=True))
        self.put(row)

    def may_backfill(self, where: Scope, asked: list[datetime], reached: datetime) -> bool:
        known = self.jobs[where[0]]
        planned = known.policy.schedule is None or asked[-1] <= reached
        processed = known.policy.windows and asked[0] <= self.processed(where)
        return planned and not processed and not known.retired

    def backfilled(
        self, where: Scope, asked: list[datetime], reprocess: str, found: Rows
    ) -> tuple[int, int]:
        """After a backfill. Returns how many executions it made and retried."""
        ours = {row.plan_time: row for row in self.rows.values() if row.where == where}
        fresh = {
            r.plan_time: r for id, r in found.items() if r.where == where and id not in self.rows
        }
        made = retried = 0
        for at in asked:
            row = ours.get(at)
            if row is None or (reprocess == "all" and self._may_repeat(row)):
                free = at
                while free in ours:
                    free += timedelta(microseconds=1)
                self._backfilled(fresh[free])
                made += 1
            elif reprocess != "none" and row.next_attempt_at is None:
                retried += self.retried(row, False) is not None
        assert len(fresh) == made
        return made, retried

    def _may_repeat(self, row: Row) -> bool:
        """A success is repeated unless a repetition of it has not ended."""
        repeated = (
            r for r in self.rows.values()
            if r.where == row.where and r.trigger == "backfill"
            and row.plan_time < r.plan_time < row.plan_time + timedelta(seconds=1)
        )  # fmt: skip
        waits = any(r.status in ("PENDING", "RUNNING") or r.next_attempt_at for r in repeated)
        return row.status == "SUCCESS" and not waits

    def _backfilled(self, row: Row) -> None:
        number, policy = self.jobs[row.job].history[-1][0], self.policy(row)
        assert (row.status, row.trigger, row.revision) == ("PENDING", "backfill", number), row
        gated = policy.gate is not None
        assert (row.due_at, row.next_attempt_at) == (self.now, None if gated else self.now), row
        assert (row.gated_at, row.waits_until) == (self.now if gated else None, None), row
        assert (row.attempt, row.max_attempts, row.attempts) == (0, policy.max_attempts, ""), row
        assert (row.key, row.payload, row.watermark) == (None, None, None), row
        self.put(row)

    def seen(self, worker: str) -> datetime:
        """A worker in another language asks; answers since when its view is unbroken."""
        since, until = self.workers.get(worker, (self.now, self.now - GRACE))
        since = since if until >= self.now else self.now
        self.workers[worker] = since, self.now + timedelta(seconds=60)
        return since
