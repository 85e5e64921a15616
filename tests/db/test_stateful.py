"""Random calls on one ledger, in any order, against a model of it in plain Python.

Two replicas (the production claimer, finisher and sweeper, driven by hand), a worker in another
language (SQL functions alone) and an operator share a database whose clock stands still until a
rule moves it. After every call each execution is compared with the model, to the column and the
microsecond, and the laws are looked at; in the end everything that waits is made to run, and
`violations` and verify must have nothing to say.

`make check` runs the same few examples each time. CRONLEDGER_STATEFUL=n runs n of them at random,
with more steps each; a failure prints the calls that lead to it.
"""

import os
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import invariant, run_state_machine_as_test
from structlog.testing import capture_logs

from cronledger.audit.verify import verify
from cronledger.engine.clock import DatabaseClock
from tests.db.support.engine import TICK
from tests.db.support.ledger_bench import Bench
from tests.db.support.ledger_scenes import POINTS, Scenes
from tests.db.support.model_of_rows import EPOCH, PERIOD, Row
from tests.db.support.rolled_hours import round_of, totals

SEARCHED = int(os.environ.get("CRONLEDGER_STATEFUL", "0"))


class Machine(Scenes):
    """One example: the calls, the laws after each, and how it all comes to rest."""

    moments = 0

    def teardown(self) -> None:
        if not self.model.jobs or sys.exc_info()[0] is not None:
            return  # it has failed already
        pick, number, how = self.last
        self.a_zombie_writes(pick, number, 5, how)  # in every example, in whatever state it is
        self.then()
        self.settle_all()

    # -- laws --------------------------------------------------------------------------------------

    @invariant()
    def every_plan_time_is_accounted_for(self) -> None:
        """I2: up to the cursor each lies in one row or in one skip."""
        skips = self.ledger.values(
            "SELECT job_name, scope_id, from_plan_time, through_plan_time, count FROM skips"
        )
        for name, scope, since, cursor, parked, due in self.ledger.values(
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
    def the_hours_that_are_counted_and_the_rest_are_all(self) -> None:
        """Whatever was marked and counted before, also while the clock of the example goes on."""
        self.moments += 1
        if self.moments % 3 == 0:
            round_of(self.ledger)
        counted, direct = totals(self.ledger)
        assert counted == direct

    @invariant()
    def dirt_is_as_the_model_says(self) -> None:
        for name, scope, dirty in self.ledger.values(
            "SELECT job_name, scope_id, is_dirty(job_name, scope_id) FROM schedules"
        ):
            assert dirty is self.model.dirty((name, scope))

    def work(self, worker: str) -> int:
        """The worker claims what it can and finishes all that it has; answers how many."""
        self.pass_time(TICK)
        self.claim_next(worker, 50)
        held = [r for r in self.model.rows.values() if r.runner == worker and r.status == "RUNNING"]
        for row in held:
            assert row.token is not None
            self.ledger.one("SELECT finish(%s, %s)", row.id, row.token)
            self.model.ended(row, "SUCCESS", None, None)
            self.after_end(row)
        return len(held)

    def claim_all(self) -> None:
        for number in range(len(self.bench.replicas)):
            self.claim(number, True, 100)

    def waiting(self) -> list[Row]:
        rows = self.model.rows.values()
        return [r for r in rows if r.status in ("RUNNING", "PENDING") or r.next_attempt_at]

    # -- the end -----------------------------------------------------------------------------------

    def settle_all(self) -> None:
        """Everything resumes, and time passes: in the end nothing runs or waits."""
        self.resume_all()
        for replica in self.bench.replicas:
            replica.crash()
        for _ in range(40):
            blocked = bool(self.waiting())  # then the claim leaves plan_times to the next one
            self.pass_time(timedelta(seconds=50))  # less than a minute: a worker has been seen
            self.sweep(0, True)
            self.claim_all()
            for _ in range(2 * len(self.model.jobs)):  # scopes, of which one may wait for another
                for number, replica in enumerate(self.bench.replicas):
                    while replica.held:
                        self.finish(number, 0, "value", 1)
                while self.work("w1"):
                    pass
                self.check_gates(0)
                self.pass_time(TICK)  # what has ended did not run beside what starts
                self.claim_all()
            self.the_ledger_is_as_the_model_says()
            if not blocked and not self.waiting():
                break
        else:
            raise AssertionError(f"it does not come to rest: {self.waiting()}")
        self.every_plan_time_is_accounted_for()
        self.the_hours_that_are_counted_and_the_rest_are_all()
        assert not self.ledger.values(
            "SELECT * FROM executions WHERE finished_at IS NOT NULL AND next_attempt_at IS NULL"
            " AND changed_xact IS NULL"
        )
        assert not self.ledger.values("SELECT * FROM violations")
        assert not list(verify(self.bench.url))


# A deliberate mistake only has to be found.
_LEFT_OUT = [Phase.explain, *([Phase.shrink] if "CRONLEDGER_MISTAKE" in os.environ else [])]
_PHASES = [p for p in Phase if p not in _LEFT_OUT]


def _grid(after: datetime, through: datetime) -> list[datetime]:
    at = EPOCH + ((after - EPOCH) // PERIOD + 1) * PERIOD
    found = []
    while at <= through:
        found.append(at)
        at += PERIOD
    return found


@pytest.fixture
def bench(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    # The clock stands still, so that a step of more than a second looks like a leap.
    monkeypatch.setattr(DatabaseClock, "agrees", lambda *_: True)
    made = Bench(database_url)
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.timeout(0 if SEARCHED else 900)
def test_i1_to_i11_whatever_is_called_the_ledger_is_as_the_model_says(bench: Bench) -> None:
    Machine.bench = bench
    with capture_logs():
        _search()
    # A test of a lost lease in which nobody loses one would pass whatever the ledger does.
    assert all(bench.reached[point] for point in POINTS), bench.reached


def _search() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=SEARCHED or 24,
            stateful_step_count=60 if SEARCHED else 26,
            derandomize=not SEARCHED,
            database=None,
            report_multiple_bugs=False,
            phases=_PHASES,
            suppress_health_check=list(HealthCheck),
        ),
    )
