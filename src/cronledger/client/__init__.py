"""The ledger for programs: enqueue, trigger, wait, pause, resume, cancel, retry, adopt, why, next.

`Client` and `AsyncClient` call the public SQL functions and read the public views, as the command
line does, so that the role `cronledger_operator` is enough. Their methods are derived (`verbs`)
from one description of each call (`ledger.calls`), and differ in their sender (`ledger.senders`).
"""

from cronledger.client.clients import AsyncClient, Client
from cronledger.explain.adopting import Adoption
from cronledger.explain.why import Explanation
from cronledger.ledger.calls import Cancelled, Retried
from cronledger.ledger.refusals import LedgerError, NotFoundError
from cronledger.ledger.values import Execution, ManyResult, PlannedPause, SkippedRange
from cronledger.rules.calendars import ExcludedDate
from cronledger.rules.cron import Firing
from cronledger.rules.model import SkipReason, Status, Trigger
from cronledger.rules.problems import PayloadInvalidError

__all__ = [
    "Adoption",
    "AsyncClient",
    "Cancelled",
    "Client",
    "ExcludedDate",
    "Execution",
    "Explanation",
    "Firing",
    "LedgerError",
    "ManyResult",
    "NotFoundError",
    "PayloadInvalidError",
    "PlannedPause",
    "Retried",
    "SkipReason",
    "SkippedRange",
    "Status",
    "Trigger",
]
