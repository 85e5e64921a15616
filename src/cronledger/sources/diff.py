"""The changes that an apply would make, and the plan_times that would appear and disappear.

An edit of a calendar is an edit of each job that uses it, so these jobs are among the changes.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Literal

import psycopg

from cronledger.ledger import queries
from cronledger.ledger.access import connect
from cronledger.ledger.transactions import transaction
from cronledger.rules.calendar_changes import (
    CalendarChange,
    Dated,
    FiringChange,
    date_changes,
    firing_changes,
    without_calendar,
)
from cronledger.rules.calendar_spec import CalendarSpec
from cronledger.rules.calendars import Calendar
from cronledger.rules.channels import Channel
from cronledger.rules.cron import CronError
from cronledger.rules.model import Job, unchecked
from cronledger.rules.problems import Problem
from cronledger.sources import missing_channels, source_calendars, upstreams
from cronledger.sources.apply import (
    Applied,
    columns,
    outdated,
    owning_host,
    refuse_foreign,
    stored,
)

SHOWN = 10
_TIMING = frozenset({
    "schedule", "timezone", "day_or", "dst_gap", "dst_fold", "starts_at", "ends_at", "scopes",
    "scope_kind",
})  # fmt: skip
"""The fields, beside those of the calendar, that decide the plan_times of the first scope."""


@dataclass(frozen=True, slots=True)
class Occurrences:
    """A number of plan_times of one scope, and the first `SHOWN` of them."""

    count: int = 0
    first: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """One job that would change. `fields`: the different fields, as (before, after), without
    secrets.

    `appear`, `disappear`: the plan_times of its first scope that only the new, or only the old,
    definition has. `calendar_firings`: the firings of its first scope that appear and disappear in
    a year because of the calendar alone.
    """

    job: str
    change: Literal["added", "changed", "retired"]
    fields: Mapping[str, tuple[Any, Any]]
    appear: Occurrences
    disappear: Occurrences
    calendar_firings: tuple[FiringChange, ...] = ()
    on_excluded: str = "skip"


@dataclass(frozen=True, slots=True)
class ChannelChange:
    """One channel that would change, with its settings before and after, without secrets."""

    channel: str
    change: Literal["added", "changed", "retired"]
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Diff:
    """The changes to plan_times in (after, through]. `refused`: why the source would be refused.

    `warnings`: those about the calendars.
    """

    after: datetime
    through: datetime
    changes: tuple[Change, ...]
    channels: tuple[ChannelChange, ...]
    unchanged: int
    refused: str | None
    calendars: tuple[CalendarChange, ...] = ()
    warnings: tuple[Problem, ...] = ()


def diff(
    url: str,
    jobs: Sequence[Job],
    *,
    source: str,
    days: int,
    channels: Mapping[str, Channel] | None = None,
    schema: str = "cronledger",
    deploy: int | None = None,
    force: bool = False,
    calendars: Mapping[str, CalendarSpec] | None = None,
    host: str | None = None,
) -> Diff:
    """Return the changes that `apply` with the same arguments would make. Writes nothing.

    Raises psycopg.Error, and ConfigurationError as `apply` does.
    """
    with connect(url) as c, transaction(c):
        reading = _Reading(c, schema)
        jobs = upstreams.checked(source, jobs, reading.rows)
        given = {"jobs": json.dumps([columns(job) for job in jobs]), "source": source}
        (clock,) = reading.rows("read_clock")
        applied = reading.rows("read_deploy", source=source)
        found = reading.rows("compare_source", **given)
        found_channels = reading.rows(
            "compare_channels", channels=stored(channels or {}), source=source
        )
        existing = reading.rows("list_channels", channel=None)
        gone = [row["name"] for row in found_channels if row["change"] == "retired"]
        names = [job.name for job in jobs]
        known = {row["name"] for row in existing}.difference(gone).union(channels or ())
        missing = [
            *missing_channels.of_jobs(jobs, known),
            *reading.rows("list_channel_users", jobs=[row["name"] for row in found], channels=gone),
        ]
        now: datetime = clock["now"]
        dates = reading.calendars(source, jobs, calendars or {}, now.date(), found)
        others = reading.rows(
            "list_calendar_jobs", calendars=[*dates.changed], jobs=[row["name"] for row in found]
        )
    deployed, owner = (applied[0]["deploy"], applied[0]["host"]) if applied else (None, None)
    refuse_foreign(source, {
        row["name"]: row["source"] for row in found
        if row["stored"] and row["declared"] and row["retired_at"] is None
    })  # fmt: skip
    refuse_foreign(source, {x["name"]: x["source"] for x in found_channels}, "channel")
    missing_channels.refuse(source, names, missing)
    comparing = _Comparing(now, now + timedelta(days=days), dates)
    declared = {job.name: job for job in jobs}
    changes = [comparing.change(row, declared.get(row["name"])) for row in found]
    changes += [comparing.change(row, unchecked(row)) for row in others]
    kept = tuple(change for change in changes if change is not None)
    changed = tuple(
        ChannelChange(row["name"], row["change"], row["before"], row["after"])
        for row in found_channels
    )
    if not force:
        owning_host(source, owner, host, _applied(kept, changed, dates.changed))
    return Diff(
        comparing.after, comparing.through, kept, changed, len(changes) - len(kept),
        outdated(deployed, deploy, force=force), tuple(dates.changed.values()), dates.warnings,
    )  # fmt: skip


def _applied(
    jobs: Sequence[Change], channels: Sequence[ChannelChange], calendars: Iterable[str]
) -> Applied:
    """Return the changes as `apply` reports them."""
    added, changed, retired = (
        tuple(one.job for one in jobs if one.change == kind)
        for kind in ("added", "changed", "retired")
    )
    return Applied(
        added, changed, retired,
        channels={one.channel: one.change for one in channels}, calendars=tuple(calendars),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Dates:
    """The calendars that jobs name: the current ones, and those after the apply.

    `changed`: the calendars that the apply would change.
    """

    before: Mapping[str, Calendar]
    after: Mapping[str, Calendar]
    changed: Mapping[str, CalendarChange]
    warnings: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class _Reading:
    """Reads in one transaction."""

    c: psycopg.Connection
    schema: str

    def rows(self, name: str, **params: Any) -> list[dict[str, Any]]:
        return queries.rows(self.c, name, self.schema, params)

    def calendars(
        self,
        source: str,
        jobs: Sequence[Job],
        specs: Mapping[str, CalendarSpec],
        today: date,
        found: Sequence[Mapping[str, Any]],
    ) -> _Dates:
        """Return the calendars of the source, and those that its jobs name.

        Raises ConfigurationError as `apply` does.
        """
        present = {row["name"]: row for row in self.rows("list_calendars", calendar=None)}
        written, warnings = source_calendars.write_out(source, specs, today)
        source_calendars.refuse(source, jobs, specs, present)
        named = {job.calendar for job in jobs} | {row["calendar"] for row in found}
        names = sorted(present.keys() & {*named, *specs})
        shown = self.rows("list_calendars_in_force", names=names)
        before = {row["calendar_name"]: Calendar.from_row(row) for row in shown}
        definitions = {row["calendar_name"]: row["definition"] for row in shown}
        changed = {}
        for new in written:
            old = before.get(new.name)
            if (
                old is None
                or (old.first, old.through, old.excluded) != (new.first, new.through, new.excluded)
                or definitions[new.name] != specs[new.name].definition()
            ):
                different = () if old is None else tuple(date_changes(old, new))
                changed[new.name] = CalendarChange(old, new, different)
        after = {**before, **{new.name: new for new in written}}
        return _Dates(before, after, changed, warnings)


@dataclass(frozen=True, slots=True)
class _Comparing:
    """Compares jobs in (after, through], under the calendars of `dates`."""

    after: datetime
    through: datetime
    dates: _Dates

    def change(self, row: Mapping[str, Any], job: Job | None) -> Change | None:
        alive = row["stored"] and row["retired_at"] is None
        has_new_dates = job is not None and job.calendar in self.dates.changed
        if job is not None and alive and not row["differs"] and not has_new_dates:
            return None
        # The job of another source has no fields that a source would write.
        new = job.model_dump(mode="python") if job is not None and row["differs"] else {}
        fields = {
            name: (row[name] if row["stored"] else None, row.get(f"new_{name}", new[name]))
            for name in row["differs"] if name != "name" and job is not None
        }  # fmt: skip
        # A pause survives both a retirement and an edit.
        began = self.after
        if row["paused_at"] is not None:
            began = max(began, row["paused_until"] or self.through)
        old_job = self._dated(unchecked(row), self.dates.before) if alive else None
        new_job = self._dated(job, self.dates.after) if job is not None else None
        same_times = alive and job is not None and not fields.keys() & _TIMING
        calendar_firings: tuple[FiringChange, ...] = ()
        if new_job is not None:
            basis = old_job if same_times and old_job else without_calendar(new_job.job)
            calendar_firings = firing_changes(basis, new_job, began)
        if same_times and not has_new_dates and not fields.keys() & {"calendar", "on_excluded"}:
            disappear = appear = Occurrences()
        else:
            disappear, appear = _only(
                _plan_times(old_job, began, self.through), _plan_times(new_job, began, self.through)
            )
        what: Literal["added", "changed", "retired"] = "changed" if alive else "added"
        return Change(
            row["name"], "retired" if job is None else what, fields, appear, disappear,
            calendar_firings, "skip" if job is None else job.on_excluded,
        )  # fmt: skip

    def _dated(self, job: Job, calendars: Mapping[str, Calendar]) -> Dated:
        return Dated(job, None if job.calendar is None else calendars.get(job.calendar))


def _plan_times(dated: Dated | None, after: datetime, through: datetime) -> Iterator[datetime]:
    """Return the plan_times of the first scope; none for a schedule that is invalid."""
    if dated is None:
        return iter(())
    try:
        return dated.firings(after, through).plan_times()
    except CronError:
        return iter(())  # a schedule in the ledger: it has a spec_error; a new one was refused


def _only(a: Iterator[datetime], b: Iterator[datetime]) -> tuple[Occurrences, Occurrences]:
    """Return the plan_times that only the first, and that only the second iterator has."""
    counts = [0, 0]
    firsts: tuple[list[datetime], list[datetime]] = ([], [])
    x, y = next(a, None), next(b, None)
    while x is not None or y is not None:
        if x == y:
            x, y = next(a, None), next(b, None)
            continue
        side = 0 if y is None or (x is not None and x < y) else 1
        instant = (x, y)[side]
        assert instant is not None
        counts[side] += 1
        if len(firsts[side]) < SHOWN:
            firsts[side].append(instant)
        x, y = (next(a, None), y) if side == 0 else (x, next(b, None))
    return Occurrences(counts[0], tuple(firsts[0])), Occurrences(counts[1], tuple(firsts[1]))
