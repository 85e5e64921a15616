"""The summary that a process prints at its end."""

import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from cronledger.ledger.reports import Mark, Reports, Row
from cronledger.process.tables import print_table
from cronledger.rules.model import Status


@dataclass(frozen=True, slots=True)
class Summary:
    """What the ledger has since `mark`."""

    mark: Mark

    @classmethod
    def begin(cls, reports: Reports) -> Self:
        """Return a summary that begins now. Raises psycopg.Error."""
        return cls(reports.mark())

    def text(self, reports: Reports) -> str:
        """Return a table of the executions by status, and of the skips, of each job until now.

        Raises psycopg.Error.
        """
        return _text(reports.summary(self.mark), self.mark.since, reports.now())


def _text(rows: Sequence[Row], since: datetime, now: datetime) -> str:
    length = timedelta(seconds=round((now - since).total_seconds()))
    head = f"\nSince {since:%Y-%m-%dT%H:%M:%SZ}, {length}, the ledger has\n"
    if not rows:
        return head + "no executions and no skips\n"
    present = Counter(status for row in rows for status in row["statuses"])
    statuses = [status.value for status in Status if status in present or status == "SUCCESS"]
    cells = [
        [
            row["job"],
            *(row["statuses"].get(status, 0) for status in statuses),
            row["attempts"],
            ", ".join(f"{count} {reason}" for reason, count in sorted(row["skipped"].items())),
        ]
        for row in rows
    ]
    headings = ["job", *statuses, "attempts", "skipped"]
    with io.StringIO() as text:
        print_table(headings, [[str(cell) for cell in row] for row in cells], text)
        return head + text.getvalue()
