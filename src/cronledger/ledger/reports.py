"""Reports for people: one method for each `list_*.sql` and `show_*.sql`, with rows as mappings."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from difflib import get_close_matches
from typing import Any, Self, TypeVar

import psycopg

from cronledger.ledger import queries
from cronledger.ledger.following import Following
from cronledger.ledger.transactions import transaction
from cronledger.rules import calendars
from cronledger.rules.calendars import Calendar, CalendarKey
from cronledger.rules.model import ScopeKey

T = TypeVar("T")

Row = dict[str, Any]
ReadRows = Callable[[str, Mapping[str, object]], list[Row]]
MANY_SCOPES = 100
MANY_NAMES = 10_000
NEWEST = 2**63 - 1
"""A number after all revisions."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The start of a summary: an instant of the database, and the skips counted until then."""

    since: datetime
    skipped: Mapping[tuple[str, str], int]


class Reports:
    """Readers of one schema. They lock nothing. Raise psycopg.Error.

    `read`: returns the rows of the statement of `sql/NAME.sql` with these parameters. `withheld`:
    something was left out because this role may not read it.
    """

    def __init__(self, read: ReadRows) -> None:
        self._rows = read
        self.withheld = False

    @classmethod
    def over(cls, connection: psycopg.Connection, schema: str) -> Self:
        """Return readers over a blocking connection, each in a transaction of its own."""

        def read(name: str, params: Mapping[str, object]) -> list[Row]:
            with transaction(connection):
                return queries.rows(connection, name, schema, params)

        return cls(read)

    def _read(self, name: str, **params: object) -> list[Row]:
        return self._rows(name, params)

    def _one(self, name: str, **params: object) -> Row | None:
        rows = self._read(name, **params)
        return rows[0] if rows else None

    def _permitted(self, name: str, **params: object) -> Row | None:
        """Return a row that only some roles may read, or None if this role may not."""
        try:
            return self._one(name, **params)
        except psycopg.errors.InsufficientPrivilege:
            self.withheld = True
            return None

    def now(self) -> datetime:
        """Return the database's time."""
        now: datetime = self._read("read_clock")[0]["now"]
        return now

    def jobs(
        self,
        *,
        queue: str | None = None,
        owner: str | None = None,
        labels: Mapping[str, str] | None = None,
        retired: bool = False,
    ) -> list[Row]:
        """Return the jobs by name. `labels`: all of these. `retired`: include retired ones."""
        return self._read(
            "list_jobs", queue=queue, owner=owner, labels=_json(labels), with_retired=retired
        )

    def job_durations(self, **params: object) -> list[Row]:
        """Return the median and the 95th percentile of the durations of jobs."""
        return self._read("list_job_durations", **params)

    def job(self, name: str) -> Row | None:
        """Return the definition of a job without target and payload, or None."""
        return self._one("show_job", job=name)

    def target(self, name: str) -> Row | None:
        """Return target and payload of a job, or None, also if this role may not read them."""
        return self._permitted("show_job_target", job=name)

    def scopes(self, job: str, limit: int = MANY_SCOPES) -> list[Row]:
        """Return the scopes of a job with their last executions, the soonest first."""
        return self._read("list_scopes", job=job, max_rows=limit)

    def sources(self) -> list[Row]:
        """Return the sources by name."""
        return self._read("list_sources")

    def pg_cron_jobs(self, source: str | None) -> list[Row]:
        """Return the jobs whose runs pg_cron records. `source`: only of this source."""
        return self._read("list_pg_cron_jobs", source=source)

    def retention(self) -> Row:
        """Return how long executions are kept: `keep`, `set_at`, `set_by`."""
        (row,) = self._read("show_retention")
        return row

    def revisions(self, job: str, limit: int = 10) -> list[Row]:
        """Return the revisions of a job, the newest first."""
        rows = self._read("list_revisions", job=job, before=NEWEST, max_rows=limit)
        return [_without(row, "definition") for row in rows]

    def executions(
        self,
        *,
        job: str | None = None,
        scope: str | None = None,
        owner: str | None = None,
        labels: Mapping[str, str] | None = None,
        statuses: Sequence[str] = (),
        runner: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
    ) -> list[Row]:
        """Return executions with plan_time in [since, until), the newest rows first.

        `owner`, `labels`: of jobs with this owner, and with all of these labels.
        """
        return self._read(
            "list_executions",
            job=job,
            scope=scope,
            owner=owner,
            labels=_json(labels),
            statuses=list(statuses) or None,
            runner=runner,
            since=since,
            until=until,
            max_rows=limit,
        )

    def breaches(
        self,
        *,
        only_open: bool = False,
        job: str | None = None,
        owner: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int = 50,
    ) -> list[Row]:
        """Return missed deadlines, the newest first. `only_open`: those that were not met late."""
        return self._read(
            "list_breaches",
            only_open=only_open,
            job=job,
            owner=owner,
            labels=_json(labels),
            max_rows=limit,
        )

    def compliance(
        self,
        *,
        month: date | None = None,
        job: str | None = None,
        owner: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> list[Row]:
        """Return the judged deadlines by (job, scope) and month. `month`: its first day."""
        return self._read(
            "list_compliance",
            month=month,
            job=job,
            scope_kind=None,
            scope_id=None,
            owner=owner,
            labels=_json(labels),
            max_rows=None,
        )

    def execution(self, execution_id: int, *, payload: bool = True) -> Row | None:
        """Return one execution without its output, or None. With its payload if the role may read
        it.
        """
        row = self._one("show_execution", id=execution_id)
        if row is not None and payload:
            row |= self._permitted("show_payload", id=execution_id) or {}
        return row

    def output(self, execution_id: int, attempt: int | None = None) -> Row | None:
        """Return the `output` of one execution, or None if the execution does not exist.

        `attempt`: None: the last one.
        """
        return self._one("show_output", id=execution_id, attempt=attempt)

    def followed(self, of: Following) -> Row | None:
        """Return the state of an execution for those who follow its output, or None."""
        return self._one("follow_output", **of.params)

    def announce_follow(self, execution_id: int) -> None:
        """Announce to the replicas that somebody follows the output of an execution."""
        self._one("call_announce_follow", id=execution_id)

    def runners(self, *, former: bool = False) -> list[Row]:
        """Return the runners of the last day, the last seen first; with `former` all that are kept.

        One that was not seen in time is `dead`.
        """
        rows = [
            row | {"state": "running"} if row["state"] == "alive" else row
            for row in self._read("list_runners", with_former=former, max_rows=None)
        ]
        rows.sort(key=lambda row: (row["state"] != "stopped", row["heartbeat_at"]), reverse=True)
        return rows

    def audit(
        self,
        *,
        since: datetime | None = None,
        by: str | None = None,
        verb: str | None = None,
        job: str | None = None,
        owner: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int = 50,
    ) -> list[Row]:
        """Return rows of the audit trail, the newest first. None does not restrict.

        `by`: requested by this person or program, or in a session of this role.
        """
        rows = self._read(
            "list_audit", since=since, by=by, verb=verb, job=job, owner=owner, label=None,
            labels=_json(labels), before=None, before_at=None, max_executions=2**31 - 1,
            max_read=None, max_rows=limit,
        )  # fmt: skip
        return [_without(row, "is_match", "is_last_read") for row in rows]

    def alerts(
        self,
        *,
        job: str | None = None,
        owner: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int = 50,
    ) -> list[Row]:
        """Return the alerts that were raised, the newest first. None does not restrict."""
        return self._read(
            "list_alerts", job=job, since=None, execution_id=None, owner=owner,
            labels=_json(labels), max_rows=limit,
        )  # fmt: skip

    def alert_states(
        self,
        *,
        job: str | None = None,
        owner: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int = 50,
    ) -> list[Row]:
        """Return the open states of alerts, the oldest first. None does not restrict."""
        return self._read(
            "list_alert_states", job=job, owner=owner, labels=_json(labels), max_rows=limit
        )

    def channels(self, channel: str | None = None) -> list[Row]:
        """Return the channels by name, with their last deliveries. None does not restrict."""
        return self._read("list_channels", channel=channel)

    def deliveries(
        self,
        *,
        delivery: int | None = None,
        channel: str | None = None,
        status: str | None = None,
        limit: int = 1,
    ) -> list[Row]:
        """Return deliveries of alerts, the newest first. None does not restrict."""
        return self._read(
            "list_deliveries", delivery=delivery, channel=channel, status=status, max_rows=limit
        )

    def pauses(self, *, over: bool = False, limit: int = 1000) -> list[Row]:
        """Return the pauses that are in force or planned. `over`: the others as well."""
        return self._read("list_pauses", over=over, max_rows=limit)

    def job_pauses(self, job: str, limit: int = 1000) -> list[Row]:
        """Return the pauses of a job that are in force or planned, the first one first."""
        return self._read("list_job_pauses", job=job, max_rows=limit)

    def selected_jobs(
        self,
        *,
        job: str | None = None,
        queue: str | None = None,
        owner: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> list[Row]:
        """Return the jobs that a pause of this selection would cover, as `job` does.

        `scope_count` and `first_scope`: of the scopes that are planned.
        """
        return self._read(
            "list_selected_jobs", job=job, queue=queue, owner=owner, labels=_json(labels)
        )

    def all_calendars(self, calendar: str | None = None) -> list[Row]:
        """Return the calendars by name, without their dates. None does not restrict."""
        return self._read("list_calendars", calendar=calendar)

    def calendar_revisions(self, calendar: str, limit: int = 10) -> list[Row]:
        """Return the revisions of a calendar, without their dates, the newest first."""
        return self._read("list_calendar_revisions", calendar=calendar, max_rows=limit)

    def calendar(self, calendar: str, revision: int | None = None) -> Row | None:
        """Return a revision of a calendar, by default the current one; None if there is none."""
        return self._one("show_calendar", calendar=calendar, revision=revision)

    def queues(self) -> list[Row]:
        """Return the queues in use by name: limit, pause, waiting and running executions."""
        return self._read("list_queues", max_rows=None)

    def hosts(self) -> list[Row]:
        """Return the hosts by name, retired ones last."""
        return self._read("list_hosts")

    def report_tokens(
        self, *, job: str | None = None, revoked: bool = False, limit: int = 1000
    ) -> list[Row]:
        """Return the valid report tokens by id. `revoked`: include revoked tokens."""
        return self._read("list_report_tokens", job=job, revoked=revoked, max_rows=limit)

    def job_names(self, prefix: str, limit: int) -> list[Row]:
        """Return the `name` of each job that begins with `prefix` and is not retired."""
        return self._read("list_job_names", prefix=prefix, max_rows=limit)

    def similar_job(self, name: str) -> str | None:
        """Return the name of the job that is most similar to `name`, or None if none is similar."""
        names = [row["name"] for row in self.job_names("", MANY_NAMES)]
        return next(iter(get_close_matches(name, names, n=1)), None)

    def queue_names(self, prefix: str, limit: int) -> list[Row]:
        """Return the `name` of each queue in use that begins with `prefix`."""
        return self._read("list_queue_names", prefix=prefix, max_rows=limit)

    def scope_names(self, job: str, prefix: str, limit: int) -> list[Row]:
        """Return the scope_ids of a job that begin with `prefix`, as `name`."""
        return self._read("list_scope_names", job=job, prefix=prefix, max_rows=limit)

    def job_hosts(self, job: str) -> list[str]:
        """Return the hosts on which a job runs, or none if its scopes are not hosts."""
        return [row["name"] for row in self._read("list_job_hosts", job=job)]

    def recent_failures(self, prefix: str, limit: int) -> list[Row]:
        """Return the executions that failed last, and whose ids begin with `prefix`."""
        return self._read("list_recent_failures", prefix=prefix, max_rows=limit)

    def running(self, prefix: str, limit: int) -> list[Row]:
        """Return the RUNNING executions whose ids begin with `prefix`, the last started first."""
        return self._read("list_running_ids", prefix=prefix, max_rows=limit)

    def schedule(self, key: ScopeKey) -> Row | None:
        """Return the state of planning of one scope, or None if the scope does not exist."""
        return self._one("show_schedule", **queries.scope(key))

    def history(self, job: str) -> list[Row]:
        """Return all revisions of a job, the oldest first, with the columns of its definition.

        target, payload and scopes are None.
        """
        return self._read("list_history", job=job)

    def calendars(self, rows: Iterable[Row]) -> dict[CalendarKey, Calendar]:
        """Return the calendars that these rows of jobs, or of their history, name."""
        return calendars.by_key(self.calendar_rows(rows))

    def calendar_rows(self, rows: Iterable[Row]) -> list[Row]:
        """Return the same as rows of `calendar_revisions`."""
        keys = calendars.named_in(rows)
        return self._read("read_calendars", **queries.calendar_keys(keys)) if keys else []

    def backfill_actions(
        self,
        key: ScopeKey,
        plan_times: Sequence[datetime],
        reprocess: str,
        ended_before: datetime | None,
    ) -> list[Row]:
        """Return what a backfill would do for each of these plan_times, in their order."""
        return self._read(
            "list_backfill_actions",
            plan_times=list(plan_times),
            reprocess=reprocess,
            ended_before=ended_before,
            **queries.scope(key),
        )

    def executions_at(self, key: ScopeKey, since: datetime, until: datetime) -> list[Row]:
        """Return the executions of one scope with plan_time in [since, until), in their order."""
        return self._read("list_executions_at", since=since, until=until, **queries.scope(key))

    def latest_executions(self, key: ScopeKey, limit: int) -> list[Row]:
        """Return the unfinished executions of one scope; if there are none, the one that ended
        last.
        """
        return self._read("list_latest_executions", max_rows=limit, **queries.scope(key))

    def skips_at(self, key: ScopeKey, since: datetime, until: datetime) -> list[Row]:
        """Return the skips of one scope whose range reaches into [since, until)."""
        return self._read("list_skips_at", since=since, until=until, **queries.scope(key))

    def covering_window(self, key: ScopeKey, plan_time: datetime) -> Row | None:
        """Return the window of a later success that contains a plan_time, or None."""
        return self._one("show_covering_window", plan_time=plan_time, **queries.scope(key))

    def planned_skips_at(self, key: ScopeKey, since: datetime, until: datetime) -> list[Row]:
        """Return the planned skips of one scope that contain an instant of [since, until)."""
        return self._read(
            "list_planned_skips_at", since=since, until=until, max_rows=None, **queries.scope(key)
        )

    def planned_skips(
        self, job: str | None = None, *, with_former: bool = False, limit: int = 1000
    ) -> list[Row]:
        """Return planned skips by their first plan_time, without those that are over."""
        return self._read("list_planned_skips", job=job, with_former=with_former, max_rows=limit)

    def signs_of_life(self, at: datetime) -> Row:
        """Return the signs of runners around `at`.

        `before`, `after`: the last sign up to `at` and the next one, or None. `alive`: the runners
        that were seen both before and after.
        """
        return self._read("show_signs_of_life", at=at)[0]

    def provider_trouble(self, job: str) -> Row | None:
        """Return reason, detail and due_at of a scope provider that fails or is not asked."""
        return self._one("show_provider_trouble", job=job)

    def failing(self, runner: str) -> str | None:
        """Return the errors of a live runner that cannot write outcomes; else None."""
        row = self._one("show_failing_runner", runner=runner)
        return None if row is None else row["failing"]

    def overdue(self, key: ScopeKey, execution_id: int | None = None) -> Row | None:
        """Return reason, detail and due_at if one scope, or this execution of it, is overdue."""
        return self._one("show_overdue", **queries.scope(key), execution_id=execution_id)

    def oldest_kept(self) -> datetime | None:
        """Return the first plan_time that the oldest partition can hold."""
        oldest: datetime | None = self._read("show_oldest_kept")[0]["oldest"]
        return oldest

    def unfinished(self, key: ScopeKey, first: datetime, before: datetime) -> int:
        """Return the number of executions with plan_time in [first, before) that have not ended."""
        row = self._read("show_unfinished", first=first, before=before, **queries.scope(key))[0]
        return int(row["unfinished"])

    def ends_since(
        self, key: ScopeKey, first: datetime, before: datetime, since: datetime
    ) -> dict[str, int]:
        """Count by status the executions with plan_time in [first, before) written since then."""
        rows = self._read(
            "list_ends_since", first=first, before=before, since=since, **queries.scope(key)
        )
        return {row["status"]: int(row["count"]) for row in rows}

    def mark(self) -> Mark:
        """Return the start of a later `summary`."""
        return Mark(self.now(), self._skipped())

    def _skipped(self) -> dict[tuple[str, str], int]:
        return {
            (row["job_name"], row["reason"]): int(row["count"])
            for row in self._read("list_skip_totals")
        }

    def summary(self, mark: Mark) -> list[Row]:
        """Return the totals of each job since `mark`: executions by status, attempts, skips.

        `statuses` and `skipped` map a word to its count. Jobs without either are left out.
        """
        found: dict[str, Row] = {}

        def of(job: str) -> Row:
            return found.setdefault(job, {"job": job, "statuses": {}, "attempts": 0, "skipped": {}})

        for row in self._read("list_recent_totals", since=mark.since):
            of(row["job_name"])["statuses"][row["status"]] = row["count"]
            of(row["job_name"])["attempts"] += row["attempts"]
        for (job, reason), count in self._skipped().items():
            # A count decreases when old skips are pruned.
            if (more := count - mark.skipped.get((job, reason), 0)) > 0:
                of(job)["skipped"][reason] = more
        return [found[job] for job in sorted(found)]


def _without(row: Row, *columns: str) -> Row:
    return {name: value for name, value in row.items() if name not in columns}


def _json(labels: Mapping[str, str] | None) -> str | None:
    return json.dumps(dict(labels)) if labels else None


async def in_thread(
    rows: Callable[[str, Mapping[str, object]], Coroutine[Any, Any, list[Row]]],
    compute: Callable[[ReadRows], T],
) -> T:
    """Return what `compute` returns in a thread, for which `rows` reads on this event loop.

    Once a caller has cancelled it, the thread reads nothing more. A connection of the caller may
    then belong to somebody else.
    """
    loop = asyncio.get_running_loop()
    reading: asyncio.Task[Any] | None = None
    cancelled = False

    async def read_on_loop(name: str, params: Mapping[str, object]) -> list[Row]:
        nonlocal reading
        if cancelled:
            raise asyncio.CancelledError
        reading = asyncio.current_task()
        return await rows(name, params)

    def read(name: str, params: Mapping[str, object]) -> list[Row]:
        return asyncio.run_coroutine_threadsafe(read_on_loop(name, params), loop).result()

    try:
        return await asyncio.to_thread(compute, read)
    except asyncio.CancelledError:
        cancelled = True
        if reading is not None:
            reading.cancel()
            await asyncio.wait([reading])
        raise
