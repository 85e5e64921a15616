"""Which jobs are refused when they are declared, and why: each problem with its remedy.

Everything is collected, so that one report says all that is to be changed. A field counts as set
when it is in `model_fields_set`: who reads a job from a row passes what differs from the default.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from cronledger.rules import cron, storable
from cronledger.rules.limits import END_OF_TIME, FIRST_INSTANT, LONGEST
from cronledger.rules.model import GLOBAL, CatchUp, Handler, Job, Overlap
from cronledger.rules.problems import (
    ConfigurationError,
    Problem,
    RefusedError,
    problems_of,
    shown,
)

SHORTEST_LEASE = timedelta(seconds=3)
ANY_SCHEDULE = "* * * * *"
ANY_ZONE = "UTC"
# A target may hold secrets in every other place, also under a misspelt name.
_SHOWN = tuple(
    f"target.{name}"
    for name in ("function", "argv", "shell", "cwd", "statement", "method", "expect", "allow_")
)
_NAME = r"[^\W\d]\w*"
_PART = rf"({_NAME}|<locals>|<lambda>)"
FUNCTION_PATTERN = rf"^{_NAME}(\.{_NAME})*:{_PART}(\.{_PART})*$"

Word = Annotated[str, Field(min_length=1)]
HeaderName = Annotated[str, Field(pattern=r"^[-!#$%&'*+.^_`|~0-9A-Za-z]+$")]
HeaderText = Annotated[str, Field(pattern=r"^[^\r\n\x00]*$")]


class _Target(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class PythonTarget(_Target):
    """`python`: a function, as `package.module:name`."""

    function: Annotated[str, Field(pattern=FUNCTION_PATTERN)]


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise RefusedError(
            "is not an absolute path, so each replica could use another directory",
            "write an absolute path",
        )
    return path


class CommandTarget(_Target):
    """`command`: exactly one of `argv` (run as it is) and `shell` (handed to `/bin/sh -c`)."""

    argv: Annotated[list[Word], Field(min_length=1)] | None = None
    shell: Word | None = None
    env: dict[Annotated[str, Field(pattern=r"^[^=]+$")], str] = Field(default_factory=dict)
    cwd: Annotated[str, AfterValidator(_absolute)] | None = None


class SqlTarget(_Target):
    """`sql`: a statement or script, run in the database of the ledger in one transaction."""

    statement: Annotated[str, Field(pattern=r"\S")]


def _sendable(name: str) -> str:
    if name.upper().startswith(("CRONLEDGER_", "PG")):
        raise ValueError("CRONLEDGER_* and PG* configure the runner itself and are not for sending")
    return name


class FromEnvironment(_Target):
    """A header's value that a runner reads from its environment when it sends the request."""

    env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"), AfterValidator(_sendable)]
    prefix: HeaderText = ""


def _url(url: str) -> str:
    try:
        split = urlsplit(url)
        host, _ = split.hostname, split.port  # each raises for what is not one
    except ValueError:
        host = None
    if not host:
        raise RefusedError("has no host, or a port that is not a number up to 65535", "correct it")
    return url


class HttpTarget(_Target):
    """`http`: one request."""

    url: Annotated[str, Field(pattern=r"^https?://[^\s/]\S*$"), AfterValidator(_url)] = Field(
        description="Where it goes, with http:// or https://."
    )
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"] = Field(
        "GET", description="The method."
    )
    headers: dict[HeaderName, HeaderText | FromEnvironment] = Field(
        default_factory=dict,
        description='Headers to send. `{env = "NAME"}` is read from the environment of the runner, '
        '`{env = "NAME", prefix = "Bearer "}` with text before it.',
    )
    body: Any = Field(
        None,
        description="Text is sent as it is, anything else as JSON; none: the payload as JSON, if "
        "there is one and the method is not GET or HEAD.",
    )
    expect: list[Annotated[int, Field(ge=100, le=599)]] = Field(
        default_factory=list, description="Statuses that mean success; none: 200 to 299."
    )
    allow_redirects: bool = Field(
        False, description="Follow up to 5 redirects; false: a redirect is a status like others."
    )
    allow_private: bool = Field(
        False, description="Connect to addresses that are not public: loopback, private networks."
    )


class ExternalTarget(_Target):
    """`external`: nothing; a worker in another language asks for the work."""


TARGETS: dict[Handler, type[BaseModel]] = {
    Handler.PYTHON: PythonTarget,
    Handler.COMMAND: CommandTarget,
    Handler.SQL: SqlTarget,
    Handler.HTTP: HttpTarget,
    Handler.EXTERNAL: ExternalTarget,
}


class Report:
    """Problems of one job; `add` fills in place, job and value."""

    def __init__(self, job: Job, where: str | None) -> None:
        self.job = job
        self.where = where
        self.problems: list[Problem] = []

    def add(self, field: str, message: str, remedy: str, *, warning: bool = False) -> None:
        """Add a problem of `field`, with its value; a target may hold secrets and is not shown."""
        value = None if field == "target" else shown(getattr(self.job, field))
        self.problems.append(
            Problem(self.where, self.job.name, field, value, message, remedy, warning)
        )


def problems(
    job: Job, *, retention: timedelta, where: str | None = None, has_provider: bool = False
) -> tuple[Problem, ...]:
    """Answer all that is wrong with `job`, warnings included; empty: nothing.

    `retention`: how long executions are kept. `has_provider`: a scope provider answers the
    scope_ids of this job. Raises nothing for any `Job`.
    """
    report = Report(job, where)
    _durations(report, retention)
    _combinations(report)
    _interval(report)
    _schedule(report)
    _scopes(report, has_provider)
    _target(report)
    _json(report, "target")
    _json(report, "payload")
    for name in sorted(Job.model_fields.keys() - {"target", "payload"}):
        _storable(report, name)
    return tuple(report.problems)


def check(
    jobs: Iterable[Job],
    *,
    retention: timedelta,
    where: str | None = None,
    providers: Collection[str] = (),
) -> tuple[Problem, ...]:
    """Answer the warnings about `jobs`; raises ConfigurationError with all problems of all jobs.

    `providers`: names of the jobs that have a scope provider.
    """
    found = [
        problem
        for job in jobs
        for problem in problems(
            job, retention=retention, where=where, has_provider=job.name in providers
        )
    ]
    if any(not problem.warning for problem in found):
        raise ConfigurationError(found)
    return tuple(found)


def _durations(report: Report, retention: timedelta) -> None:
    job = report.job
    for name in Job.model_fields:
        value = getattr(job, name)
        steps = value if isinstance(value, tuple) else (value,)
        if any(isinstance(step, timedelta) and step > LONGEST for step in steps):
            report.add(name, "is longer than 100 years", "write a shorter duration")
    if job.stale_timeout < SHORTEST_LEASE:
        report.add(
            "stale_timeout",
            "is shorter than 3 s: a lease is renewed every third of it, and one slow heartbeat "
            "would lose it",
            "write at least '3s'",
        )
    if job.run_timeout == timedelta(0):
        remedy = "write at least '1s', or 'none'"
        report.add("run_timeout", "would stop every attempt at once", remedy)
    if job.catch_up_window > retention:
        report.add(
            "catch_up_window",
            f"is longer than retention = {shown(retention)}: the executions that say what was "
            "missed are dropped before",
            "shorten catch_up_window or lengthen retention",
        )


def _combinations(report: Report) -> None:
    job = report.job
    explicit = job.model_fields_set
    if job.catch_up is CatchUp.ALL and job.overlap is Overlap.SKIP:
        report.add(
            "catch_up",
            'contradicts overlap = "skip": what is to be caught up would be skipped while the '
            "one before it runs",
            'write overlap = "wait" (one after the other), or catch_up = "latest"',
        )
    if "catch_up_limit" in explicit and job.catch_up is not CatchUp.ALL:
        report.add(
            "catch_up_limit",
            f"means nothing with catch_up = {shown(job.catch_up)}",
            'remove it, or write catch_up = "all"',
        )
    if job.max_attempts > 1:
        return
    for name in sorted({"retry_backoff", "retry_jitter"} & explicit):
        report.add(
            name,
            "has no effect with max_attempts = 1",
            "write max_attempts = 2 or more, or remove it",
            warning=True,
        )


def _interval(report: Report) -> None:
    job = report.job
    naive = False
    for name in ("starts_at", "ends_at"):
        value = getattr(job, name)
        if value is not None and value.utcoffset() is None:
            naive = True
            report.add(
                name,
                "has no zone, so it is no instant",
                "add an offset, such as 2026-01-31T08:00:00Z or …+01:00",
            )
        elif value is not None and not FIRST_INSTANT <= value < END_OF_TIME:
            report.add(name, "is outside the years 1000 to 9998", "write another year")
    if naive or job.starts_at is None or job.ends_at is None:
        return
    if job.starts_at >= job.ends_at:
        report.add(
            "starts_at",
            f"is not before ends_at = {shown(job.ends_at)}: there would be no plan_time",
            "write an earlier starts_at or a later ends_at",
        )


def _schedule(report: Report) -> None:
    job = report.job
    spec = _parsed(report)
    if spec is None:
        return
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
                    "means nothing with @every, which counts elapsed time and knows no wall clock",
                    "remove it",
                )
    for name in ("jitter", "schedule_delay"):
        if getattr(job, name) >= period:
            report.add(
                name,
                "is not shorter than the time between two plan_times, which is as short as "
                f"{shown(period)}",
                "write a shorter one",
            )
    for warning in spec.warnings:
        report.add("schedule", warning, "", warning=True)


def _parsed(report: Report) -> cron.Cron | None:
    """The schedule as read, or None with the problems added: zone and schedule are both tried."""
    job = report.job
    if job.schedule is not None:
        spec = _tried(report, job.schedule, job.timezone)
        if spec is not None:
            return spec
        if _refused(report, "schedule"):
            _tried(report, ANY_SCHEDULE, job.timezone)
        else:
            _tried(report, job.schedule, ANY_ZONE)
    else:
        _tried(report, ANY_SCHEDULE, job.timezone)
    return None


def _refused(report: Report, field: str) -> bool:
    return any(problem.field == field for problem in report.problems)


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
        )
    except cron.CronError as exc:
        value = shown(exc.value)
        field = exc.field if exc.field in Job.model_fields else "schedule"
        report.problems.append(
            Problem(report.where, job.name, field, value, exc.problem, exc.remedy)
        )
        return None


def _scopes(report: Report, has_provider: bool) -> None:
    job = report.job
    if job.scopes is not None:
        if job.scope_kind == GLOBAL:
            report.add("scopes", "has no scope_kind", 'say what they are: scope_kind = "tenant"')
        if len(set(job.scopes)) < len(job.scopes):
            report.add("scopes", "names a scope twice", "name each scope once")
        if not job.scopes:
            report.add("scopes", "is empty: the job never runs", "name a scope", warning=True)
        if has_provider:
            report.add("scopes", "is given beside a scope provider", "keep one of them")
    elif has_provider and job.scope_kind == GLOBAL:
        report.add(
            "scope_kind",
            "does not say what the scopes of the provider are",
            'write what they are, such as scope_kind = "tenant"',
        )
    elif job.scope_kind != GLOBAL and not has_provider and job.schedule is not None:
        # Without a schedule they appear by being pushed: see enqueue.
        report.add(
            "scope_kind",
            "has no scopes for its schedule",
            'list them: scopes = ["a", "b"]; a scope provider exists only in Python '
            "(`@app.job(..., scopes=function)`)",
        )


def _target(report: Report) -> None:
    report.problems.extend(target_problems(report.job, report.where))


def target_problems(job: Job, where: str | None = None) -> Iterator[Problem]:
    """Yield what is wrong with the target of `job`; values that may be secret are left out."""
    model, target = TARGETS[job.handler], job.target
    programs = (target.get("argv"), target.get("shell"))
    if job.handler is Handler.COMMAND and programs.count(None) != 1:
        message = "needs exactly one of `argv` (a list) and `shell` (a string)"
        yield Problem(where, job.name, "target", None, message, "write one of them")
    try:
        model.model_validate(dict(target))
    except ValidationError as exc:
        for problem in problems_of(
            exc, where=where, job=job.name, known=model.model_fields, prefix="target."
        ):
            shows = (problem.field or "").startswith(_SHOWN)
            yield problem if shows else replace(problem, value=None)


def _json(report: Report, name: str) -> None:
    """`target` and `payload` are stored as jsonb."""
    found = storable.problem(getattr(report.job, name))
    if found is not None:
        report.add(name, *found)
    else:
        _storable(report, name)


def _storable(report: Report, name: str) -> None:
    """PostgreSQL stores neither NUL nor lone surrogates."""
    if any("\x00" in text or _lone(text) for text in _strings(getattr(report.job, name))):
        report.add(
            name,
            "contains a NUL or half of a surrogate pair, which PostgreSQL cannot store",
            "remove it",
        )


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


def _lone(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
