"""Deliberate mistakes beside the claim: in what workers call, in ctx.transaction, with scope
providers, in another database. `mutations` tries them."""

from contextlib import AbstractContextManager
from typing import Any

from cronledger.engine.maintenance import scope_providers
from cronledger.engine.running.handlers.transaction import ExecutionTransaction
from cronledger.ledger import statements
from cronledger.ledger.rows import RunningExecution
from cronledger.rules.model import ScopeKey, Status
from tests.simulation.support.backend import Database
from tests.simulation.support.mistakes.mutating import function, method, together


def worker_finishes_without_token(database: Database) -> AbstractContextManager[None]:
    return together(
        function(database, "lock_lease", ("e.lease_token = token AND ", "")),
        function(
            database, "finish_executions",
            ("e.lease_token = u.token AND ", ""), ("e.lease_token = h.token AND ", ""),
        ),
    )  # fmt: skip


def worker_finishes_whatever_status(database: Database) -> AbstractContextManager[None]:
    """What was swept is ended by its late holder."""
    anyhow = (" AND e.status = (SELECT 'RUNNING')", "")
    return together(
        function(database, "lock_lease", anyhow), function(database, "finish_executions", anyhow)
    )


def workers_overlap(database: Database) -> AbstractContextManager[None]:
    """claim_next starts external work beside other work of its scope."""
    external = "EXISTS (SELECT FROM cronledger.jobs x WHERE x.name = {} AND x.handler = 'external')"
    return together(
        function(database, "lock_due_existing", (
            "(j.overlap = 'allow' OR (e.job_name, e.scope_kind, e.scope_id) NOT IN",
            f"(j.overlap = 'allow' OR {external.format('j.name')}"
            " OR (e.job_name, e.scope_kind, e.scope_id) NOT IN",
        )),
        function(database, "decide_existing", (
            "(j.overlap = 'allow' OR NOT EXISTS",
            f"(j.overlap = 'allow' OR {external.format('c.job')} OR NOT EXISTS",
        )),
    )  # fmt: skip


def effects_before_their_success(_: Database) -> AbstractContextManager[None]:
    """The handler's transaction commits when its block is left; SUCCESS is written later."""

    def make(original: Any) -> Any:
        async def commit(self: Any, ended: Any) -> Any:
            await self._transaction.__aexit__(None, None, None)
            return ended

        return commit

    return method(ExecutionTransaction, "_commit", make)


def success_without_its_effects(_: Database) -> AbstractContextManager[None]:
    """A transaction that failed is reported as what the handler returned."""

    def make(original: Any) -> Any:
        async def commit(self: Any, ended: Any) -> Any:
            became = await original(self, ended)
            return ended if became.status is not Status.SUCCESS else became

        return commit

    return method(ExecutionTransaction, "_commit", make)


def silence_means_no_scopes(_: Database) -> AbstractContextManager[None]:
    """A provider that raises has answered that there are none."""

    def make(original: Any) -> Any:
        async def answer(*call: Any) -> Any:
            try:
                return await original(*call)
            except Exception:  # noqa: BLE001 - that is the mistake
                return []

        return answer

    return method(scope_providers, "_call", make)


def claims_anywhere(database: Database) -> AbstractContextManager[None]:
    """Nobody asks whether this is the ledger's own database."""
    return function(
        database, "require_own_database",
        ("why text := cronledger_internal.other_database()", "why text := NULL"),
    )  # fmt: skip


def overlap_before_the_lock(_: Database) -> AbstractContextManager[None]:
    """What is RUNNING is read as of the beginning of the statement that locks, not after it."""
    before: dict[Any, Any] = {}

    class Answer:
        def __init__(self, cursor: Any, scopes: Any) -> None:
            self._cursor, self._scopes = cursor, set(scopes)

        async def fetchall(self) -> list[Any]:
            found = await self._cursor.fetchall()
            rows = [RunningExecution(ScopeKey(*x[:3]), *x[3:]) for x in found]
            return [row for row in rows if row.scope in self._scopes]

    def make_lock(original: Any) -> Any:
        async def lock(self: Any, c: Any, **more: Any) -> Any:
            before[c] = await c.execute(
                "SELECT job_name, scope_kind, scope_id, plan_time, id FROM cronledger.executions"
                " WHERE status = 'RUNNING'"
            )
            return await original(self, c, **more)

        return lock

    def make_read(original: Any) -> Any:
        async def read(self: Any, c: Any, scopes: Any) -> Any:
            return Answer(before.pop(c), scopes)

        return read

    return together(
        method(statements.Statements, "lock_due_schedules", make_lock),
        method(statements.Statements, "read_running", make_read),
    )
