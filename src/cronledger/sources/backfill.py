"""Which plan_times a backfill of a (job, scope) is about: those of its history, read again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from pydantic import ValidationError

from cronledger.ledger.reports import Reports
from cronledger.rules import timeline
from cronledger.rules.model import Job, JobState, Revision, ScheduleRow, ScopeKey, SkipReason
from cronledger.rules.problems import ConfigurationError, Problem, shown

MOST = 1_000_000
TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Past:
    """`plan_times` ascending; `through`: how far was looked, the cursor at most."""

    plan_times: tuple[datetime, ...]
    through: datetime


def past(reports: Reports, key: ScopeKey, first: datetime, last: datetime) -> Past:
    """Answer the plan_times in [first, last] that are planned already.

    Each belongs to the revision that was in force; before the job was there, the current one
    decides. What lies in a retirement never was a plan_time. Raises ConfigurationError (no such
    scope, no schedule or one that cannot be read, more than a million), psycopg.Error.
    """
    schedule = reports.schedule(key)
    if schedule is None:
        raise _refused(key, "scope", key.scope_id, "there is no such scope", "see `jobs show`")
    through = min(last, schedule["planned_through"])
    if first > through:
        return Past((), through)
    revisions = _history(key, reports.history(key.job_name), first)
    row = ScheduleRow(
        key=key,
        queue=schedule["queue"],
        planned_through=first - TICK,
        planned_revision=revisions[0].revision,
        retired_at=schedule["retired_at"],
        returned_at=schedule["returned_at"],
    )
    line = timeline.timeline(row, revisions, through, {})
    try:
        walk = (p.plan_time for p in line.forward() if p.reason is not SkipReason.RETIRED)
        found = tuple(islice(walk, MOST + 1))
    except timeline.SpecError as error:
        said = f"revision {error.revision}: {error.text}"
        remedy = "begin behind it, or name the plan_times to the SQL function backfill"
        raise _refused(key, "schedule", None, said, remedy) from None
    if len(found) > MOST:
        raise _refused(
            key, "from", first.isoformat(), f"more than {MOST:,} plan_times", "take less at once"
        )
    return Past(found, through)


def _history(key: ScopeKey, rows: Sequence[Mapping[str, Any]], first: datetime) -> list[Revision]:
    revisions = [_revision(row) for row in rows]
    current = revisions[-1]
    if current.job.schedule is None:
        said = "it has no schedule, and so no plan_times"
        raise _refused(key, "schedule", None, said, "name some to the SQL function backfill")
    if first <= revisions[0].effective_from:
        before = Revision(current.revision, first - TICK, JobState.ACTIVE, current.job)
        revisions.insert(0, before)
    in_force = [r for r in revisions if r.effective_from < first]
    return revisions[max(0, len(in_force) - 1) :]


def _revision(row: Mapping[str, Any]) -> Revision:
    # Target and payload decide no plan_time, and an operator may not read those of the past.
    values = {name: row[name] for name in Job.model_fields if name not in ("payload", "target")}
    try:
        job = Job.model_validate(values)
    except ValidationError:
        # No replica could plan by it: it has no plan_times.
        job = Job.model_construct(**{**values, "schedule": None})
    return Revision(
        row["number"], row["effective_from"], JobState(row["state"]), job, row["pause_ends"]
    )


def _refused(
    key: ScopeKey, field: str, value: object, message: str, remedy: str
) -> ConfigurationError:
    said = None if value is None else shown(value)
    return ConfigurationError([Problem(None, key.job_name, field, said, message, remedy)])
