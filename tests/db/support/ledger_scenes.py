"""Short stories that random single calls hardly ever tell, each on a random job in any state.

Every call goes through the rules, so the model judges it; where a scene comes to its point, it
counts in `reached`, and the test says how often that must be.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.db.support.ledger_bench import picks, replicas, zombie_ends
from tests.db.support.ledger_rules import CALLS, Rules, marks
from tests.db.support.model_of_rows import HOSTS, Row, Scope

LONGEST_LEASE, LONGEST_BACKOFF = 60, 30  # seconds, of all that policies() draws
WORKERS = ("w1", "w2")
POINTS = (
    "a thief's row is written to", "a replica writes without its lease",
    "an end that nobody knows", "no attempt is left", "released", "cancelled while it runs",
    "pushes merged", "a gate opens", "the wait of a gate ends",
    "a planned pause begins", "not ready", "backfilled",
)  # fmt: skip


class Scenes(Rules):
    """Who loses a lease, what nobody reports, what fails to the end, is released, is merged."""

    # -- what scenes need --------------------------------------------------------------------------

    def then(self, seconds: int = 0) -> None:
        """Ledger and model agree; the next call comes later."""
        self.the_ledger_is_as_the_model_says()
        self.pass_time(timedelta(seconds=seconds))

    def come_to(self, point: str) -> None:
        assert point in POINTS
        self.bench.reached[point] += 1

    def set_reentrant(self, name: str, be: bool) -> None:
        policy = self.model.jobs[name].policy
        if policy.reentrant is not be:
            self.change(name, replace(policy, reentrant=be))
            self.then()

    @contextmanager
    def reentrant(self, name: str, be: bool) -> Iterator[None]:
        """Meanwhile the job is so."""
        old = self.model.jobs[name].policy.reentrant
        self.set_reentrant(name, be)
        yield
        self.set_reentrant(name, old)

    def ask(self, where: Scope, number: int) -> None:
        """A replica, or for a job of theirs a worker, claims and steals what it can.

        For a job of hosts, it is that of the host.
        """
        policy = self.model.jobs[where[0]].policy
        if policy.hosts:
            number = [*HOSTS.values()].index(where[1])
        if policy.handler == "external":
            self.claim_next(WORKERS[number], 50)
        else:
            self.claim(number, True, 100)
        self.then()

    def start(self, pick: int, number: int) -> list[Row]:
        """What runs in this scope, made to run if nothing does; empty where it may not."""
        where = self.pick_scope(pick)
        self.resume_all()
        self.then()
        if not self.model.running(*where):
            self.trigger(pick, False)
            self.then()
        self.ask(where, number)
        return self.model.running(*where)

    def end_as_holder(self, row: Row, how: str, call: str) -> None:
        """By the replica that holds it, else by the function of this name."""
        assert row.token is not None
        for replica in self.bench.replicas:
            for start in [s for s in replica.held if s.claimed.token == row.token]:
                self.end(replica, start, how, 1)
                self.then()
                return
        self.write_as(row, row.token, call, 1)
        self.then()

    # -- scenes ------------------------------------------------------------------------------------

    @rule(
        pick=picks, number=replicas, mark=st.integers(1, 9),
        how=zombie_ends,
    )  # fmt: skip
    def a_zombie_writes(self, pick: int, number: int, mark: int, how: str) -> None:
        """I3: a lease is stolen, and whoever lost it beats and ends as if nothing had happened."""
        where = self.pick_scope(pick)
        with self.reentrant(where[0], True):
            held = self.start(pick, number)
            if self.model.jobs[where[0]].policy.handler == "external":
                # A worker steals once it has been seen without a gap for as long as the lease.
                for _ in range(2):
                    self.ask(where, 1 - number)
                    self.then(LONGEST_LEASE // 2 + 1)
            else:
                self.then(LONGEST_LEASE + 1)
            self.ask(where, 1 - number)
            for row in held:
                taken = self.model.rows[row.id]
                if taken.status == "RUNNING" and taken.token != row.token:
                    self.write_without_lease(row, how, mark)

    def write_without_lease(self, lost: Row, how: str, mark: int) -> None:
        assert lost.token is not None
        for call in CALLS:
            self.write_as(self.model.rows[lost.id], lost.token, call, mark)
            self.then()
        self.come_to("a thief's row is written to")
        for number, replica in enumerate(self.bench.replicas):
            for start in [s for s in replica.held if s.claimed.token == lost.token]:
                self.heartbeat(number)
                self.then()
                self.end(replica, start, how, mark)
                self.then()
                self.come_to("a replica writes without its lease")

    @rule(pick=picks, number=replicas, insists=st.booleans())
    def nobody_reports_the_end(self, pick: int, number: int, insists: bool) -> None:
        """I6: a non-reentrant attempt is swept, and only who insists has it run once more."""
        where = self.pick_scope(pick)
        with self.reentrant(where[0], False):
            held = self.start(pick, number)
            self.then(LONGEST_LEASE + 1)
            self.ask(where, 1 - number)
            self.sweep(number, False)
            self.then()
            for row in held:
                assert row.token is not None
                if self.model.rows[row.id].status != "FAILED":
                    continue  # its end had been asked for
                self.write_as(self.model.rows[row.id], row.token, "finish", 1)
                self.then()
                self.retry_row(self.model.rows[row.id], False)
                self.ask(where, number)
                if insists:
                    self.retry_row(self.model.rows[row.id], True)
                    self.ask(where, number)
                self.come_to("an end that nobody knows")

    @rule(pick=picks, number=replicas, by_function=st.booleans())
    def it_fails_until_no_attempt_is_left(self, pick: int, number: int, by_function: bool) -> None:
        """I5."""
        where = self.pick_scope(pick)
        for row in self.start(pick, number)[:1]:
            while (now := self.model.rows[row.id]).status == "RUNNING":
                assert now.token is not None
                if by_function:
                    self.write_as(now, now.token, "fail", 1)
                    self.then()
                else:
                    self.end_as_holder(now, "error", "fail")
                self.then(LONGEST_BACKOFF + 1)
                self.ask(where, number)
            if now.status == "FAILED" and now.attempt == now.max_attempts:
                self.come_to("no attempt is left")

    @rule(pick=picks, number=replicas)
    def it_is_released(self, pick: int, number: int) -> None:
        """As by a drain: it runs again, under another token and as another attempt."""
        where = self.pick_scope(pick)
        with self.reentrant(where[0], True):
            for row in self.start(pick, number):
                self.end_as_holder(row, "back", "release")
                if self.model.rows[row.id].status == "PENDING":
                    self.come_to("released")
            self.ask(where, 1 - number)

    @rule(pick=picks, number=replicas, times=st.integers(1, 4))
    def work_is_not_ready(self, pick: int, number: int, times: int) -> None:
        """It waits without losing an attempt, at most until the end of its wait."""
        where = self.pick_scope(pick)
        for row in self.start(pick, number)[:1]:
            for _ in range(times):
                if self.model.rows[row.id].status == "RUNNING":
                    self.end_as_holder(self.model.rows[row.id], "not_ready", "not_ready")
                    self.then(41)
                    self.ask(where, number)

    @rule(pick=st.none() | picks, number=replicas)
    def a_planned_pause_begins(self, pick: int | None, number: int) -> None:
        self.plan_pause(pick, 5, 20)
        self.then(6)
        self.claim(number, True, 100)

    @rule(pick=picks, number=replicas, succeeds=st.booleans())
    def past_plan_times_run_again(self, pick: int, number: int, succeeds: bool) -> None:
        """What a backfill has made ends, and another backfill repeats or retries it."""
        where = self.pick_scope(pick)
        self.resume_all()
        self.then()
        self.ask(where, number)
        for _ in range(2):
            self.backfill(pick, 1, 2, "all")
            self.then()
            self.check_gates(number)
            self.then()
            self.ask(where, number)
            for row in self.model.running(*where):
                how, call = ("value", "finish") if succeeds else ("discard", "final")
                self.end_as_holder(row, how, call)

    @rule(
        pick=picks, number=replicas,
        how=st.sampled_from(["value", "error", "cancelled", "not_ready"]),
    )  # fmt: skip
    def what_runs_is_cancelled(self, pick: int, number: int, how: str) -> None:
        """It is asked to end, learns so by its heartbeat, and writes the end itself."""
        for row in self.start(pick, number):
            assert row.token is not None
            self.cancel_row(row)
            self.then()
            self.write_as(self.model.rows[row.id], row.token, "heartbeat", 1)
            self.then()
            call = {"value": "finish", "not_ready": how}.get(how, "fail")
            self.end_as_holder(self.model.rows[row.id], how, call)
            self.come_to("cancelled while it runs")

    @rule(pick=picks, key=st.sampled_from(["k", "l"]), mark=marks, payloads=st.booleans())
    def one_key_is_pushed_again(
        self, pick: int, key: str, mark: int | None, payloads: bool
    ) -> None:
        """What waits takes the next push of its key along."""
        for payload in (True, payloads):
            count = len(self.model.rows)
            self.enqueue(pick, key, mark, payload)
            self.then()
        assert len(self.model.rows) == count
        self.come_to("pushes merged")
