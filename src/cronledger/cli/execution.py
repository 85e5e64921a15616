"""Print one execution: a heading, its fields, its earlier attempts."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import click

from cronledger.cli.listing import Listing, print_listing, relative
from cronledger.cli.show import cell, print_fields

ATTEMPTS = Listing(
    {
        "attempt": "ATTEMPT",
        "runner_id": "RUNNER",
        "started_at": "STARTED",
        "ended_at": "ENDED",
        "last_seen": "LAST SEEN",
        "error_code": "ERROR",
        "error_msg": "MESSAGE",
    },
    drop=("last_seen", "ended_at", "started_at", "runner_id"),
    none="this was the first attempt",
)
FIELDS = (
    "plan_time", "window_start", "due_at", "trigger", "requested_by", "queue", "revision",
    "group_id", "watermark", "created_at", "runner_id", "started_at", "progress", "progress_at",
    "usual", "expected_end", "heartbeat_at", "stale_after", "finished_at", "duration_ms",
    "next_attempt_at", "cancel_requested_at", "cancel_requested_by", "rows_affected", "payload",
    "result", "result_taken_at", "error_code", "error_msg", "traceparent", "trace_id",
)  # fmt: skip


def print_execution(row: Mapping[str, Any], now: datetime) -> None:
    """Print one execution: a heading, its fields, its earlier attempts."""
    scope = f" {row['scope_kind']}/{row['scope_id']}" if row["scope_kind"] != "global" else ""
    attempt = f"attempt {row['attempt']} of {row['max_attempts']}"
    print_fields(
        {f"execution {row['id']}": f"{row['job_name']}{scope}  {row['status']}, {attempt}"}
    )
    row = {**row, "usual": usual_text(row)}
    fields = {name: _shown(row[name], now) for name in FIELDS if row.get(name) is not None}
    print_fields(fields)
    if row["attempts"]:
        click.echo("\nEarlier attempts")
        print_listing([_attempt(found) for found in row["attempts"]], ATTEMPTS, now)
    if row["output_characters"]:
        click.echo(
            f"\n{row['output_characters']:,} characters of output: "
            f"cronledger executions output {row['id']}"
        )


def usual_text(row: Mapping[str, Any]) -> str | None:
    """Return the usual duration of a running execution's job: `5m, 95 % within 9m`."""
    if row["usual_p50"] is None:
        return None
    longer = "; this one takes longer" if row["is_longer"] else ""
    seconds = (row[x].total_seconds() for x in ("usual_p50", "usual_p95"))
    p50, p95 = (timedelta(seconds=round(x, 1 if x >= 1 else 3)) for x in seconds)
    return f"{cell(p50)}, 95 % within {cell(p95)}{longer}"


def _shown(value: object, now: datetime) -> object:
    if isinstance(value, datetime):
        return f"{cell(value)}  ({relative(value, now)})"
    return value


def _attempt(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of `attempts`, in which times are text and keys may be missing, as a row."""
    row: dict[str, Any] = {key: found.get(key) for key in ATTEMPTS.columns}
    for key in ("started_at", "ended_at", "last_seen"):
        if isinstance(row[key], str):
            row[key] = datetime.fromisoformat(row[key])
    return row
