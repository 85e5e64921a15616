"""The record of a run of `verify`, which the view `verifications` shows.

A run is recorded when it begins and when it ends, each time in a transaction of its own. The role
needs cronledger_operator or cronledger_runner.
"""

from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from importlib import metadata
from typing import Any, Literal, Self

import psycopg
from psycopg.types.json import Jsonb

from cronledger.audit.verify import Report
from cronledger.ledger import queries
from cronledger.ledger.transactions import transaction


@dataclass(frozen=True, slots=True)
class Recording:
    """One run of `verify` that is recorded. `connection` is idle whenever a method is called."""

    connection: psycopg.Connection[Any]
    schema: str
    run: int

    @classmethod
    def begin(
        cls,
        connection: psycopg.Connection[Any],
        schema: str,
        *,
        job: str | None,
        from_: datetime | None,
        to: datetime | None,
        requested_by: str,
    ) -> Self:
        """Record the beginning of a run on this job (None: all) and range.

        Raises psycopg.Error: InsufficientPrivilege if the role may only read, and
        ReadOnlySqlTransaction on a standby.
        """
        given = {"job": job, "from_": from_, "to": to, "requested_by": requested_by}
        given["version"] = metadata.version("cronledger")
        with transaction(connection):
            (row,) = queries.rows(connection, "call_begin_verification", schema, given)
        return cls(connection, schema, row["id"])

    def finish(self, report: Report) -> None:
        """Record that the run has checked its range, with the counts of its report.

        Raises psycopg.Error.
        """
        self._end(report, "finished", None)

    def interrupt(self, report: Report | None, reason: BaseException) -> bool:
        """Record that the run was stopped, with the counts of its report until then.

        Return whether that is recorded. If the database is out of reach, the run stays unfinished.
        """
        if report is not None:
            report.close()
        text = f"{type(reason).__name__}: {reason}".removesuffix(": ")
        with suppress(psycopg.Error):
            self._end(report, "interrupted", text)
            return True
        return False

    def _end(
        self, report: Report | None, outcome: Literal["finished", "interrupted"], error: str | None
    ) -> None:
        report = report if report is not None else Report(lambda _: iter(()))
        given = {
            **asdict(report.tally), "violations": report.violations, "accepted": report.accepted,
            "kinds": Jsonb(dict(report.kinds)), "outcome": outcome, "error": error, "run": self.run,
        }  # fmt: skip
        with transaction(self.connection):
            queries.rows(self.connection, "call_end_verification", self.schema, given)
