"""Deliberate mistakes beside the claim: in what workers call, in ctx.transaction, with scope
providers, in another database. `mutations` tries them."""

from contextlib import AbstractContextManager
from typing import Any

from cronledger.engine.maintenance import scope_providers
from cronledger.engine.running.handlers.transaction import ExecutionTransaction
from cronledger.rules.model import Status
from tests.simulation.support.backend import Database
from tests.simulation.support.mistakes.mutating import both, in_function, method

worker_finishes_without_token = both(
    in_function("lock_lease", ("e.lease_token = token AND ", "")),
    in_function(
        "finish_executions",
        ("e.lease_token = u.token AND ", ""), ("e.lease_token = h.token AND ", ""),
    ),
)  # fmt: skip
_ANYHOW = (" AND e.status = (SELECT 'RUNNING')", "")
worker_finishes_whatever_status = both(
    in_function("lock_lease", _ANYHOW), in_function("finish_executions", _ANYHOW)
)
"""What was swept is ended by its late holder."""
_EXTERNAL = "EXISTS (SELECT FROM cronledger.jobs x WHERE x.name = {} AND x.handler = 'external')"
workers_overlap = both(
    in_function("lock_due_existing", (
        "(j.overlap = 'allow' OR (e.job_name, e.scope_kind, e.scope_id) NOT IN",
        f"(j.overlap = 'allow' OR {_EXTERNAL.format('j.name')}"
        " OR (e.job_name, e.scope_kind, e.scope_id) NOT IN",
    )),
    in_function("decide_existing", (
        "(j.overlap = 'allow' OR NOT EXISTS",
        f"(j.overlap = 'allow' OR {_EXTERNAL.format('c.job')} OR NOT EXISTS",
    )),
)  # fmt: skip
"""claim_next starts external work beside other work of its scope."""


def effects_before_their_success(_: Database) -> AbstractContextManager[None]:
    """The handler's transaction commits when its block is left; SUCCESS is written later."""

    async def commit(original: Any, self: Any, ended: Any) -> Any:
        await self._transaction.__aexit__(None, None, None)
        return ended

    return method(ExecutionTransaction, "_commit", commit)


def success_without_its_effects(_: Database) -> AbstractContextManager[None]:
    """A transaction that failed is reported as what the handler returned."""

    async def commit(original: Any, self: Any, ended: Any) -> Any:
        became = await original(self, ended)
        return ended if became.status is not Status.SUCCESS else became

    return method(ExecutionTransaction, "_commit", commit)


def silence_means_no_scopes(_: Database) -> AbstractContextManager[None]:
    """A provider that raises has answered that there are none."""

    async def answer(original: Any, *call: Any) -> Any:
        try:
            return await original(*call)
        except Exception:  # noqa: BLE001 - that is the mistake
            return []

    return method(scope_providers, "_call", answer)


claims_anywhere = in_function(
    "require_own_database",
    ("why := cronledger_internal.other_database();", "why := NULL;"),
)  # fmt: skip
"""Nobody asks whether this is the ledger's own database."""
overlap_before_the_lock = in_function(
    "claim_look",
    ("since := cronledger.db_clock();",
     "since := cronledger.db_clock();\n"
     "    running := (SELECT json_agg(json_build_array(e.job_name, e.scope_kind, e.scope_id,"
     " e.plan_time, e.id)) FROM cronledger.executions e WHERE e.status = 'RUNNING');"),
    ("    running := (\n", "    PERFORM (\n"),
)  # fmt: skip
"""What is RUNNING is read before the statement that locks, not after it."""
