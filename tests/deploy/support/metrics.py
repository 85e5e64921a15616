"""The metrics that rules and dashboards may use, and the metrics that an expression uses."""

import re
from collections.abc import Iterator

JOB = ("job",)
OF_LEDGER = {
    "up": (),
    "build_info": ("version",),
    "schema_version": (),
    "snapshot_timestamp_seconds": (),
    "snapshot_duration_seconds": (),
    "jobs": (),
    "job_series_limit": (),
    "job_series_omitted": (),
    "job_info": ("job", "queue", "schedule", "timezone", "handler", "owner"),
    "job_scopes": JOB,
    "job_spec_suspend": JOB,
    "job_next_schedule_time": JOB,
    "job_status_last_schedule_time": JOB,
    "job_status_last_successful_time": JOB,
    "job_status_active": JOB,
    "job_status_consecutive_failures": JOB,
    "overdue": ("reason",),
    "overdue_seconds_max": ("reason",),
    "skipped_plan_times": ("reason",),
    "failures_final": (),
    "start_lateness_p99_seconds": (),
    "queue_depth": ("queue",),
    "queue_running": ("queue",),
    "queue_limit": ("queue",),
    "queue_paused": ("queue",),
    "queue_series_omitted": (),
    "runners": ("state",),
    "runners_lost": (),
    "runner_crashes": (),
    "violations": ("kind",),
    "breaches": ("kind",),
    "alerts_undelivered": ("channel",),
    "channel_series_omitted": (),
    "partition_horizon_timestamp_seconds": (),
    "verify_last_timestamp_seconds": (),
    "verify_last_age_seconds": (),
    "verify_last_violations": (),
}
OF_REPLICA = {
    "executions_total": ("queue", "handler", "outcome"),
    "execution_duration_seconds": ("queue", "handler"),
    "start_lateness_seconds": ("queue",),
    "claim_duration_seconds": (),
    "slots": (),
    "running": (),
    "unwritten_outcomes": (),
    "leases_lost_total": (),
    "loop_errors_total": ("loop",),
    "loop_age_seconds": ("loop",),
    "clock_skew_seconds": (),
    "state": ("state",),
    "database_reachable": (),
    "build_info": ("version", "python", "schema_version"),
}
HISTOGRAMS = ("execution_duration_seconds", "start_lateness_seconds", "claim_duration_seconds")
OF_PROMETHEUS = ("job", "instance")
OF_PROCESS = ("process_cpu_seconds_total", "process_resident_memory_bytes")


def named() -> dict[str, tuple[str, ...]]:
    """Return each metric of the ledger and of replicas, with its labels."""
    found = {f"cronledger_{name}": labels for name, labels in OF_LEDGER.items()}
    return found | {f"cronledger_replica_{name}": labels for name, labels in OF_REPLICA.items()}


def known() -> dict[str, tuple[str, ...]]:
    """Return each series that an expression may select, with its labels."""
    found: dict[str, tuple[str, ...]] = {"up": (), **dict.fromkeys(OF_PROCESS, ())}
    for name, labels in named().items():
        if name.removeprefix("cronledger_replica_") not in HISTOGRAMS:
            found[name] = labels
            continue
        found |= {f"{name}_bucket": (*labels, "le"), f"{name}_sum": labels}
        found[f"{name}_count"] = labels
    return found


_ROW = re.compile(r"^\| `(cronledger_\w+)` \|(?: (?:gauge|counter|histogram) \|)?([^|]*)\|", re.M)


def documented(page: str) -> dict[str, tuple[str, ...]]:
    """Return each metric of the tables of docs/metrics.md, with its labels."""
    return {name: tuple(re.findall(r"`(\w+)`", labels)) for name, labels in _ROW.findall(page)}


_TEXT = re.compile(r'"[^"]*"')
_METRIC = re.compile(r"\b(up|cronledger_\w+|process_\w+)\b(?:\{([^}]*)\})?")
_GROUPED = re.compile(r"\b(?:by|on|without|ignoring) \(([^)]*)\)")


def unknown_in(expression: str) -> Iterator[str]:
    """Yield each metric and each label of a PromQL expression that does not exist."""
    expression = re.sub(r"\$\w+", "", expression)
    bare = _TEXT.sub('""', expression)
    labels: set[str] = set(OF_PROMETHEUS)
    metrics = known()
    for name, matchers in _METRIC.findall(bare):
        if name not in metrics:
            yield name
            continue
        own = set(metrics[name]) | set(OF_PROMETHEUS)
        labels |= own
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers):
            if label not in own:
                yield f"{name}{{{label}}}"
    for grouped in _GROUPED.findall(bare):
        yield from (x for x in re.findall(r"\w+", grouped) if x not in labels)
