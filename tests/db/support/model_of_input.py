"""What pushes must leave in the ledger: merged while they wait, run again while dirty."""

from dataclasses import replace

from tests.db.support.model_of_rows import GRACE, Facts, Row, Rows, Scope


class Input(Facts):
    """enqueue, and what an end does for the input of its scope."""

    def enqueued(  # noqa: PLR0917
        self, where: Scope, key: str | None, watermark: int | None, payload: int | None,
        answer: int | None, found: Rows,
    ) -> None:  # fmt: skip
        """What enqueue did and answered."""
        before = self.inputs.get(where)
        is_new = watermark is not None and (before is None or watermark > before)
        if is_new:
            assert watermark is not None
            self.inputs[where] = watermark
        slot = (
            key if key is not None else ("" if payload is None and watermark is not None else None)
        )
        if slot == "":
            self.given_up(where)
            done = self.covered(where)
            assert watermark is not None
            if done is not None and watermark <= done:
                assert answer is None, answer
                return
            if not is_new and (already := self._answers_for(where)):
                assert answer in already, (answer, already)
                return
        assert answer is not None
        waiting = self._waiting(where, slot) if slot is not None else []
        if waiting:
            row = max(waiting, key=lambda r: r.plan_time)  # the newest payload is to run last
            assert answer == row.id, (answer, waiting)
            due = min(row.due_at, self.now)
            marks = [m for m in (row.watermark, watermark) if m is not None]
            self.put(
                replace(
                    row,
                    watermark=max(marks, default=None),
                    payload=row.payload if payload is None else payload,
                    due_at=due,
                    next_attempt_at=due,
                    max_attempts=max(row.max_attempts, row.attempt + self.policy(row).max_attempts),
                )
            )
        else:
            row = found[answer]
            self._is_fresh(row, payload)
            assert (row.trigger, row.key, row.watermark) == ("enqueue", slot, watermark), row
            if slot is None:  # a message, whose plan_time is earlier
                assert self.now <= row.due_at < self.now + GRACE, row
            else:
                assert row.due_at == row.plan_time, row
            self.put(row)
        if slot is not None:
            self.given_up(where)

    def _waiting(self, where: Scope, slot: str) -> list[Row]:
        return [
            r
            for r in self.rows.values()
            if r.where == where and r.key == slot and r.status == "PENDING"
        ]

    def _answers_for(self, where: Scope) -> set[int]:
        """What covers all input once it succeeds."""
        pushed = self.inputs[where]
        ours = [r for r in self.rows.values() if r.where == where]
        runs = {
            r.id
            for r in ours
            if r.status == "RUNNING" and not r.ends and r.watermark is not None
            and r.watermark >= pushed
        }  # fmt: skip
        waits = {r.id for r in ours if r.next_attempt_at is not None and r.key == ""}
        return runs or waits

    def given_up(self, where: Scope) -> None:
        for row in list(self.rows.values()):
            if row.where == where and self.superseded(row):
                self.put(replace(row, next_attempt_at=None))

    def settled(self, where: Scope, found: Rows) -> None:
        """After an end in this scope: retries that are superseded are given up, and what a success
        left dirty waits for another run."""
        self.given_up(where)
        ours = [r for r in self.rows.values() if r.where == where]
        newest = max(ours, key=lambda r: r.plan_time, default=None)
        busy = any(
            r.status == "RUNNING" or (r.next_attempt_at is not None and r.key is not None)
            for r in ours
        )
        wanted = (
            self.dirty(where)
            and newest is not None
            and newest.status == "SUCCESS"
            and not busy
            and not self.jobs[where[0]].retired
        )
        fresh = [r for r in found.values() if r.where == where and r.id not in self.rows]
        assert len(fresh) == wanted, (where, fresh, ours)
        for row in fresh:
            assert newest is not None
            of_key = newest.key or "" if newest.trigger == "enqueue" else ""
            payload = newest.payload if newest.trigger == "enqueue" else None
            self._is_fresh(row, payload)
            assert (row.trigger, row.key, row.watermark) == (
                "enqueue", of_key, self.inputs[where],
            ), row  # fmt: skip
            assert row.due_at >= self.now, row
            self.put(row)
