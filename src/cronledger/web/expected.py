"""What is expected of the running executions that a page shows."""

from collections.abc import Sequence
from datetime import datetime

from cronledger.explain import durations
from cronledger.explain.expected import running_jobs, with_expected
from cronledger.ledger.reports import Row
from cronledger.web.reading import Reader

FRESH_SECONDS = 60.0
"""The usual durations change once an hour."""


async def expected(reader: Reader, rows: Sequence[Row], now: datetime | None) -> list[Row]:
    """Return executions with their progress and their expected end."""
    jobs = running_jobs(rows)
    if not jobs or now is None:
        return list(rows) if now is None else with_expected(rows, {}, now)
    found = await reader.read(
        "list_job_durations", fresh=FRESH_SECONDS, **durations.parameters(jobs, now)
    )
    return with_expected(rows, durations.by_job(found.known), now)
