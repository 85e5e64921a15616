"""The plan_times of one definition of a job in a scope: which exist, and when each is due."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

from cronledger.rules import durations
from cronledger.rules.calendars import Calendar
from cronledger.rules.cron import Cron, CronError, has_hash, parse
from cronledger.rules.model import Job, Revision, ScopeKey, hashed_as
from cronledger.rules.plans import Boot, PlannedSkip

TICK = timedelta(microseconds=1)  # the resolution of instants
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FOREVER = timedelta(days=4_000_000)  # longer than all of datetime
NEVER = datetime.max.replace(tzinfo=UTC)


class SpecError(Exception):
    """The schedule of one revision is invalid. `text` is the error."""

    def __init__(self, revision: int, text: str) -> None:
        super().__init__(revision, text)
        self.revision = revision
        self.text = text


def due_at(job: Job, scope: ScopeKey, plan_time: datetime) -> datetime:
    """Return when `plan_time` may start: plan_time + schedule_delay + its share of the jitter.

    The share lies in [0, jitter), in microseconds. It is a hash of (job, scope, plan_time), so that
    it is the same on every replica and in every release.
    """
    due = plan_time + job.schedule_delay if job.schedule_delay else plan_time
    if not job.jitter:
        return due
    instant = (plan_time - EPOCH) // TICK
    text = f"{scope.job_name}\0{scope.scope_kind}\0{scope.scope_id}\0{instant}"
    share = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
    return due + (share * (job.jitter // TICK) >> 64) * TICK


def depends_on_scope(job: Job) -> bool:
    """Return whether the due times of the scopes differ: jitter and H are hashes of the scope."""
    return bool(job.jitter) or (job.schedule is not None and has_hash(job.schedule))


def longest_lag(revision: Revision) -> timedelta:
    return min(revision.job.schedule_delay, FOREVER) + min(revision.job.jitter, FOREVER)


def back(instant: datetime, length: timedelta, floor: datetime) -> datetime:
    """Return the later of `instant - length` and `floor`, within the range of datetime."""
    return instant - length if instant - floor > length else floor


def split_by_skips(
    skips: Sequence[PlannedSkip], after: datetime, through: datetime
) -> Iterator[tuple[datetime, datetime, str | None]]:
    """Divide (after, through] by the planned skips: yield each part with its reason, or None.

    If planned skips overlap, that which begins first has the common plan_times.
    """
    for skip in skips:
        if after >= through or skip.first > through:
            break
        if skip.last <= after:
            continue
        if after < skip.first - TICK:
            yield after, skip.first - TICK, None
        end = min(skip.last, through)
        yield max(after, skip.first - TICK), end, skip.reason
        after = end
    if after < through:
        yield after, through, None


def unskipped(
    skips: Sequence[PlannedSkip], after: datetime, through: datetime
) -> Iterator[tuple[datetime, datetime]]:
    """Yield the parts of (after, through] that no planned skip contains. `skips`: by `first`."""
    return (
        (start, end) for start, end, why in split_by_skips(skips, after, through) if why is None
    )


def lifetime(job: Job, after: datetime, through: datetime) -> tuple[datetime, datetime]:
    """Return (after, through] without the time before the job's starts_at and after its ends_at."""
    if job.starts_at is not None and job.starts_at > after:
        after = job.starts_at - TICK
    if job.ends_at is not None:
        through = min(through, job.ends_at)
    return after, through


def as_spec_error(revision: Revision, error: Exception) -> SpecError:
    text = str(error)
    if isinstance(error, OverflowError):
        lag = durations.format(longest_lag(revision))
        text = f"schedule_delay + jitter = {lag}: due_at is after the year 9999; shorten them"
    return SpecError(revision.revision, text)


def noticed_late(cron: Cron, job: Job, boots: Sequence[Boot]) -> frozenset[datetime]:
    """Return the boots after which no replica of the host checked in within grace."""
    if not (boots and cron.is_reboot):
        return frozenset()
    return frozenset(boot.plan_time for boot in boots if boot.noticed_after > job.grace)


def cron_of(
    job: Job, scope: ScopeKey, calendar: Calendar | None, boots: Iterable[Boot] = ()
) -> Cron | None:
    """Return the schedule of `job` in this scope, or None without one.

    `calendar`: the one that the job names. `boots`: the firings of `@reboot`. Raises CronError,
    also if the calendar is None and the job names one.
    """
    if job.schedule is None:
        return None
    if job.calendar is not None and calendar is None:
        problem = "the ledger does not have the dates of this calendar"
        raise CronError("calendar", job.calendar, problem, "call set_calendar()")
    scope = hashed_as(job.after, scope)
    cron = parse(
        job.schedule,
        timezone=job.timezone,
        day_or=job.day_or,
        dst_gap=job.dst_gap,
        dst_fold=job.dst_fold,
        job=scope.job_name,
        scope=f"{scope.scope_kind}/{scope.scope_id}",
        calendar=calendar,
        on_excluded=job.on_excluded,
    )
    return cron.at_boots(boot.plan_time for boot in boots) if cron.is_reboot else cron
