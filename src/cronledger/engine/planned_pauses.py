"""Planned pauses: a transaction that begins those that are due, and one that edits their jobs.

Claims run them, and the step for deadlines, because no replica claims while it has no free slot.
"""

from cronledger.ledger.connections import StepConnection
from cronledger.ledger.statements import Statements
from cronledger.ledger.transactions import step_transaction
from cronledger.logs.loggers import get_logger

log = get_logger(__name__)


async def begin(c: StepConnection, statements: Statements) -> None:
    """Begin the pauses that are due. Raises psycopg.Error."""
    async with step_transaction(c):
        result = await statements.begin_pauses(c)
    if began := await result.fetchone():
        log.info("pauses_began", pauses=began)


async def settle(c: StepConnection, statements: Statements) -> bool:
    """Edit jobs whose pauses have begun or ended, and return whether there were any.

    Raises psycopg.Error.
    """
    async with step_transaction(c):
        result = await statements.settle_pauses(c)
    settled = await result.fetchone()
    if settled:
        log.info("pauses_settled", jobs=settled)
    return bool(settled)
