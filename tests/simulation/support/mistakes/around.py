"""Deliberate mistakes beside the claim: in what workers call, in ctx.transaction, with scope
providers, in another database. `mutations` tries them."""

from contextlib import AbstractContextManager
from typing import Any

from cronledger.engine.maintenance import scope_providers
from cronledger.engine.running.handlers.transaction import ExecutionTransaction
from cronledger.rules.model import Status
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
        ("why := cronledger_internal.other_database();", "why := NULL;"),
    )  # fmt: skip


def overlap_before_the_lock(database: Database) -> AbstractContextManager[None]:
    """What is RUNNING is read before the statement that locks, not after it."""
    return function(
        database, "claim_look",
        ("since := cronledger.db_clock();",
         "since := cronledger.db_clock();\n"
         "    running := (SELECT json_agg(json_build_array(e.job_name, e.scope_kind, e.scope_id,"
         " e.plan_time, e.id)) FROM cronledger.executions e WHERE e.status = 'RUNNING');"),
        ("    running := (\n", "    PERFORM (\n"),
    )  # fmt: skip
