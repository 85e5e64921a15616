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

    def make(original: Any) -> Any:
        async def rearm(self: Any, c: Any, ended: Any) -> bool:
            return bool(await original(self, c, []))

        return rearm

    return method(follow_up.FollowUp, "rearm", make)


def parks_without_a_second_check(_: Database) -> AbstractContextManager[None]:
    """A claim parks, and what ended while it did so is left to the sweeper."""

    def make(original: Any) -> Any:
        async def after(self: Any, c: Any) -> Any:
            self.decision.parked = []
            return await original(self, c)

        return after

    return method(claim.Claim, "_after_commit", make)


def forgets_unknown_commits(_: Database) -> AbstractContextManager[None]:
    """What a COMMIT of unknown outcome has claimed is nobody's business."""

    def make(original: Any) -> Any:
        async def resolve(self: Any) -> None:
            self._executions.clear()

        return resolve

    return method(unknown_commits.UnknownCommits, "resolve", make)


def looks_up_unlocked(_: Database) -> AbstractContextManager[None]:
    """The look-up of a COMMIT of unknown outcome does not wait for the old backend."""

    def make(original: Any) -> Any:
        async def lock(self: Any, c: Any, key: Any) -> None:
            return None

        return lock

    return method(statements.Statements, "lock_schedule", make)


def drops_outcomes(_: Database) -> AbstractContextManager[None]:
    """An outcome that the database does not take at once is taken for written."""

    def make(original: Any) -> Any:
        async def write(self: Any, batch: Any, settled: Any) -> None:
            try:
                await original(self, batch, settled)
            except psycopg.OperationalError:
                settled.committed.extend(batch)

        return write

    return method(finisher.Finisher, "_write", make)
