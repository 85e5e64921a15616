"""Gates: when an execution may start that requires other jobs.

The execution of plan_time t may start when, for each required scope, every plan_time in (previous
plan_time of its own job, t] is a SUCCESS. The definition that owns t decides: which jobs are
required, which plan_time is the previous one, and how long the execution waits. Plan_times that a
calendar excludes do not count, neither as previous ones nor as missing ones.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from cronledger.rules.cron import Cron, CronError
from cronledger.rules.model import GLOBAL, ExecutionKey, Job, Revision, ScopeKey
from cronledger.rules.plan_times import TICK, cron_of, due_at, lifetime

FURTHEST = timedelta(days=3660)
"""How far back the previous firing is searched, as far as the next one is searched ahead."""


class Wait(NamedTuple):
    """The interval (after, plan_time] that a gate covers, and how long it waits (None: no end)."""

    after: datetime
    length: timedelta | None


class SkippedUpstream(NamedTuple):
    """A skip of a required job, which is not one of its calendar."""

    first: datetime
    last: datetime
    reason: str
    revision: int


class UpstreamExecution(NamedTuple):
    """The first execution of a required job that is not a SUCCESS. `again`: an attempt is due."""

    plan_time: datetime
    status: str
    error_code: str | None
    finished_at: datetime | None
    again: bool


@dataclass(frozen=True, slots=True)
class Upstream:
    """What the ledger has of a required scope in the interval of a gate.

    `planned`: each plan_time of it has an execution or lies in a skip. `woken`: it is new or was
    edited, and a claim has to plan it first. `gone`: the job is retired or deleted. `backfilled`:
    the plan_times of skips that a backfill has run with success.
    """

    scope: ScopeKey
    planned: bool
    woken: bool
    parked: str | None
    gone: bool
    unfinished: UpstreamExecution | None
    skips: Sequence[SkippedUpstream]
    backfilled: Collection[datetime]


class Missing(NamedTuple):
    """What keeps a gate closed.

    `plan_time` None: the required job is not planned that far. `to_plan`: the next claim plans it.
    """

    scope: ScopeKey
    plan_time: datetime | None
    text: str
    to_plan: bool = False


class Verdict(StrEnum):
    """What a check of a gate decides."""

    OPEN = "open"
    WAIT = "wait"
    EXPIRE = "expire"


def required_scopes(job: Job, scope: ScopeKey) -> tuple[ScopeKey, ...]:
    """Return the scopes that an execution of `job` in `scope` requires, in order, each once.

    The job may be an unchecked one.
    """
    kind, id = scope.scope_kind, scope.scope_id
    return tuple(
        dict.fromkeys(
            ScopeKey(one.job, *((kind, id) if one.scope == "same" else (GLOBAL, GLOBAL)))
            for one in job.gates
        )
    )


def wait_of(key: ExecutionKey, revision: Revision) -> Wait:
    """Return the interval of the gate of this execution, and how long it waits.

    `revision`: that of the execution. If its schedule does not have the plan_time, the interval
    begins at the last firing before it. Raises CronError if the schedule is invalid.
    """
    nominal = key.plan_time.replace(microsecond=0)
    cron, job = cron_of(revision.job, key.scope, revision.calendar), revision.job
    if cron is None:
        return Wait(nominal - TICK, job.wait_at_most)
    length = job.wait_at_most
    if length is None and (following := _next(revision, cron.included, nominal)) is not None:
        due, next_due = (due_at(job, key.scope, at) for at in (nominal, following))
        length = max(next_due - due, timedelta(0))
    return Wait(previous_firing(revision, cron.included, nominal), length)


def previous_firing(revision: Revision, included: Cron, plan_time: datetime) -> datetime:
    """Return the last firing before `plan_time`.

    If there is none, return the start of the time that is searched.
    """
    length, end = timedelta(minutes=1), plan_time - TICK
    floor, end = lifetime(revision.job, plan_time - FURTHEST, end)
    while floor < end:
        start = max(floor, end - length)
        # The count finds an empty part without enumerating the days of it.
        if (count := included.count(start, end)) == 1 or (count and end - start <= _LEAST):
            *_, last = included.plan_times(start, end)
            return last
        if count:
            length = max(_LEAST, (end - start) // 2)
        else:
            end, length = start, 2 * length
    return floor


_LEAST = timedelta(seconds=1)


def _next(revision: Revision, included: Cron, after: datetime) -> datetime | None:
    firing = included.next_after(after)
    ends_at = revision.job.ends_at
    if firing is None or (ends_at is not None and firing.plan_time > ends_at):
        return None
    return firing.plan_time


def missing(
    upstream: Upstream,
    after: datetime,
    through: datetime,
    revision_of: Callable[[str, int], Revision | None],
) -> Missing | None:
    """Return the first thing in (after, through] that keeps the gate closed, or None.

    `revision_of` returns a revision of a job by its number, if it exists. Only those of skips are
    needed, because the plan_times that such a skip has in the interval are those of its revision.
    """
    scope = upstream.scope
    if not upstream.planned:
        return Missing(scope, None, _unplanned(upstream, through), upstream.woken)
    if (found := upstream.unfinished) is not None:
        return Missing(scope, found.plan_time, f"{_name(scope, found.plan_time)} {_state(found)}")
    for skip in upstream.skips:
        owner = revision_of(scope.job_name, skip.revision)
        for plan_time in _skipped(skip, scope, after, through, owner):
            if plan_time not in upstream.backfilled:
                text = f"{_name(scope, plan_time)} was skipped ({skip.reason})"
                return Missing(scope, plan_time, text)
    return None


def _skipped(
    skip: SkippedUpstream,
    scope: ScopeKey,
    after: datetime,
    through: datetime,
    revision: Revision | None,
) -> Iterator[datetime]:
    """Yield the plan_times of the skip in the interval whose dates are included.

    If its revision is lost or cannot be read, yield one that keeps the gate closed.
    """
    low, high = max(after, skip.first - TICK), min(through, skip.last)
    if low >= high:
        return
    try:
        cron = None if revision is None else cron_of(revision.job, scope, revision.calendar)
    except CronError:
        cron = None
    if revision is not None and cron is not None:
        yield from cron.included.plan_times(*lifetime(revision.job, low, high))
    else:
        yield skip.first if skip.first > after else high


def _unplanned(upstream: Upstream, through: datetime) -> str:
    scope = _scope(upstream.scope)
    if upstream.gone:
        return f"{scope} is retired"
    if upstream.parked is None or upstream.parked in {"waiting", "limit"}:
        return f"{scope} is not planned up to {_instant(through)} yet"
    return f"{scope} is not planned up to {_instant(through)}: it is parked ({upstream.parked})"


def _state(found: UpstreamExecution) -> str:
    match found.status:
        case "RUNNING":
            return "is RUNNING"
        case "PENDING":
            return "has not started"
    end = "" if found.finished_at is None else f" at {_instant(found.finished_at)}"
    code = "" if found.error_code is None else f" ({found.error_code})"
    return f"{found.status}{end}{code}" + (", and is retried" if found.again else "")


def _name(scope: ScopeKey, plan_time: datetime) -> str:
    return f"{_scope(scope)} {_instant(plan_time)}"


def _scope(scope: ScopeKey) -> str:
    name = scope.job_name
    return name if scope.scope_kind == "global" else f"{name} {scope.scope_kind}/{scope.scope_id}"


def _instant(instant: datetime) -> str:
    return instant.isoformat(timespec="seconds").replace("+00:00", "Z")
