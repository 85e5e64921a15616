"""What `check` finds in the valid jobs of a source, without a database."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice

from cronledger.rules import channels, durations, firings, secrets
from cronledger.rules.cron import ClockChange, Firing
from cronledger.rules.load import Collision, collisions
from cronledger.rules.model import Job
from cronledger.rules.problems import Problem, nearest, shown
from cronledger.sources.toml import written_field

DAY = timedelta(days=1)
YEAR = timedelta(days=365)
SHOWN_JOBS = 5
LONG_RUN = timedelta(hours=1)
SHORT_LEASE = timedelta(minutes=10)
"""The length of a lease that outlasts a restart or a failover of most databases."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The next firings of a job, and the clock changes of a year that affect it."""

    job: Job
    firings: tuple[Firing, ...]
    clock_changes: tuple[ClockChange, ...]


@dataclass(frozen=True, slots=True)
class Served:
    """The queues that replicas serve. `stated`: by an option or a setting, not by default."""

    queues: Sequence[str]
    stated: bool


def outlook(job: Job, after: datetime, count: int) -> Outlook:
    """Return the next `count` firings of `job`, and its clock changes within a year of `after`."""
    coming = firings.firings(job, after, firings.later(after))
    changes = firings.clock_changes(job, after, firings.later(after, YEAR))
    return Outlook(job, tuple(islice(coming, count)), tuple(changes))


def problems(
    jobs: Sequence[Job],
    *,
    where: str,
    after: datetime,
    served: Served,
    most: int,
    secret_names: Collection[str],
) -> Iterator[Problem]:
    """Yield the problems of valid jobs: those that never fire, unknown queues, secrets, collisions.

    `most`: the number of executions of one queue that may be due in the same second.
    `secret_names`: names of fields that contain secrets.
    """
    for job in jobs:
        yield from (
            _as_written(job, one) for one in secrets.warnings(job, secret_names, where=where)
        )
        if job.schedule is not None and _never_fires(job, after):
            yield _ended(job, where)
        if _cannot_outlast(job, after):
            yield _short_lease(job, where)
        if job.queue not in served.queues and not is_channel(job):
            yield _unknown_queue(job, where, served)
    for collision in collisions(jobs, after, firings.later(after, DAY), most):
        yield _collision(collision, where, most)


def is_channel(job: Job) -> bool:
    """Return whether this is the job of a channel. Replicas with any queues deliver its alerts."""
    return channels.name_of(job.name, job.queue) is not None


def _as_written(job: Job, problem: Problem) -> Problem:
    """Return a problem of the target of `job` with the name that the field has in a file."""
    field = problem.field or ""
    if (channel := channels.name_of(job.name, job.queue)) is not None:
        return replace(
            problem, job=None, field=field.replace("target.channel", f"channels.{channel}", 1)
        )
    return replace(problem, field=written_field(field, job.handler.value))


def undeclared_channels(
    jobs: Sequence[Job], *, where: str, declared: Collection[str]
) -> Iterator[Problem]:
    """Yield a problem for each job that names a channel which is not among those `declared`.

    None if no channel is declared, because then another source declares all of them.
    """
    for job in jobs if declared else ():
        for rule in job.notify or ():
            if rule.channel not in declared:
                remedy = nearest(rule.channel, declared)
                yield Problem(
                    where=where, job=job.name, field="notify", value=shown(rule.channel),
                    message="is a channel that no checked source declares",
                    remedy=f"{remedy} Otherwise also check the source that declares it",
                    warning=True,
                )  # fmt: skip


def _never_fires(job: Job, after: datetime) -> bool:
    return next(firings.firings(job, after, firings.later(after)), None) is None


def _cannot_outlast(job: Job, after: datetime) -> bool:
    """Return whether a restart of the database would end a run that is declared to be long.

    A job that fires more than once an hour is left out: its next firing is near, and after a crash
    a long lease would delay it.
    """
    declared = "run_timeout" in job.model_fields_set
    is_long = declared and (job.run_timeout is None or job.run_timeout >= LONG_RUN)
    if not is_long or job.stale_timeout >= SHORT_LEASE:
        return False
    coming = [x.plan_time for x in islice(firings.firings(job, after, firings.later(after)), 2)]
    return len(coming) < 2 or coming[1] - coming[0] >= LONG_RUN


def _short_lease(job: Job, where: str) -> Problem:
    value = durations.format(job.stale_timeout)
    run = "none" if job.run_timeout is None else durations.format(job.run_timeout)
    return Problem(
        where=where, job=job.name, field="stale_timeout", value=shown(value),
        message=f"is short for a job with run_timeout = {run}: an outage of the database that "
        "lasts longer, such as a restart, ends a running attempt",
        remedy=f"use for example stale_timeout = '{durations.format(SHORT_LEASE)}'. A crash of a "
        "replica is then noticed that much later",
        warning=True,
    )  # fmt: skip


def _ended(job: Job, where: str) -> Problem:
    field = "schedule" if job.ends_at is None else "ends_at"
    return Problem(
        where=where, job=job.name, field=field, value=shown(getattr(job, field)),
        message="the job does not fire any more", remedy=f"remove the job, or correct `{field}`",
        warning=True,
    )  # fmt: skip


def _unknown_queue(job: Job, where: str, served: Served) -> Problem:
    listed = ", ".join(shown(queue) for queue in served.queues)
    if served.stated:
        message = f"is not one of the queues that replicas serve ({listed})"
        remedy = nearest(job.queue, served.queues)
    else:
        message = f"is not served by a replica with these settings, which serves {listed}"
        remedy = "add it to `queues`, or name all queues of your replicas with --queue"
    return Problem(
        where=where, job=job.name, field="queue", value=shown(job.queue),
        message=message, remedy=remedy, warning=not served.stated,
    )  # fmt: skip


def _collision(collision: Collision, where: str, most: int) -> Problem:
    names = collision.jobs
    jobs = ", ".join(names[:SHOWN_JOBS])
    if len(names) > SHOWN_JOBS:
        jobs += f" and {len(names) - SHOWN_JOBS} more"
    others = f"; other such seconds within 24 hours: {collision.more}" if collision.more else ""
    return Problem(
        where=where,
        message=f"queue {shown(collision.queue)}: {collision.count} executions are due at "
        f"{collision.instant:%Y-%m-%dT%H:%M:%SZ}, which is more than {most} (jobs: {jobs}){others}",
        remedy="spread them with H or jitter, or allow more with --at-once",
        warning=True,
    )
