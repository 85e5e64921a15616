"""Deliberate mistakes that mend themselves later, by a lease that runs out or a sweeper that looks:
only what a cluster owes while it is calm shows them. `mutations` tries them."""

from contextlib import AbstractContextManager
from typing import Any

import psycopg

from cronledger.engine.claiming import claim, unknown_commits
from cronledger.engine.running import finisher, follow_up
from cronledger.ledger import statements
from tests.simulation.support.backend import Database
from tests.simulation.support.mistakes.mutating import method


def rearms_nothing(_: Database) -> AbstractContextManager[None]:
    """A finish leaves what waited for it to the sweeper."""

    async def rearm(original: Any, self: Any, c: Any, ended: Any) -> bool:
        return bool(await original(self, c, []))

    return method(follow_up.FollowUp, "rearm", rearm)


def parks_without_a_second_check(_: Database) -> AbstractContextManager[None]:
    """A claim parks, and what ended while it did so is left to the sweeper."""

    async def after(original: Any, self: Any, c: Any) -> Any:
        self.decision.parked = []
        return await original(self, c)

    return method(claim.Claim, "_after_commit", after)


def forgets_unknown_commits(_: Database) -> AbstractContextManager[None]:
    """What a COMMIT of unknown outcome has claimed is nobody's business."""

    async def resolve(original: Any, self: Any) -> None:
        self._executions.clear()

    return method(unknown_commits.UnknownCommits, "resolve", resolve)


def looks_up_unlocked(_: Database) -> AbstractContextManager[None]:
    """The look-up of a COMMIT of unknown outcome does not wait for the old backend."""

    async def lock(original: Any, self: Any, c: Any, key: Any) -> None:
        return None

    return method(statements.Statements, "lock_schedule", lock)


def drops_outcomes(_: Database) -> AbstractContextManager[None]:
    """An outcome that the database does not take at once is taken for written."""

    async def write(original: Any, self: Any, batch: Any, settled: Any) -> None:
        try:
            await original(self, batch, settled)
        except psycopg.OperationalError:
            settled.committed.extend(batch)

    return method(finisher.Finisher, "_write", write)
