"""Random worlds for the planner (jobs, edits, pauses, retirements) and what must become of them.

The oracle knows nothing of segments or windows: it looks at each second of a few minutes, asks
which revision owns it and which state its due_at has, and applies the policies to the whole list.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any

from hypothesis import strategies as st

from cronledger.rules.calendars import Calendar
from cronledger.rules.model import CatchUp, Job, JobState, Overlap, Revision, SkipReason
from cronledger.rules.planner import Room, due_at
from cronledger.rules.plans import Absence, PlannedSkip, Retirement, ScheduleRow
from tests.unit.support.planning import DAY, KEY, Outcome, job

SECOND = timedelta(seconds=1)
SINCE_EPOCH = int(DAY.timestamp())
LAST, AHEAD = 500, 400  # seconds: the latest now; in which each job that is left fires again


def second(offset: float) -> datetime:
    return DAY + timedelta(seconds=offset)


@dataclass(frozen=True)
class World:
    """What is known of one (job, scope); events lie on whole seconds."""

    revisions: tuple[Revision, ...]
    retirements: tuple[Retirement, ...] = ()
    planned_skips: tuple[PlannedSkip, ...] = ()
    absences: tuple[Absence, ...] = ()

    def known_at(self, instant: datetime) -> "World":
        """The same world as it was written down up to `instant`."""
        retirements = tuple(
            Retirement(start, end if end is not None and end <= instant else None)
            for start, end in self.retirements
            if start <= instant
        )
        first, *later = self.revisions
        revisions = (first, *(r for r in later if r.effective_from <= instant))
        absences = tuple(
            Absence(start, min(end, instant)) for start, end in self.absences if start < instant
        )
        return World(revisions, retirements, self.planned_skips, absences)

    def row(self, cursor: datetime, number: int) -> ScheduleRow:
        return ScheduleRow(
            KEY, "default", cursor, number, retirements=self.retirements,
            planned_skips=self.planned_skips,
            absences=[one for one in self.absences if one.until_at > cursor],
        )  # fmt: skip

    def since(self, number: int) -> list[Revision]:
        return [r for r in self.revisions if r.revision >= number]

    def before(self, instant: datetime) -> Revision:
        later = (r for r in reversed(self.revisions) if r.effective_from < instant)
        return next(later, self.revisions[0])

    def in_force(self, instant: datetime) -> Revision:
        later = (r for r in reversed(self.revisions) if r.effective_from <= instant)
        return next(later, self.revisions[0])

    def reason(self, due: datetime) -> SkipReason | None:
        held = self.before(due)
        if self.scope_retired(due) or held.state is JobState.RETIRED:
            return SkipReason.RETIRED
        until = held.paused_until
        if held.state is JobState.PAUSED and (until is None or due <= until):
            return SkipReason.PAUSED
        if any(start < due and due + held.job.grace < end for start, end in self.absences):
            return SkipReason.HOST_ABSENT
        return None

    def fate(self, plan_time: datetime) -> SkipReason | None:
        """Why a due plan_time cannot run whatever the policies are; None: it may run."""
        excluded = plan_time >= DAY and excludes(self.before(plan_time))
        reason = self.reason(self.due(plan_time))
        decided = SkipReason.OPERATOR if self.skipped(plan_time) is not None else None
        decided = SkipReason.CALENDAR if excluded else decided
        return decided if decided and reason in {None, SkipReason.HOST_ABSENT} else reason

    def skipped(self, plan_time: datetime) -> str | None:
        """The reason with which an operator skips a plan_time."""
        covers = (one.reason for one in self.planned_skips if one.first <= plan_time <= one.last)
        return next(covers, None)

    def scope_retired(self, due: datetime) -> bool:
        return any(start < due and (end is None or due <= end) for start, end in self.retirements)

    @cached_property
    def all(self) -> list[datetime]:
        """The plan_times of the test's time: each second is looked at."""
        found, definition = [], self.revisions[0].job
        later = [((r.effective_from - DAY).total_seconds(), r.job) for r in self.revisions[1:]]
        for offset in range(-3, LAST + AHEAD):
            while later and later[0][0] < offset:
                definition = later.pop(0)[1]
            if definition.schedule is not None and not (SINCE_EPOCH + offset) % _period(definition):
                here = second(offset)
                starts_at, ends_at = definition.starts_at or here, definition.ends_at or here
                if starts_at <= here <= ends_at:
                    found.append(here)
        return found

    def exists(self, after: datetime, through: datetime) -> list[datetime]:
        return [plan_time for plan_time in self.all if after < plan_time <= through]

    def due(self, plan_time: datetime) -> datetime:
        return due_at(self.before(plan_time).job, KEY, plan_time)


EXCLUDED = Calendar("c", 1, DAY.date(), date(2030, 12, 31), {DAY.date(): "Ash Wednesday"})
"""All that these worlds look at, from second 0 on, lies on the excluded day."""


def excludes(revision: Revision) -> bool:
    return revision.calendar is EXCLUDED


def _period(definition: Job) -> int:
    assert definition.schedule is not None
    return int(definition.schedule.removeprefix("@every ").removesuffix("s"))


Judged = list[tuple[datetime, Outcome]]


def judged(world: World, cursor: datetime, now: datetime, blocker: int | None) -> Judged:
    """What becomes of everything due, in order, were there room for all that is to run."""
    due = []
    for plan_time in world.exists(cursor, now):
        if world.due(plan_time) > now:
            break
        due.append(plan_time)
    chosen, rest = _chosen(world, [p for p in due if world.fate(p) is None], now)
    policy = world.in_force(now).job
    overlaps = blocker if blocker is not None and policy.overlap is Overlap.SKIP else None
    ended = _retired_through(world, now)
    answer: Judged = []
    for plan_time in due:
        reason, by = world.fate(plan_time), None
        if reason is None and plan_time not in chosen:
            reason = rest if world.due(plan_time) > ended else SkipReason.MISSED
        if overlaps is not None and chosen:
            here = plan_time in chosen or reason is SkipReason.SUPERSEDED
            reason, by = (SkipReason.OVERLAP, overlaps) if here else (reason, None)
        answer.append((plan_time, (reason, world.before(plan_time).revision, by)))
    return answer


def _retired_through(world: World, now: datetime) -> datetime:
    # A retirement of the job ends with a revision, or goes on. A scope that is back is as it was.
    if world.scope_retired(now):
        return now
    ends = [now, *(r.effective_from for r in world.revisions)]
    retired = [t for t in ends if t <= now and world.before(t).state is JobState.RETIRED]
    return max(retired, default=second(-1000))


def _chosen(
    world: World, active: Sequence[datetime], now: datetime
) -> tuple[Sequence[datetime], SkipReason]:
    policy = world.in_force(now).job
    ended = _retired_through(world, now)
    active = [p for p in active if world.due(p) > ended]
    if not active:
        return [], SkipReason.MISSED
    late = {p: now - world.due(p) for p in active}
    newest = active[-1]
    on_time = [newest] if late[newest] <= policy.grace else []
    missed = [p for p in active if p not in on_time]
    if policy.catch_up is CatchUp.SKIP:
        return on_time, SkipReason.MISSED
    if policy.catch_up is CatchUp.LATEST:
        runs = on_time or [p for p in missed[-1:] if late[p] <= policy.catch_up_window]
        return runs, SkipReason.SUPERSEDED if runs else SkipReason.MISSED
    within = [p for p in missed if late[p] <= policy.catch_up_window]
    return within[-policy.catch_up_limit :] + on_time, SkipReason.MISSED


# --- random worlds -------------------------------------------------------------------------------

seconds = st.integers(0, 50)
rarely = st.sampled_from([None] * 6 + [second(n) for n in (0, 21, 35, 70, 140, 300)])


@st.composite
def definitions(draw: st.DrawFn) -> Job:
    period = draw(st.sampled_from([3, 5, 7, 20, 60]))
    fields: dict[str, Any] = {
        "schedule_delay": timedelta(seconds=draw(st.sampled_from([0, 0, 2, 30]))),
        "jitter": timedelta(seconds=draw(st.sampled_from([0, 0, period - 1, 40]))),
        "starts_at": draw(rarely),
        "ends_at": draw(rarely),
        "grace": timedelta(seconds=draw(st.sampled_from([0, 2, 10, 60]))),
        "catch_up": draw(st.sampled_from(CatchUp)),
        "catch_up_window": timedelta(seconds=draw(st.sampled_from([0, 20, 90, 86_400]))),
        "catch_up_limit": draw(st.integers(1, 6)),
        "overlap": draw(st.sampled_from(Overlap)),
    }
    return job(draw(st.sampled_from([f"@every {period}s"] * 5 + [None])), **fields)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    excluded = st.sampled_from([False, False, True])

    def calendar(definition: Job) -> dict[str, Any]:
        if not draw(excluded):
            return {"job": definition}
        job = definition.model_copy(update={"calendar": EXCLUDED.name})
        return {"job": job, "calendar": EXCLUDED}

    first = Revision(1, second(-1000), JobState.ACTIVE, **calendar(draw(definitions())))
    revisions, at = [first], 0
    for number in range(2, 2 + draw(st.integers(0, 5))):
        at += draw(seconds)
        definition = draw(st.just(revisions[-1].job) | definitions())
        definition = definition.model_copy(update={"calendar": None})
        state = draw(st.sampled_from([*[JobState.ACTIVE] * 4, *[JobState.PAUSED] * 3, *JobState]))
        ends = state is JobState.PAUSED and draw(st.booleans())
        until = second(at + draw(seconds)) if ends else None
        revisions.append(
            Revision(number, second(at), state, paused_until=until, **calendar(definition))
        )
    lengths = st.tuples(seconds, st.integers(1, 50))
    flaps = draw(st.sampled_from([0, 0, 1, 1, 2, 5]))
    retirements = flapping(draw, second(0), lengths.map(_of_seconds), flaps)
    skips = draw(planned_skips(second(0), SECOND))
    return World(tuple(revisions), retirements, skips, draw(absences(second(0), SECOND)))


@st.composite
def planned_skips(draw: st.DrawFn, at: datetime, unit: timedelta) -> tuple[PlannedSkip, ...]:
    """Planned skips in the order of their starts. Some overlap."""
    found = []
    for number in range(draw(st.sampled_from([0, 0, 1, 2, 4]))):
        at += draw(st.integers(0, 80)) * unit
        length = draw(st.sampled_from([0, 0, 10, 40]))
        found.append(PlannedSkip(at, at + length * unit, f"reason {number % 2}"))
    return tuple(found)


@st.composite
def absences(draw: st.DrawFn, at: datetime, unit: timedelta) -> tuple[Absence, ...]:
    """Times without a check-in, of which two may touch."""
    found = []
    for _ in range(draw(st.sampled_from([0, 0, 1, 2, 4]))):
        at += draw(st.integers(0, 80)) * unit
        found.append(Absence(at, at + draw(st.integers(1, 90)) * unit))
        at = found[-1].until_at
    return tuple(found)


def _of_seconds(lengths: tuple[int, int]) -> tuple[timedelta, timedelta]:
    return lengths[0] * SECOND, lengths[1] * SECOND


def flapping(
    draw: st.DrawFn,
    at: datetime,
    lengths: st.SearchStrategy[tuple[timedelta, timedelta]],
    flaps: int,
) -> tuple[Retirement, ...]:
    """So many retirements from then on. The last one may not have ended."""
    found = []
    for _ in range(flaps):
        active, retired = draw(lengths)
        start, at = at + active, at + active + retired
        found.append(Retirement(start, at))
    ongoing = draw(st.booleans())
    if found and ongoing:
        found[-1] = found[-1]._replace(returned_at=None)
    return tuple(found)


CLOCK_CHANGES = [
    ("Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 25, 1, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, 6, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
    ("Asia/Tokyo", datetime(2026, 6, 1, tzinfo=UTC)),  # none
]


def _around(days: Sequence[date], excluded: int) -> Calendar:
    """A calendar of consecutive days, of which the bits of `excluded` choose some."""
    names = {day: f"{day:%A}" for bit, day in enumerate(days) if excluded >> bit & 1}
    return Calendar("c", excluded, days[0], days[-1], names)


@st.composite
def _local_calendars(draw: st.DrawFn, change: datetime) -> Calendar | None:
    """A calendar that knows the days around a clock change, and some that it excludes."""
    days = [change.date() + timedelta(days=n) for n in range(-9, draw(st.sampled_from([4, 30])))]
    excluded = draw(
        st.sampled_from([None, None, 0b1000000000, 0b1110110000]) | st.integers(0, 8191)
    )
    return None if excluded is None else _around(days, excluded)


@st.composite
def _local_definitions(draw: st.DrawFn, timezone: str) -> Job:
    hours = st.sampled_from([timedelta(0), timedelta(minutes=1), timedelta(hours=3)])
    schedule = ["* * * * *", "*/7 * * * *", "30 1-3 * * *", "0,20 2 * * 0,1", "@every 11m"]
    fields: dict[str, Any] = {
        "timezone": timezone, "dst_gap": draw(st.sampled_from(["shift", "skip"])),
        "dst_fold": draw(st.sampled_from(["first", "both"])), "schedule_delay": draw(hours),
        "jitter": draw(hours), "grace": draw(hours),
        "catch_up": draw(st.sampled_from([CatchUp.ALL, CatchUp.ALL, *CatchUp])),
        "catch_up_window": timedelta(hours=draw(st.sampled_from([0, 5, 30, 1000]))),
        "catch_up_limit": draw(st.sampled_from([1, 10, 200, 10_000])),
        "overlap": draw(st.sampled_from([Overlap.ALLOW, *Overlap])),
    }  # fmt: skip
    return job(draw(st.sampled_from(schedule)), **fields)


MOVES = st.sampled_from(["skip", "skip", "next", "previous"])


@st.composite
def local_worlds(draw: st.DrawFn) -> tuple[World, datetime]:
    """A world with schedules in local time around a clock change, and the start of its backlog."""
    timezone, change = draw(st.sampled_from(CLOCK_CHANGES))
    ahead = st.timedeltas(timedelta(0), timedelta(days=1))

    def under(revision: Revision) -> Revision:
        calendar = draw(_local_calendars(change))
        if calendar is None:
            return revision
        moves = "skip" if "@every" in (revision.job.schedule or "") else draw(MOVES)
        job = revision.job.model_copy(update={"calendar": calendar.name, "on_excluded": moves})
        return replace(revision, job=job, calendar=calendar)

    start = at = change - draw(ahead)
    definition = draw(_local_definitions(timezone))
    revisions = [under(Revision(1, start - timedelta(days=9), JobState.ACTIVE, definition))]
    for number in range(2, 2 + draw(st.integers(0, 3))):
        at += draw(ahead)
        definition = draw(st.just(definition) | _local_definitions(timezone))
        if draw(st.booleans()):
            definition = definition.model_copy(update={"ends_at": at + draw(ahead)})
        state = draw(st.sampled_from([JobState.ACTIVE, JobState.PAUSED, *JobState]))
        until = at + draw(ahead) if state is JobState.PAUSED and draw(st.booleans()) else None
        revisions.append(under(Revision(number, at, state, definition, until)))
    lengths = st.tuples(ahead, st.timedeltas(timedelta(hours=1), timedelta(days=1)))
    flaps = draw(st.sampled_from([0, 1, 3]))
    retirements = flapping(draw, start, lengths, flaps)
    skips = draw(planned_skips(start, timedelta(minutes=20)))
    gone = draw(absences(start, timedelta(minutes=20)))
    return World(tuple(revisions), retirements, skips, gone), start


@dataclass(frozen=True)
class Call:
    """One step of a claim, `wait` after the one before; the clock may go back."""

    wait: timedelta
    blocker: int | None
    room: Room
    step: int


calls = st.builds(
    Call,
    st.sampled_from([5, 0.3, 1, 12.0, 13, 25.75, 40, 60, 0, -0.5, -20]).map(
        lambda n: timedelta(seconds=n)
    ),
    st.sampled_from([None, None, 7]),
    st.builds(
        Room,
        st.sampled_from([9, 9, 9, 2, 1, 0]),
        st.sampled_from([None, None, None, 0, 1, 3]),
        st.sampled_from([None, None, None, 0, 1]),
    ),
    st.sampled_from([10_000, 10, 3, 1]),
)
