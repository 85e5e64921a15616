"""The metrics of the whole ledger: their names, their labels, and their values in a snapshot."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily

from cronledger.metrics.ledger_snapshot import Row, Snapshot, version

OVERDUE = (
    "behind", "database", "delivery", "external", "lease_expired", "limit", "no_provider",
    "no_runner", "no_slot", "paused", "provider_failed", "queue_paused", "retired", "spec_error",
    "waiting",
)  # fmt: skip
"""The reasons of the view `overdue`."""
SKIPPED = (
    "calendar", "host_absent", "missed", "not_reported", "operator", "overlap", "paused", "retired",
    "superseded", "upstream",
)  # fmt: skip
STATES = ("alive", "dead", "draining", "failing", "refused", "stopped")
"""The states of the view `runner_status`."""
VIOLATIONS = ("gate", "over_limit", "parked", "stale")
"""The kinds of the view `present_violations`."""
BREACHES = ("expect_duration", "finish_by", "start_by")

Sample = tuple[Sequence[str], float]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: a gauge with this name, these labels and this help text."""

    name: str
    labels: tuple[str, ...]
    help: str

    def family(self, samples: Iterable[Sample]) -> GaugeMetricFamily:
        """Return the family with these samples: the values of the labels, and the value."""
        family = GaugeMetricFamily(self.name, self.help, labels=self.labels)
        for labels, value in samples:
            family.add_metric(labels, value)
        return family


JOB = ("job",)
REASON, QUEUE = ("reason",), ("queue",)
METRICS = (
    Metric("cronledger_up", (), "1 if the ledger could be read for this scrape, otherwise 0."),
    Metric("cronledger_build_info", ("version",), "Version of the program that read the ledger."),
    Metric("cronledger_snapshot_timestamp_seconds", (),
           "Instant of the values, in the time of the database."),
    Metric("cronledger_snapshot_duration_seconds", (), "Time that it took to read the values."),
    Metric("cronledger_schema_version", (), "Number of the last migration that was applied."),
    Metric("cronledger_jobs", (), "Jobs that are not retired."),
    Metric("cronledger_job_series_limit", (),
           "Maximum number of jobs with series of their own."),
    Metric("cronledger_job_series_omitted", (),
           "Jobs without series of their own, because of the limit."),
    Metric("cronledger_job_info", ("job", "queue", "schedule", "timezone", "handler", "owner"),
           "Definition of a job."),
    Metric("cronledger_job_scopes", JOB, "Scopes of a job that are not retired."),
    Metric("cronledger_job_spec_suspend", JOB, "1 if the job is paused, otherwise 0."),
    Metric("cronledger_job_next_schedule_time", JOB,
           "Next plan_time, the earliest of all scopes. Absent if the job has none or is paused."),
    Metric("cronledger_job_status_last_schedule_time", JOB,
           "Newest past plan_time with an execution. Absent if there is none."),
    Metric("cronledger_job_status_last_successful_time", JOB,
           "End of the newest plan_time that succeeded. Absent if none succeeded."),
    Metric("cronledger_job_status_active", JOB, "Executions of a job that are RUNNING."),
    Metric("cronledger_job_progress_ratio", JOB,
           "Smallest share of its work that a RUNNING execution of a job has reported as done. "
           "Absent if none has reported a total."),
    Metric("cronledger_job_status_consecutive_failures", JOB,
           "FAILED executions since the last success, at most 100, in the worst scope."),
    Metric("cronledger_job_overdue_seconds", ("job", "reason"),
           "Longest time for which work of a job has been due. Absent if none is overdue."),
    Metric("cronledger_job_skipped_plan_times", ("job", "reason"),
           "plan_times of a job that were skipped in the last 24 hours. Absent if there are none."),
    Metric("cronledger_job_failures_final", JOB,
           "Executions of a job in cronledger_failures_final. Absent if there are none."),
    Metric("cronledger_job_breaches", ("job", "kind"),
           "Deadlines of a job in cronledger_breaches. Absent if there are none."),
    Metric("cronledger_overdue", REASON,
           "Rows of the view overdue: due for more than 2 s and not started, "
           "or RUNNING with an expired lease."),
    Metric("cronledger_overdue_seconds_max", REASON,
           "Longest time for which a row of the view overdue has been due."),
    Metric("cronledger_skipped_plan_times", REASON,
           "plan_times of the last 24 hours that were skipped."),
    Metric("cronledger_failures_final", (),
           "Executions that became FAILED in the last hour and are not retried, at most 10000."),
    Metric("cronledger_start_lateness_p99_seconds", (),
           "Time after due_at within which 99 of 100 plan_times of the last hour started. "
           "Absent if there are none."),
    Metric("cronledger_queue_depth", QUEUE,
           "Executions and schedules that are in the view overdue."),
    Metric("cronledger_queue_running", QUEUE, "Executions of a queue that are RUNNING."),
    Metric("cronledger_queue_limit", QUEUE, "max_running of a queue. Absent if it has no limit."),
    Metric("cronledger_queue_paused", QUEUE, "1 if the queue is paused, otherwise 0."),
    Metric("cronledger_queue_series_omitted", (),
           "Queues without series of their own, because there are too many."),
    Metric("cronledger_runners", ("state",),
           "Replicas of the last day by state, without workers in other languages."),
    Metric("cronledger_runner_crashes", (),
           "Attempts of the last day that ended because their runner vanished."),
    Metric("cronledger_violations", ("kind",), "Violations of the current state."),
    Metric("cronledger_breaches", ("kind",),
           "Deadlines that were missed in the last day and not met since."),
    Metric("cronledger_alerts_undelivered", ("channel",),
           "Alerts of the last day that were not delivered within 5 minutes."),
    Metric("cronledger_channel_series_omitted", (),
           "Channels without series of their own, because there are too many."),
    Metric("cronledger_partition_horizon_timestamp_seconds", (),
           "End of the partitions of executions that follow each other without a gap from now on."),
    Metric("cronledger_verify_last_timestamp_seconds", (),
           "End of the last run of verify over all jobs. Absent if none is recorded."),
    Metric("cronledger_verify_last_age_seconds", (),
           "Time since the last run of verify over all jobs. Absent if none is recorded."),
    Metric("cronledger_verify_last_violations", (),
           "Violations found by the last run of verify over all jobs. Absent if none is recorded."),
)  # fmt: skip


def families(snapshot: Snapshot | None) -> Iterator[GaugeMetricFamily]:
    """Yield the metrics of a snapshot.

    If `snapshot` is None, the ledger could not be read. Then only `cronledger_up` and the version
    are yielded.
    """
    values: dict[str, Iterable[Sample]] = {
        "up": _one(0.0 if snapshot is None else 1.0),
        "build_info": [((version(),), 1.0)],
    }
    if snapshot is not None:
        values |= _of_ledger(snapshot) | _of_jobs(snapshot) | _of_queues(snapshot)
    for metric in METRICS:
        samples = values.get(metric.name.removeprefix("cronledger_"))
        if samples is not None:
            yield metric.family(samples)


def _of_ledger(snapshot: Snapshot) -> dict[str, Iterable[Sample]]:
    overdue = dict.fromkeys(OVERDUE, 0) | _sums(snapshot.overdue, "reason", "count")
    longest: dict[str, float] = dict.fromkeys(overdue, 0.0)
    for row in snapshot.overdue:
        longest[row["reason"]] = max(longest[row["reason"]], row["seconds"])
    verified = snapshot.verification
    ended = None if verified is None else verified["finished_at"]
    return {
        "snapshot_timestamp_seconds": _one(snapshot.now),
        "snapshot_duration_seconds": _one(snapshot.seconds),
        "schema_version": _one(snapshot.schema_version),
        "overdue": _by_label(overdue),
        "overdue_seconds_max": _by_label(longest),
        "skipped_plan_times": _by_label(
            dict.fromkeys(SKIPPED, 0) | _sums(snapshot.skips, "reason", "count")
        ),
        "failures_final": _one(sum(row["count"] for row in snapshot.failures)),
        "start_lateness_p99_seconds": _one(snapshot.lateness),
        "runners": _by_label(dict.fromkeys(STATES, 0) | _sums(snapshot.runners, "state", "count")),
        "runner_crashes": _one(snapshot.crashes),
        "violations": _by_label(
            dict.fromkeys(VIOLATIONS, 0) | _sums(snapshot.violations, "kind", "count")
        ),
        "breaches": _by_label(
            dict.fromkeys(BREACHES, 0) | _sums(snapshot.breaches, "kind", "count")
        ),
        "partition_horizon_timestamp_seconds": _one(snapshot.horizon),
        "verify_last_timestamp_seconds": _one(ended),
        "verify_last_age_seconds": _one(
            None if ended is None else (snapshot.now - ended).total_seconds()
        ),
        "verify_last_violations": _one(None if verified is None else verified["violations"]),
    }


def _of_jobs(snapshot: Snapshot) -> dict[str, Iterable[Sample]]:
    jobs = snapshot.jobs
    total = jobs[0]["total"] if jobs else 0
    names = {job["name"] for job in jobs}
    longest: dict[tuple[str, str], float] = {}
    for row in snapshot.overdue:
        key = row["job_name"], row["reason"]
        longest[key] = max(longest.get(key, 0.0), row["seconds"])

    def counted(rows: Iterable[Row], *by: str) -> list[Sample]:
        return [
            (tuple(row[column] for column in ("job_name", *by)), float(row["count"]))
            for row in rows
            if row["job_name"] in names
        ]

    info = ("name", "queue", "schedule", "timezone", "handler", "owner")
    return {
        "jobs": _one(total),
        "job_series_limit": _one(snapshot.job_limit),
        "job_series_omitted": _one(total - len(jobs)),
        "job_info": [(tuple(job[column] or "" for column in info), 1.0) for job in jobs],
        "job_scopes": _column(jobs, "name", "scopes"),
        "job_spec_suspend": _column(jobs, "name", "paused"),
        "job_next_schedule_time": _column(jobs, "name", "next_plan_time"),
        "job_status_last_schedule_time": _column(jobs, "name", "last_plan_time"),
        "job_status_last_successful_time": _column(jobs, "name", "last_success_at"),
        "job_status_active": _column(jobs, "name", "running"),
        "job_progress_ratio": _column(
            [row for row in snapshot.progress if row["name"] in names], "name", "share"
        ),
        "job_status_consecutive_failures": _column(jobs, "name", "consecutive_failures"),
        "job_overdue_seconds": [(key, x) for key, x in longest.items() if key[0] in names],
        "job_skipped_plan_times": counted(snapshot.skips, "reason"),
        "job_failures_final": counted(snapshot.failures),
        "job_breaches": counted(snapshot.breaches, "kind"),
    }


def _of_queues(snapshot: Snapshot) -> dict[str, Iterable[Sample]]:
    queues, channels = snapshot.queues, snapshot.undelivered
    depths = _sums(snapshot.overdue, "queue", "executions")
    return {
        "queue_depth": [((row["name"],), depths.get(row["name"], 0)) for row in queues],
        "queue_running": _column(queues, "name", "running"),
        "queue_limit": _column(queues, "name", "max_running"),
        "queue_paused": _column(queues, "name", "paused"),
        "queue_series_omitted": _one(queues[0]["total"] - len(queues) if queues else 0),
        "alerts_undelivered": _column(channels, "channel", "count"),
        "channel_series_omitted": _one(channels[0]["total"] - len(channels) if channels else 0),
    }


def _sums(rows: Iterable[Row], by: str, column: str) -> dict[str, int]:
    sums: dict[str, int] = {}
    for row in rows:
        sums[row[by]] = sums.get(row[by], 0) + row[column]
    return sums


def _one(value: float | datetime | None) -> list[Sample]:
    return [] if value is None else [((), _number(value))]


def _by_label(values: Mapping[str, float]) -> list[Sample]:
    return [((label,), float(value)) for label, value in values.items()]


def _column(rows: Iterable[Row], name: str, column: str) -> list[Sample]:
    """Return a sample for each row whose column has a value."""
    return [((row[name],), _number(row[column])) for row in rows if row[column] is not None]


def _number(value: float | datetime) -> float:
    return value.timestamp() if isinstance(value, datetime) else float(value)
