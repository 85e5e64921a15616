"""Read the runs that pg_cron has recorded in `cron.job_run_details`, for reports to the ledger."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import class_row

LABEL = "pg_cron"
"""The label of an observed job whose value is the jobid of its job in pg_cron."""
BATCH = 1000
_SAME_CLOCK = timedelta(seconds=1)

_SERVER = """
SELECT clock_timestamp(), coalesce(current_setting('cron.log_run', true), 'on') = 'on',
       ARRAY(SELECT jobid FROM cron.job), EXISTS (SELECT FROM cron.job_run_details)"""
# A run that pg_cron has recorded and not started has no start_time. One that a restart of the
# server ended has no end_time. The command of `import pg_cron --observe` reports its runs itself.
_RUNS = """
SELECT u.job, 'pg_cron:' || d.runid AS run_key, d.start_time AS started_at,
       CASE WHEN d.status IN ('succeeded', 'failed')
            THEN coalesce(d.end_time, clock_timestamp()) END AS ended_at,
       CASE d.status WHEN 'failed' THEN coalesce(d.return_message, 'failed') END AS error,
       CASE d.status WHEN 'succeeded' THEN d.return_message END AS output
FROM cron.job_run_details d
JOIN unnest(%s::bigint[], %s::text[], %s::timestamptz[]) AS u (jobid, job, since)
  ON d.jobid = u.jobid
WHERE (d.start_time > u.since OR d.start_time IS NOT NULL AND d.runid = ANY (%s::bigint[]))
  AND d.command NOT LIKE '%%.observe_start(%%'
ORDER BY u.job COLLATE "C", d.start_time, d.runid"""


class Run(NamedTuple):
    """A run of an observed job, by the clock of the ledger. `ended_at` None: it still runs."""

    job: str
    run_key: str
    started_at: datetime
    ended_at: datetime | None
    error: str | None
    output: str | None

    def shifted(self, by: timedelta) -> "Run":
        """Return the run by another clock, which is ahead by this time."""
        ended = None if self.ended_at is None else self.ended_at + by
        return self._replace(started_at=self.started_at + by, ended_at=ended)


class History:
    """The history of a database that has pg_cron. Raises psycopg.Error.

    `jobs`: the rows of `list_pg_cron_jobs`. `now`: returns the time of the ledger, from which the
    clock of the other server may differ.
    """

    def __init__(
        self,
        connection: psycopg.Connection,
        jobs: Sequence[Mapping[str, Any]],
        now: Callable[[], datetime],
    ) -> None:
        self._connection = connection
        self._jobs = jobs
        ledger = now()
        here, self.is_recorded, ids, _ = connection.execute(_SERVER).fetchall()[0]
        ahead = ledger - here
        self._ahead = ahead if abs(ahead) > _SAME_CLOCK else timedelta(0)
        self.unknown = {
            job["name"]: job["jobid"] for job in jobs if job["observed"] and job["jobid"] not in ids
        }
        """The observed jobs that pg_cron does not have, or that this role may not see."""

    def batches(self) -> Iterator[list[Run]]:
        """Yield the runs that may not be reported yet, by job and start."""
        parameters = (
            [job["jobid"] for job in self._jobs],
            [job["name"] for job in self._jobs],
            [job["since"] - self._ahead for job in self._jobs],
            [run for job in self._jobs for run in job["open"]],
        )
        with self._connection.cursor("history", row_factory=class_row(Run)) as cursor:
            cursor.execute(_RUNS, parameters)
            while runs := cursor.fetchmany(BATCH):
                yield [run.shifted(self._ahead) for run in runs]
