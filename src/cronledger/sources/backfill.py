"""The plan_times of a backfill: those in the history of a (job, scope)."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from cronledger.ledger.reports import Reports
from cronledger.rules.model import JobState, Revision, ScopeKey, SkipReason
from cronledger.rules.plan_times import SpecError
from cronledger.rules.plans import Boot, Retirement, ScheduleRow
from cronledger.rules.problems import ConfigurationError, Problem, shown
from cronledger.rules.timeline import timeline

MOST = 1_000_000
TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Past:
    """`plan_times`, ascending, up to `through`, which is at most the planning cursor."""

    plan_times: tuple[datetime, ...]
    through: datetime


def past(
    reports: Reports, key: ScopeKey, first: datetime, last: datetime, most: int = MOST
) -> Past:
    """Return the plan_times in [first, last] that are already planned.

    Each belongs to the revision that was in force. Before the job existed, the current revision
    decides. A retirement contains no plan_times. Raises ConfigurationError (an unknown scope, no
    schedule or an invalid one, more than `most` plan_times), psycopg.Error.
    """
    schedule = reports.schedule(key)
    if schedule is None:
        raise _refused(
            key, "scope", key.scope_id, "unknown scope", "`cronledger jobs show` lists the scopes"
        )
    through = min(last, schedule["planned_through"])
    if first > through:
        return Past((), through)
    rows = reports.history(key.job_name)
    calendars = reports.calendars(rows)
    revisions = _history(key, [Revision.unchecked(row, calendars) for row in rows], first)
    row = ScheduleRow(
        key=key,
        queue=schedule["queue"],
        planned_through=first - TICK,
        planned_revision=revisions[0].revision,
        retirements=tuple(map(Retirement, schedule["retirements"], schedule["returns"])),
        boots=tuple(map(Boot, schedule["boots"] or (), schedule["noticed_after"] or ())),
    )
    line = timeline(row, revisions, through, {})
    try:
        walk = (p.plan_time for p in line.forward() if p.reason is not SkipReason.RETIRED)
        found = tuple(islice(walk, most + 1))
    except SpecError as error:
        message = f"revision {error.revision}: {error.text}"
        remedy = "begin after this revision, or pass plan_times to the SQL function backfill"
        raise _refused(key, "schedule", None, message, remedy) from None
    if len(found) > most:
        remedy = "use a shorter range"
        if most < MOST:
            remedy += ", or `cronledger backfill`"
        raise _refused(key, "from", first.isoformat(), f"more than {most:,} plan_times", remedy)
    return Past(found, through)


def _history(key: ScopeKey, revisions: list[Revision], first: datetime) -> list[Revision]:
    current = revisions[-1]
    if current.job.schedule is None:
        message = "the job has no schedule, and so no plan_times"
        raise _refused(key, "schedule", None, message, "pass them to the SQL function backfill")
    if first <= revisions[0].effective_from:
        before = Revision(
            current.revision, first - TICK, JobState.ACTIVE, current.job, calendar=current.calendar
        )
        revisions.insert(0, before)
    in_force = [r for r in revisions if r.effective_from < first]
    return revisions[max(0, len(in_force) - 1) :]


def _refused(
    key: ScopeKey, field: str, value: object, message: str, remedy: str
) -> ConfigurationError:
    text = None if value is None else shown(value)
    return ConfigurationError(
        [Problem(job=key.job_name, field=field, value=text, message=message, remedy=remedy)]
    )
