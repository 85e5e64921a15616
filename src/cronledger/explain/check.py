"""What `check` finds in the valid jobs of a source, without a database."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice

from cronledger.rules import durations, secrets
from cronledger.rules.calendar_changes import (
    Dated,
    FiringChange,
    firing_changes,
    without_calendar,
)
from cronledger.rules.calendar_spec import ENDS_SOON
from cronledger.rules.calendars import Calendar
from cronledger.rules.channels import Channel, settings
from cronledger.rules.collisions import Collision, collisions
from cronledger.rules.cron import ClockChange, Firing
from cronledger.rules.cron_fields import is_reboot
from cronledger.rules.firings import later
from cronledger.rules.model import Job
from cronledger.rules.problems import Problem, nearest, or_elsewhere, shown
from cronledger.sources.toml import written_field

DAY = timedelta(days=1)
YEAR = timedelta(days=365)
SHOWN_JOBS = 5
LONG_RUN = timedelta(hours=1)
SHORT_LEASE = timedelta(minutes=10)
"""The length of a lease that outlasts a restart or a failover of most databases."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The next firings of a job, and the clock changes of a year that affect it.

    `calendar_firings`: what its calendar changes, compared with the job without a calendar.
    """

    job: Job
    firings: tuple[Firing, ...]
    clock_changes: tuple[ClockChange, ...]
    calendar_firings: tuple[FiringChange, ...]


Calendars = Mapping[str, Calendar]
"""The calendars of the checked sources, by name."""


@dataclass(frozen=True, slots=True)
class Served:
    """The queues that replicas serve. `stated`: by an option or a setting, not by default."""

    queues: Sequence[str]
    stated: bool


def outlook(job: Job, after: datetime, count: int, calendars: Calendars) -> Outlook:
    """Return the next `count` firings of `job`, and its clock changes within a year of `after`.

    If the calendar of the job is not among `calendars`, they are those without a calendar.
    """
    dated = _dated(job, calendars)
    coming = dated.firings(after)
    changes = coming.within(after, later(after, YEAR)).clock_changes()
    moved = firing_changes(without_calendar(job), dated, after)
    return Outlook(job, tuple(islice(coming, count)), tuple(changes), moved)


def _dated(job: Job, calendars: Calendars) -> Dated:
    if job.calendar is None or job.calendar in calendars:
        return Dated(job, calendars.get(job.calendar or ""))
    return without_calendar(job)


def problems(
    jobs: Sequence[Job],
    channels: Mapping[str, Channel],
    *,
    where: str,
    after: datetime,
    served: Served,
    most: int,
    secret_names: Collection[str],
    calendars: Calendars,
) -> Iterator[Problem]:
    """Yield the problems of valid jobs: those that never fire, unknown queues and calendars,
    secrets, collisions.

    `most`: the number of executions of one queue that may be due in the same second.
    `secret_names`: names of fields that contain secrets.
    """
    every = [_dated(job, calendars) for job in jobs]
    for job, dated in zip(jobs, every, strict=True):
        yield from _secrets(job, secret_names, where)
        if job.calendar != dated.job.calendar:
            yield _undeclared_calendar(job, where, calendars)
        at_times = job.schedule is not None and not is_reboot(job.schedule)
        if at_times and not any(dated.firings(after).plan_times()):
            yield _ended(job, where)
        if _cannot_outlast(dated, after):
            yield _short_lease(job, where)
        if job.queue not in served.queues:
            yield _unknown_queue(job, where, served)
    declared = {f"channels.{name}": settings(channel) for name, channel in channels.items()}
    yield from secrets.warnings(declared, secret_names, where=where, job=None)
    found = collisions([x.job for x in every], after, later(after, DAY), most, calendars)
    for collision in found:
        yield _collision(collision, where, most)


def _secrets(job: Job, names: Collection[str], where: str) -> Iterator[Problem]:
    values = {"target": job.target, "payload": job.payload}
    for one in secrets.warnings(values, names, where=where, job=job.name):
        yield replace(one, field=written_field(one.field, job.handler.value))


def undeclared_channels(
    jobs: Sequence[Job], *, where: str, declared: Collection[str]
) -> Iterator[Problem]:
    """Yield a problem for each job that names a channel which is not among those `declared`.

    None if no channel is declared, because then another source declares all of them.
    """
    for job in jobs if declared else ():
        for rule in job.notify or ():
            if rule.channel not in declared:
                yield Problem(
                    where=where, job=job.name, field="notify", value=shown(rule.channel),
                    message="is a channel that no checked source declares",
                    remedy=or_elsewhere(nearest(rule.channel, declared)),
                    warning=True,
                )  # fmt: skip


def _undeclared_calendar(job: Job, where: str, declared: Calendars) -> Problem:
    remedy = "also check the source that declares it"
    if declared:
        remedy = or_elsewhere(nearest(str(job.calendar), declared))
    return Problem(
        where=where, job=job.name, field="calendar", value=shown(job.calendar),
        message="is a calendar that no checked source declares, so the firings are shown as if "
        "there were none",
        remedy=remedy, warning=True,
    )  # fmt: skip


def ending_calendars(
    used: Collection[str], where: str, declared: Calendars, after: datetime
) -> Iterator[Problem]:
    """Yield a problem for each of these calendars that ends soon and is used."""
    for name in sorted(declared.keys() & used):
        through = declared[name].through
        if through < after.date() + ENDS_SOON:
            yield Problem(
                where=where, field=f"calendars.{name}.through",
                message=f"the calendar ends on {through}, and its jobs do not fire after that date",
                remedy="set a later year, and add its dates to exclude or to the iCalendar file",
                warning=True,
            )  # fmt: skip


def _cannot_outlast(dated: Dated, after: datetime) -> bool:
    """Return whether a restart of the database would end a run that is declared to be long.

    A job that fires more than once an hour is left out: its next firing is near, and after a crash
    a long lease would delay it.
    """
    job = dated.job
    declared = "run_timeout" in job.model_fields_set
    is_long = declared and (job.run_timeout is None or job.run_timeout >= LONG_RUN)
    if not is_long or job.stale_timeout >= SHORT_LEASE:
        return False
    coming = list(islice(dated.firings(after).plan_times(), 2))
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
        message="the job no longer fires", remedy=f"remove the job, or correct `{field}`",
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
