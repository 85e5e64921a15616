"""What is expected of the running executions that a page shows."""

from collections.abc import Sequence
from datetime import datetime
from time import monotonic

from cronledger.explain import durations
from cronledger.explain.durations import Durations
from cronledger.explain.expected import running_jobs, with_expected
from cronledger.ledger.reports import Row
from cronledger.web.reading import Reader

FRESH_SECONDS = 60.0
"""The usual durations change once an hour."""


class Expectations:
    """Knows the usual durations of jobs. Those of a job are read once in FRESH_SECONDS."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._known: dict[str, tuple[float, Durations | None]] = {}

    async def of(self, rows: Sequence[Row], now: datetime | None) -> list[Row]:
        """Return executions with their progress and their expected end."""
        if now is None:
            return list(rows)
        jobs = running_jobs(rows)
        until = monotonic() - FRESH_SECONDS
        if missing := [job for job in jobs if self._known.get(job, (until,))[0] <= until]:
            await self._read(missing, now)
        known = {job: found for job in jobs if (found := self._known.get(job, (0, None))[1])}
        return with_expected(rows, known, now)

    async def _read(self, jobs: Sequence[str], now: datetime) -> None:
        found = await self._reader.read_once(
            "list_job_durations", **durations.parameters(jobs, now)
        )
        if found.rows is None:
            return
        read_at, of_job = monotonic(), durations.by_job(found.rows)
        recent = {job: one for job, one in self._known.items() if one[0] > read_at - FRESH_SECONDS}
        self._known = recent | {job: (read_at, of_job.get(job)) for job in jobs}
