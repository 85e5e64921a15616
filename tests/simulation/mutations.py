"""Deliberate mistakes in the engine and its SQL, and after how many seeds the simulator finds them.

`python -m tests.simulation.mutations [NAME …] [--most N]` prints the table. Each mutation replaces
a text that must be there, or wraps a method that must be called: one that touches nothing fails.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from cronledger.engine import clock, lease
from cronledger.engine.claiming import claim, revisions
from cronledger.engine.running import executor, heartbeats
from tests.simulation.support.backend import Database
from tests.simulation.support.mistakes import around, recovery, reported, requests
from tests.simulation.support.mistakes.mutating import (
    Apply,
    both,
    in_function,
    in_statement,
    method,
    together,
)
from tests.simulation.support.run import Verdict, simulate

MOST_SEEDS = 150


@dataclass(frozen=True)
class Mutation:
    """`apply` makes the mistake for as long as the context lasts; `invariant`: what it breaks."""

    name: str
    invariant: str
    apply: Apply
    quick: bool = False  # a few seeds find it: make check runs it as well


# -- the mistakes -------------------------------------------------------------------------------

TOKEN = ("e.lease_token = u.token AND ", ""), ("e.lease_token = h.token AND ", "")
RENEWED = ("RETURNING e.lease_token", "RETURNING h.token")
finish_without_token = both(
    in_function("finish_executions", *TOKEN, RENEWED),
    in_function("release_executions", *TOKEN),
)
"""Of both ways in which an attempt ends."""
heartbeat_without_token = in_function("heartbeat_leases", *TOKEN, RENEWED)
finish_whatever_status = in_function(
    "finish_executions", (" AND e.status = (SELECT 'RUNNING')", "")
)
"""A swept or cancelled row is written by its late holder."""
locks_nothing = in_function("lock_due_schedules", ("FOR NO KEY UPDATE OF s SKIP LOCKED", ""))
"""Plans are made of schedules that nobody has locked."""


@contextmanager
def cursor_apart(database: Database) -> Iterator[None]:
    """The cursor moves in a transaction of its own, before the rows that account for its way."""

    async def write(original: Any, self: Any, c: Any) -> Any:
        decision = self.decision
        if decision.plans:
            async with self._context.pool.connection() as other:
                await self._statements.advance_schedules(other, decision.plans)
        plans, decision.plans = decision.plans, []
        try:
            return await original(self, c)
        finally:
            decision.plans = plans

    # Not held against itself: the other connection would wait for the claim's own lock.
    with locks_nothing(database), method(claim.Claim, "_write", write):
        yield


def commits_before_rows(_: Database) -> AbstractContextManager[None]:
    """COMMIT between the cursor and the executions: a crash there loses plan_times."""

    async def write(original: Any, self: Any, c: Any) -> Any:
        if self.decision.plans:
            await self._statements.advance_schedules(c, self.decision.plans)
            await c.execute("COMMIT")
            await c.execute("BEGIN")
        return await original(self, c)

    return method(claim.Claim, "_write", write)


two_of_a_scope = in_function("decide_existing", ("WHERE a.overlap = 'allow' OR a.of_scope = 1", ""))
"""Two retries of one (job, scope) in a batch."""
retries_beside_running = both(
    in_function("decide_existing", ("AND r.id <> c.id", "AND false")),
    in_function("lock_due_existing", ("FROM busy b)", "FROM busy b WHERE false)")),
)
"""A retry starts though another execution of its scope is RUNNING."""
retries_never = both(
    in_function(
        "finish_executions",
        ("THEN cronledger.db_clock() + h.retry_after END",
         "THEN cronledger.db_clock() + coalesce(h.retry_after, interval '0') END"),
    ),
    in_statement("sweep_stale", ("next_attempt_at = NULL", "next_attempt_at = "
              "CASE WHEN e.cancel_requested_at IS NULL THEN cronledger.db_now() END, "
              "max_attempts = e.attempt + 1")),
)  # fmt: skip
"""FAILED without next_attempt_at means never; here it means now."""


def lease_from_reply(_: Database) -> AbstractContextManager[None]:
    """A lease counts from the answer to its heartbeat, and no margin is kept."""

    def renew(original: Any, self: Any, sent: float) -> None:
        now = asyncio.get_running_loop().time()
        original(self, now)
        if not self.stopped:
            self.deadline = now + self.length

    return method(lease.Lease, "renew", renew)


def skipped_is_lost(_: Database) -> AbstractContextManager[None]:
    """A row that the heartbeat stepped over is taken for lost: nothing is read."""

    async def read(original: Any, self: Any, connection: Any, silent: Any) -> None:
        statements_of, self._statements = self._statements, _Silent()
        try:
            await original(self, connection, silent)
        finally:
            self._statements = statements_of

    return method(heartbeats.Heartbeats, "_check_missing", read)


class _Silent:
    async def read_leases(self, *_: Any) -> "_Silent":
        return self

    async def fetchall(self) -> list[Any]:
        return []


sweeps_reentrant = in_statement(
    "sweep_stale",
    ("SET status = CASE WHEN e.cancel_requested_at IS NULL THEN 'FAILED' ELSE 'CANCELLED' END",
     "SET status = 'FAILED', max_attempts = greatest(e.max_attempts, e.attempt + 1)"),
    ("next_attempt_at = NULL", "next_attempt_at = cronledger.db_now()"),
)  # fmt: skip
"""The sweeper ignores reentrancy: a stale lease is retried whatever its job says."""
steals_what_is_not_reentrant = in_function("may_be_stolen", ("SELECT reentrant AND", "SELECT"))
LOCK = "FOR NO KEY UPDATE OF s SKIP LOCKED"
steals_unlocked = both(
    in_function("lock_stale", ("FOR NO KEY UPDATE SKIP LOCKED", "")),
    in_function("lock_due_existing", (LOCK, "")),
)
"""Retries and steals do not take the lock of their schedule row."""
cancels_running_at_once = in_function(
    "cancel",
    ("status = CASE outcome WHEN 'requested' THEN e.status ELSE 'CANCELLED' END",
     "status = 'CANCELLED'"),
    ("CASE outcome WHEN 'requested' THEN NULL ELSE coalesce(e.finished_at, at) END", "at"),
)  # fmt: skip
"""A RUNNING row becomes CANCELLED under its handler."""
releases_the_same_attempt = in_function(
    "release_executions",
    ("max_attempts = e.max_attempts + 1", "attempt = e.attempt - 1"),
)
"""What goes back keeps its attempt number for the next claim."""
limit_in_locking_statement = in_function(
    "claim_look",
    ("ORDER BY j.name FOR NO KEY UPDATE SKIP LOCKED", ""),
    ("ORDER BY q.name FOR NO KEY UPDATE SKIP LOCKED", ""),
)
"""Limited jobs are counted without their row's lock."""


def starts_after_its_lease(_: Database) -> AbstractContextManager[None]:
    """A handler begins though its lease ran out while its process stood still."""

    async def outcome(original: Any, self: Any, running: Any) -> Any:
        deadline, running.lease.deadline = running.lease.deadline, lease.NEVER
        stopped, running.lease.stopped = running.lease.stopped, False
        task = original(self, running)
        try:
            first = task.send(None)
        except StopIteration as ended:
            return ended.value
        finally:
            running.lease.deadline, running.lease.stopped = deadline, stopped
        return await _resumed(task, first)

    return method(executor.Executor, "_outcome", outcome)


async def _resumed(task: Any, first: Any) -> Any:
    class Rest:
        def __await__(self) -> Any:
            waited = first
            while True:
                try:
                    got = yield waited
                except BaseException as error:  # noqa: BLE001 - handed on
                    step = (task.throw, error)
                else:
                    step = (task.send, got)
                try:
                    waited = step[0](step[1])
                except StopIteration as ended:
                    return ended.value

    return await Rest()


def trusts_after_a_leap(_: Database) -> AbstractContextManager[None]:
    """A leap of the database's clock is believed: live leases are stolen and swept."""

    def observe(
        original: Any, self: Any, now: Any, sent: float, received: float | None = None
    ) -> bool:
        trusted = self.trusted_since
        original(self, now, sent, received)
        self.trusted_since = trusted or now
        return False

    return together(
        method(clock.DatabaseClock, "agrees", lambda original, self, now, sent, received: True),
        method(clock.DatabaseClock, "observe", observe),
    )


plans_the_past = in_statement(
    "advance_schedules",
    ("planned_through = greatest(s.planned_through, u.through)",
     "planned_through = s.planned_through"),
)  # fmt: skip
"""The cursor does not move past what was settled."""
skips_nothing = in_statement(
    "record_skips", ("FROM before b WHERE b.stored IS NULL", "FROM before b WHERE false")
)
"""What did not run is not recorded."""
forgets_breaches = in_function(
    "judge_deadlines",
    ("FROM judged j WHERE j.verdict = 'missed'", "FROM judged j WHERE false"),
)
"""A missed deadline is counted, and no breach is recorded."""
breaches_what_was_met = in_function(
    "judge_deadlines",
    (
        "WHEN s.first_start <= s.deadline THEN 'met'",
        "WHEN s.first_start > s.deadline THEN 'met'",
    ),
)
"""A late start counts as one in time, and a start in time as a late one."""
starts_ahead_of_its_instant = both(
    in_statement("sleep_until", ("%(at_most)s", "%(at_most)s * 0")),
    in_statement("try_claim_new", ("max(d.due_at) <= cronledger.db_now()", "true")),
)
"""Neither the wait nor the INSERT of a claim ahead minds the instant."""


boots_at_each_check_in = in_function(
    "note_host", ("b.boot_id = boot AND b.plan_time IS NOT NULL", "false")
)
"""Each check-in makes the boot a plan_time again."""


def keeps_old_dates(_: Database) -> AbstractContextManager[None]:
    """A replica plans all revisions of a job by the dates of the calendar that it read first."""
    first: dict[tuple[Any, str], Any] = {}

    async def read(original: Any, self: Any, c: Any, rows: Any) -> Any:
        found = await original(self, c, rows)
        return {id: first.setdefault((self, x.name), x) for id, x in found.items()}

    return method(revisions.Revisions, "_read_calendars", read)


MUTATIONS = (
    Mutation("finish without the token", "I3", finish_without_token, quick=True),
    Mutation("heartbeat without the token", "I3", heartbeat_without_token),
    Mutation("finish of a row that is not RUNNING", "I3", finish_whatever_status),
    Mutation("plan before the lock", "I1, I7", locks_nothing, quick=True),
    Mutation("overlap read in the locking statement", "I7", around.overlap_before_the_lock),
    Mutation("cursor in another transaction", "I2", cursor_apart, quick=True),
    Mutation("COMMIT between cursor and rows", "I2", commits_before_rows),
    Mutation("cursor that does not move", "I2", plans_the_past, quick=True),
    Mutation("skips that are not recorded", "I2", skips_nothing, quick=True),
    Mutation("two retries of one scope in a batch", "I7", two_of_a_scope, quick=True),
    Mutation("retry beside a RUNNING execution", "I7", retries_beside_running, quick=True),
    Mutation("retry of a NULL next_attempt_at", "I6", retries_never),
    Mutation("lease counted from the reply", "I7", lease_from_reply, quick=True),
    Mutation("skipped heartbeat taken for lost", "settling", skipped_is_lost),
    Mutation("sweep that ignores reentrancy", "I6", sweeps_reentrant),
    Mutation("steal of a non-reentrant execution", "I6", steals_what_is_not_reentrant),
    Mutation("steal and retry without the schedule's lock", "I7", steals_unlocked, quick=True),
    Mutation("cancel of a RUNNING row at once", "I7", cancels_running_at_once, quick=True),
    Mutation("release the same attempt", "I5", releases_the_same_attempt, quick=True),
    Mutation("start ahead of its instant", "I8", starts_ahead_of_its_instant, quick=True),
    Mutation("limit counted without its lock", "I11", limit_in_locking_statement),
    Mutation("start after the lease", "I7", starts_after_its_lease, quick=True),
    Mutation("trust in a clock that leapt", "I7", trusts_after_a_leap),
    Mutation("finish that re-arms nothing", "parking", recovery.rearms_nothing),
    Mutation("park without a second check", "parking", recovery.parks_without_a_second_check),
    Mutation("unknown COMMIT forgotten", "calm", recovery.forgets_unknown_commits),
    Mutation("unknown COMMIT looked up without its lock", "calm", recovery.looks_up_unlocked),
    Mutation("outcome dropped while the database is away", "calm", recovery.drops_outcomes),
    Mutation("a worker's finish without the token", "I3", around.worker_finishes_without_token),
    Mutation(
        "a worker's finish of a row that is not RUNNING",
        "I3",
        around.worker_finishes_whatever_status,
    ),
    Mutation("claim_next beside a RUNNING execution", "I7", around.workers_overlap, quick=True),
    Mutation(
        "effects before their SUCCESS", "effects", around.effects_before_their_success, quick=True
    ),
    Mutation(
        "SUCCESS although its transaction failed", "effects", around.success_without_its_effects
    ),
    Mutation(
        "error of a provider taken for no scopes",
        "scopes",
        around.silence_means_no_scopes,
        quick=True,
    ),
    Mutation(
        "provider called out of turn", "scopes", requests.asks_providers_out_of_turn, quick=True
    ),
    Mutation("steal of a cancelled execution", "cancel", requests.steals_what_was_cancelled),
    Mutation("retry in a pause", "pause", requests.retries_in_a_pause),
    Mutation(
        "retirements of a scope taken for one", "I2", requests.takes_retirements_for_one, quick=True
    ),
    Mutation("a token offered twice", "I5", requests.tokens_again, quick=True),
    Mutation("a batch beyond its limit", "I11", requests.starts_all_at_the_limit),
    Mutation("a missed deadline without a breach", "deadlines", forgets_breaches, quick=True),
    Mutation("a breach of a deadline that was met", "deadlines", breaches_what_was_met),
    Mutation("dates of an earlier calendar", "I2", keeps_old_dates, quick=True),
    Mutation(
        "a run that starts when its report arrives", "reports", reported.begins_at_the_receipt
    ),
    Mutation("an adopted job on both sides", "sides", reported.both_sides_run, quick=True),
    Mutation("a return that the ledger does not report", "sides", reported.forgets_the_return),
    Mutation("a boot that fires twice", "boots", boots_at_each_check_in),
    Mutation("claims in another database", "identity", around.claims_anywhere, quick=True),
)


def hunt(mutation: Mutation, database: Database, most: int, seed0: int = 0) -> Verdict | None:
    """The first seed that finds it; None: none of the `most` first ones does."""
    with mutation.apply(database):
        for seed in range(seed0, seed0 + most):
            verdict = simulate(seed, database)
            if verdict.violations:
                return verdict
    return None


def main() -> int:
    from tests.simulation.__main__ import fresh_database

    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutations")
    parser.add_argument("names", nargs="*", help="parts of names; none: all")
    parser.add_argument("--most", type=int, default=MOST_SEEDS)
    asked = parser.parse_args()
    missed = 0
    print("| mutation | breaks | found by seed | as |\n|---|---|---|---|")
    with fresh_database() as database:
        for mutation in MUTATIONS:
            if asked.names and not any(name in mutation.name for name in asked.names):
                continue
            began = time.monotonic()
            found = hunt(mutation, database, asked.most)
            missed += found is None
            first = "" if found is None else found.violations[0].partition("\n")[0]
            how = first.partition("] ")[2][:90] or "-"
            number = f"none of {asked.most}" if found is None else str(found.seed + 1)
            print(f"| {mutation.name} | {mutation.invariant} | {number} | {how} |", flush=True)
            print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
