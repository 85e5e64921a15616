"""The rules that a job must follow when it is declared: each problem has a remedy.

All problems are collected, so that one report is enough. A field counts as set if it is in
`model_fields_set`. A caller that reads a job from a row therefore passes only the fields that
differ from the default.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import date, timedelta
from typing import Any

from pydantic import ValidationError

from cronledger.rules import (
    chains,
    cron,
    names,
    retry_filters,
    retry_items,
    storable,
    targets,
)
from cronledger.rules.calendars import Calendar
from cronledger.rules.cron_fields import is_reboot
from cronledger.rules.limits import END_OF_TIME, FIRST_INSTANT, LONGEST
from cronledger.rules.model import GLOBAL, HOST, CatchUp, Handler, Job, Overlap
from cronledger.rules.problems import ConfigurationError, Problem, problems_of, shown

SHORTEST_LEASE = timedelta(seconds=3)
SHORTEST_DATA = timedelta(hours=1)
ANY_NAME = "job"
ANY_SCHEDULE = "* * * * *"
ANY_ZONE = "UTC"
ANY_CALENDAR = Calendar("", 0, date(2000, 1, 1), date(2000, 1, 1), {})
"""A calendar without excluded dates: those of a job are not known when it is declared."""
_TOGETHER = (
    {"catch_up", "catch_up_limit", "overlap", "windows"},
    {"max_attempts", "allow_stale_reentry", "retry_backoff", "retry_jitter"}
    | {*retry_filters.FILTERS},
    {"scope_kind", "scopes", "every", "on"},
    {"schedule", "timezone", "day_or", "dst_gap", "dst_fold", "calendar", "on_excluded"}
    | {"requires", "after", "wait_at_most", "not_ready_after"},
)
"""The fields that are checked with each other."""
_NOT_OBSERVED = (
    {"schedule_delay", "jitter", "catch_up", "catch_up_window", "catch_up_limit", "overlap"}
    | {"windows", "requires", "after", "wait_at_most", "max_running", "stale_timeout"}
    | {"allow_stale_reentry", "max_attempts", "retry_backoff", "retry_jitter", "not_ready_after"}
    | {"payload", "payload_schema", "ping", "capture_output", *retry_filters.FILTERS}
)
"""The policies that decide when and how a replica starts a run."""
_NOT_ADOPTABLE = {"schedule_delay", "jitter", "windows", "requires", "after"}
"""The policies that plan_times which another scheduler runs cannot have."""
_NOT_AT_BOOT = ("calendar", "windows", "requires", "start_by", "finish_by", "expect_duration")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class Report:
    """The problems of one job."""

    def __init__(self, job: Job, where: str | None) -> None:
        self.job = job
        self.where = where
        self.problems: list[Problem] = []
        self.without_effect: set[str] = set()
        """Fields that mean nothing to this job: its defaults leave them out."""

    def add(
        self, field: str, message: str, remedy: str, *,
        value: str | None = None, warning: bool = False, without_effect: bool = False,
    ) -> None:  # fmt: skip
        """Add a problem of `field`.

        `value`: by default that of the job, except for a target, which may hold secrets.
        `without_effect`: the problem vanishes if the job does not set the field.
        """
        if without_effect:
            self.without_effect.add(field)
        if value is None and field != "target":
            value = shown(getattr(self.job, field))
        self.problems.append(Problem(
            where=self.where, job=self.job.name, field=field, value=value,
            message=message, remedy=remedy, warning=warning,
        ))  # fmt: skip


def examined(
    values: Mapping[str, Any],
    *,
    where: str | None = None,
    has_provider: bool = False,
    known: Collection[str] = (),
    defaults: Collection[str] = (),
) -> tuple[Job | None, tuple[Problem, ...]]:
    """Return the job with these values, and all of its problems, including warnings.

    The job is None if a value is invalid on its own. The other values are checked nevertheless.
    `known`: the valid names, one of which is suggested for an unknown name. `defaults`: fields that
    the job does not set itself. Those without an effect are left out. The other arguments are those
    of `problems`.
    """
    name = values["name"]
    job: Job | None = None
    refused: tuple[Problem, ...] = ()
    try:
        examinable = job = Job.model_validate(values)
    except ValidationError as error:
        refused = tuple(
            problem
            for problem in problems_of(error, where=where, job=name, known=known)
            if problem.field != "on" or "on" in values  # otherwise it is a copy of `every`
        )
        rest = Job.model_validate({**without(values, error), "name": ANY_NAME})
        examinable = rest.model_copy(update={"name": name})
    report = _report(examinable, where, has_provider)
    if unused := report.without_effect.intersection(defaults, values):
        return examined(
            {key: value for key, value in values.items() if key not in unused},
            where=where, has_provider=has_provider, known=known, defaults=defaults,
        )  # fmt: skip
    fields = {problem.field for problem in refused}
    others = (problem for problem in report.problems if problem.field not in fields)
    return job, (*refused, *others)


def without(values: Mapping[str, Any], error: ValidationError) -> dict[str, Any]:
    """Return `values` without the invalid fields and the fields that are checked with them."""
    bad = {str(detail["loc"][0]) for detail in error.errors(include_url=False)}
    for group in _TOGETHER:
        if bad & group:
            bad |= group
    return {key: value for key, value in values.items() if key not in bad}


def problems(
    job: Job, *, where: str | None = None, has_provider: bool = False
) -> tuple[Problem, ...]:
    """Return all problems of `job`, including warnings.

    `has_provider`: a scope provider returns the scope_ids of this job.
    """
    return tuple(_report(job, where, has_provider).problems)


def _report(job: Job, where: str | None, has_provider: bool) -> Report:
    report = Report(job, where)
    _durations(report)
    _combinations(report)
    _observed(report)
    _interval(report)
    _schedule(report)
    _requirements(report)
    _scopes(report, has_provider)
    report.problems.extend(names.problems(job, where))
    report.problems.extend(targets.problems(job, where))
    report.problems.extend(retry_items.problems(job, where))
    _storable(report)
    return report


def check(
    jobs: Iterable[Job],
    *,
    where: str | None = None,
    providers: Collection[str] = (),
) -> tuple[Problem, ...]:
    """Return the warnings about `jobs`. Raises ConfigurationError with all problems of all jobs.

    `providers`: names of the jobs that have a scope provider.
    """
    found = [
        problem
        for job in jobs
        for problem in problems(job, where=where, has_provider=job.name in providers)
    ]
    if any(not problem.warning for problem in found):
        raise ConfigurationError(found)
    return tuple(found)


def _durations(report: Report) -> None:
    job = report.job
    for name in Job.model_fields:
        value = getattr(job, name)
        steps = value if isinstance(value, tuple) else (value,)
        if any(isinstance(step, timedelta) and step > LONGEST for step in steps):
            report.add(name, "is longer than 100 years", "use a shorter duration")
    if job.stale_timeout < SHORTEST_LEASE:
        report.add(
            "stale_timeout",
            "is shorter than 3 s; a lease is renewed every third of its length, so that one slow "
            "heartbeat would lose a shorter one",
            "use at least '3s'",
        )
    if job.keep_output is not None and job.keep_output < SHORTEST_DATA:
        report.add(
            "keep_output",
            "is shorter than 1 h, but data is removed once an hour",
            "use at least '1h'",
        )
    if job.run_timeout == timedelta(0):
        remedy = "use at least '1s', or 'none' for no limit"
        report.add("run_timeout", "would stop every attempt at once", remedy)


def _combinations(report: Report) -> None:
    job = report.job
    explicit = job.model_fields_set
    if job.catch_up is CatchUp.ALL and job.overlap is Overlap.SKIP:
        report.add(
            "catch_up",
            'conflicts with overlap = "skip", which would skip missed plan_times while the '
            "previous one runs",
            'use overlap = "wait" to run them one after the other, or catch_up = "latest"',
        )
    if job.windows and job.overlap is Overlap.ALLOW:
        report.add(
            "windows",
            'conflicts with overlap = "allow", because simultaneous executions have no order',
            'use overlap = "wait" or "skip"',
        )
    if "catch_up_limit" in explicit and job.catch_up is not CatchUp.ALL:
        report.add(
            "catch_up_limit",
            f"has no effect with catch_up = {shown(job.catch_up)}",
            'remove it, or use catch_up = "all"',
            without_effect=True,
        )
    if "on_excluded" in explicit and job.calendar is None:
        report.add(
            "on_excluded",
            "has no effect without a calendar",
            "remove it, or name a calendar",
            without_effect=True,
        )
    if job.max_attempts > 1:
        return
    retries = {"retry_backoff", "retry_jitter", *retry_filters.RETRY_FILTERS}
    for name in sorted(name for name in retries & explicit if getattr(job, name) is not None):
        report.add(
            name,
            "has no effect with max_attempts = 1",
            "remove it, or use max_attempts = 2 or more",
            warning=True,
            without_effect=True,
        )


def _observed(report: Report) -> None:
    job = report.job
    if job.handler is not Handler.OBSERVED:
        for name in sorted(_NOT_ADOPTABLE) if job.observed else ():
            if getattr(job, name):
                message = "conflicts with observed: another scheduler does not know it"
                remedy = "remove it, or observed once replicas fire the job"
                report.add(name, message, remedy, without_effect=True)
        return
    for name in sorted(_NOT_OBSERVED & job.model_fields_set):
        if getattr(job, name) is not None:
            message = "has no effect on an observed job, because another scheduler starts its runs"
            report.add(name, message, "remove it", without_effect=True)


def _requirements(report: Report) -> None:
    job = report.job
    named = Counter((field, gate.job) for field, gate in chains.requirements(job))
    for (field, name), count in named.items():
        if name == job.name:
            report.add(field, "names the job itself", "name another job")
        elif count > 1:
            report.add(field, f"names {shown(name)} twice", "name each job once")
    if job.after:
        for name in sorted(job.model_fields_set.intersection(chains.TIMING)):
            if getattr(job, name) is not None:
                message = f"conflicts with after: {shown(job.after[0].job)} decides the plan_times"
                remedy = "remove it, or use requires instead of after"
                report.add(name, message, remedy, without_effect=True)
    elif job.requires and job.schedule is None:
        report.add(
            "requires",
            "has no effect without a schedule, because only plan_times of a schedule wait",
            "add a schedule, or use after instead of requires",
        )
    if job.wait_at_most == timedelta(0):
        report.add("wait_at_most", "leaves no time to wait", "use a longer duration")
    if job.not_ready_after is not None and job.not_ready_on is None:
        message = "has no effect without not_ready_on"
        report.add("not_ready_after", message, "remove it, or add not_ready_on", warning=True)


def _reboot(report: Report) -> None:
    """Add the problems of `@reboot`, whose plan_times are known only once a host has booted."""
    job = report.job
    if job.scope_kind != HOST:
        remedy = 'add every = "LABELS", such as every = "host=web1", instead of on'
        report.add("schedule", "starts a job on each host that boots, so it needs hosts", remedy)
    for name in _NOT_AT_BOOT:
        if getattr(job, name):
            message = "conflicts with @reboot, whose plan_times are not known in advance"
            report.add(name, message, "remove it", without_effect=True)


def _interval(report: Report) -> None:
    job = report.job
    naive = False
    for name in ("starts_at", "ends_at"):
        value = getattr(job, name)
        if value is not None and value.utcoffset() is None:
            naive = True
            report.add(
                name,
                "has no UTC offset",
                "add an offset, such as 2026-01-31T08:00:00Z or …+01:00",
            )
        elif value is not None and not FIRST_INSTANT <= value < END_OF_TIME:
            report.add(name, "is outside the years 1000 to 9998", "use another year")
    if naive or job.starts_at is None or job.ends_at is None:
        return
    if job.starts_at >= job.ends_at:
        report.add(
            "starts_at",
            f"is not before ends_at = {shown(job.ends_at)}, so there would be no plan_time",
            "use an earlier starts_at, or a later ends_at",
        )


def _schedule(report: Report) -> None:
    job = report.job
    spec = _parsed(report)
    if spec is None:
        return
    if spec.is_reboot:
        _reboot(report)
    try:
        period = spec.shortest_period
    except cron.CronError as exc:
        report.add("schedule", exc.problem, exc.remedy)
        return
    if spec.is_every:
        for name in ("dst_fold", "dst_gap"):
            if name in job.model_fields_set:
                report.add(
                    name,
                    "has no effect with @every, which counts elapsed time",
                    "remove it",
                    without_effect=True,
                )
        if job.on_excluded != "skip":
            report.add(
                "on_excluded",
                "cannot be combined with @every, which names no time of day",
                'use on_excluded = "skip", or a schedule with fields',
                without_effect=True,
            )
        if job.calendar is None:
            report.without_effect.add("timezone")  # `spec.warnings` has the problem
    for name in ("jitter", "schedule_delay"):
        if getattr(job, name) >= period:
            report.add(
                name,
                "is not shorter than the time between two plan_times, which may be only "
                f"{shown(period)}",
                "use a shorter duration",
            )
    for warning in spec.warnings:
        report.add("schedule", warning, "", warning=True)


def _parsed(report: Report) -> cron.Cron | None:
    """Return the schedule. If it is invalid, add the problems of schedule and zone, return None."""
    job = report.job
    if job.schedule is not None:
        spec = _tried(report, job.schedule, job.timezone)
        if spec is not None:
            return spec
        if not any(problem.field == "schedule" for problem in report.problems):
            _tried(report, job.schedule, ANY_ZONE)
            return None
    _tried(report, ANY_SCHEDULE, job.timezone)
    return None


def _tried(report: Report, schedule: str, timezone: str) -> cron.Cron | None:
    job = report.job
    try:
        return cron.parse(
            schedule,
            timezone=timezone,
            day_or=job.day_or,
            dst_gap=job.dst_gap,
            dst_fold=job.dst_fold,
            job=job.name,
            scope=f"{job.scope_kind}/{(job.scopes or (GLOBAL,))[0]}",
            calendar=None if job.calendar is None or is_reboot(schedule) else ANY_CALENDAR,
        )
    except cron.CronError as exc:
        field = exc.field if exc.field in Job.model_fields else "schedule"
        report.add(field, exc.problem, exc.remedy, value=shown(exc.value))
        return None


def _scopes(report: Report, has_provider: bool) -> None:
    job = report.job
    field = "scope_kind" if job.every is None else "every"
    if job.scope_kind == HOST and job.handler is Handler.EXTERNAL:
        message = "needs a replica on each host, which does not run external jobs"
        report.add(field, message, "use another handler, or on")
    elif job.scope_kind == HOST and job.may_be_observed:
        message = "needs a replica on each host, and hosts with another scheduler may have none"
        report.add(field, message, 'use another scope_kind, such as "machine", and list the scopes')
    if job.every is not None:
        _every(report, has_provider)
    elif job.scopes is not None:
        if job.scope_kind == GLOBAL:
            report.add("scopes", "needs a scope_kind", 'add it, such as scope_kind = "tenant"')
        if len(set(job.scopes)) < len(job.scopes):
            report.add("scopes", "contains a scope twice", "list each scope once")
        if not job.scopes:
            report.add("scopes", "is empty, so the job never runs", "add a scope", warning=True)
        if has_provider:
            report.add("scopes", "conflicts with the scope provider", "keep one of them")
    elif has_provider and job.scope_kind == GLOBAL:
        report.add(
            "scope_kind",
            "must name what the scopes of the provider are",
            'write for example scope_kind = "tenant"',
        )
    elif job.scope_kind != GLOBAL and not has_provider and (job.schedule or job.after):
        # Without a schedule, `enqueue` creates the scopes.
        report.add(
            "scope_kind",
            "needs scopes, because the job has a schedule",
            'list them, such as scopes = ["a", "b"], or, in Python, use a scope provider: '
            "`@app.job(..., scopes=function)`",
        )


def _every(report: Report, has_provider: bool) -> None:
    job = report.job
    if job.scopes is not None or has_provider:
        report.add("every", "conflicts with scopes: each host is a scope", "keep one of them")
    elif job.scope_kind != HOST:
        report.add("every", "conflicts with scope_kind: each host is a scope", "remove scope_kind")
    if job.on != job.every:
        remedy = "remove it: every already selects the replicas that run the job"
        report.add("on", "conflicts with every", remedy, without_effect=True)


def _storable(report: Report) -> None:
    """Add the problems of values that PostgreSQL cannot store."""
    for name in Job.model_fields:
        value = getattr(report.job, name)
        is_json = name in ("target", "payload", "payload_schema")
        if is_json and (found := storable.problem(value)) is not None:
            report.add(name, *found)
        elif any(_UNSTORABLE.search(text) for text in _strings(value)):
            message = "contains a NUL or half of a surrogate pair, which PostgreSQL cannot store"
            report.add(name, message, "remove it")


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)
