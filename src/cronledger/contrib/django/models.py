"""The views of the ledger as models for the admin. Nothing writes through them.

Some views have no column that identifies a row. Their first column is declared as the primary key,
because Django needs one; the admin only lists them.
"""

from enum import StrEnum
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models

from cronledger.contrib.django import options
from cronledger.rules.model import CatchUp, Handler, Overlap, SkipReason, Status, Trigger


def _view(name: str, singular: str, plural: str) -> type:
    """Return the Meta of a model for the view `name` of the ledger."""
    return type(
        "Meta",
        (),
        {
            "managed": False,
            "db_table": f'"{options.schema()}"."{name}"',
            "default_permissions": ("view",),
            "verbose_name": singular,
            "verbose_name_plural": plural,
        },
    )


def _text(**options: Any) -> Any:
    return models.TextField(null=True, **options)


def _one_of(values: type[StrEnum]) -> Any:
    return _text(choices=[(value.value, value.value) for value in values])


def _time() -> Any:
    return models.DateTimeField(null=True)


class Job(models.Model):
    """The definition of a job: a row of `job_details`."""

    name = models.TextField(primary_key=True)
    description = _text()
    schedule = _text()
    timezone = _text()
    queue = _text()
    handler = _one_of(Handler)
    function = _text()
    starts_at = _time()
    ends_at = _time()
    schedule_delay = models.DurationField(null=True)
    jitter = models.DurationField(null=True)
    grace = models.DurationField(null=True)
    catch_up = _one_of(CatchUp)
    overlap = _one_of(Overlap)
    max_running = models.IntegerField(null=True)
    run_timeout = models.DurationField(null=True)
    stale_timeout = models.DurationField(null=True)
    allow_stale_reentry = models.BooleanField(null=True)
    max_attempts = models.IntegerField(null=True)
    scope_kind = _text()
    source = _text()
    revision = models.BigIntegerField(null=True)
    edited_by = _text()
    paused_at = _time()
    paused_by = _text()
    paused_reason = _text()
    paused_until = _time()
    retired_at = _time()
    spec_error = _text()

    Meta = _view("job_details", "job", "jobs")

    def __str__(self) -> str:
        return str(self.name)


class JobState(models.Model):
    """The state of a job in one scope: a row of `job_status`."""

    job_name = models.TextField(primary_key=True)
    scope_kind = _text()
    scope_id = _text()
    state = _text(
        choices=[
            (state, state)
            for state in (
                "active", "waiting", "limit", "no_runner", "no_scope", "paused", "queue_paused",
                "spec_error", "ended", "unscheduled", "boot", "retired",
            )
        ]
    )  # fmt: skip
    schedule = _text()
    timezone = _text()
    queue = _text()
    next_plan_time = _time()
    last_status = _one_of(Status)
    last_plan_time = _time()
    last_success_at = _time()
    consecutive_failures = models.BigIntegerField(null=True)
    running = models.BigIntegerField(null=True)
    pending = models.BigIntegerField(null=True)

    Meta = _view("job_status", "state of a job", "states of jobs")


class Execution(models.Model):
    """An execution, without its payload and its lease: a row of `execution_status`."""

    id = models.BigIntegerField(primary_key=True)
    job_name = _text()
    scope_kind = _text()
    scope_id = _text()
    plan_time = _time()
    status = _one_of(Status)
    trigger = _one_of(Trigger)
    queue = _text()
    requested_by = _text()
    due_at = _time()
    attempt = models.IntegerField(null=True)
    max_attempts = models.IntegerField(null=True)
    next_attempt_at = _time()
    runner_id = _text()
    heartbeat_at = _time()
    stale_after = _time()
    started_at = _time()
    finished_at = _time()
    duration_ms = models.BigIntegerField(null=True)
    rows_affected = models.BigIntegerField(null=True)
    error_code = _text()
    error_msg = _text()
    result = models.JSONField(null=True)
    output = _text()
    attempts = models.JSONField(null=True)
    cancel_requested_at = _time()
    cancel_requested_by = _text()
    group_id = models.UUIDField(null=True)
    enqueue_key = _text()
    watermark = models.BigIntegerField(null=True)
    revision = models.BigIntegerField(null=True)
    created_at = _time()

    Meta = _view("execution_status", "execution", "executions")

    def __str__(self) -> str:
        return f"{self.job_name} #{self.id}"


class Skip(models.Model):
    """A range of plan_times that did not run, and why: a row of `verify_skips`."""

    job_name = models.TextField(primary_key=True)
    scope_kind = _text()
    scope_id = _text()
    from_plan_time = _time()
    through_plan_time = _time()
    count = models.BigIntegerField(null=True)
    reason = _one_of(SkipReason)
    blocked_by = models.BigIntegerField(null=True)

    Meta = _view("verify_skips", "skip", "skips")


class Overdue(models.Model):
    """What is due and has not started, or lost its lease, and why: a row of `overdue`."""

    job_name = models.TextField(primary_key=True)
    scope_kind = _text()
    scope_id = _text()
    plan_time = _time()
    due_at = _time()
    overdue_for = models.DurationField(null=True)
    reason = _text()
    detail = _text()
    queue = _text()

    Meta = _view("overdue", "overdue execution", "overdue executions")


class Runner(models.Model):
    """A replica or a worker: a row of `runner_status`."""

    runner_id = models.TextField(primary_key=True)
    host = _text()
    pid = models.IntegerField(null=True)
    version = _text()
    state = _text(
        choices=[(x, x) for x in ("alive", "failing", "draining", "refused", "stopped", "dead")]
    )
    queues = ArrayField(models.TextField(), null=True)
    slots = models.IntegerField(null=True)
    running = models.IntegerField(null=True)
    started_at = _time()
    heartbeat_at = _time()
    clock_skew = models.DurationField(null=True)
    fingerprint = _text()
    stale_after = _time()

    Meta = _view("runner_status", "runner", "runners")

    def __str__(self) -> str:
        return str(self.runner_id)
