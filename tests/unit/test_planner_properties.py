"""Random jobs, edits, pauses, retirements, outages: every plan_time once, in order, by the rules.

The oracle knows nothing of segments or windows: it looks at each second of a few minutes, asks
which revision owns it and which state its due_at has, and applies the policies to the whole list.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from cronledger.rules.model import (
    CatchUp,
    Job,
    JobState,
    Overlap,
    Parked,
    Plan,
    Revision,
    ScheduleRow,
    SkipReason,
)
from cronledger.rules.planner import Room, due_at, plan
from tests.unit.planning import DAY, KEY, ROOMY, TICK, Outcome, advanced, job, outcomes

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LAST, AHEAD = 500, 400  # seconds: the latest now; in which each job that is left fires again


def second(offset: float) -> datetime:
    return DAY + timedelta(seconds=offset)


@dataclass(frozen=True)
class World:
    """What is known of one (job, scope); events lie on whole seconds."""

    revisions: tuple[Revision, ...]
    retired_at: datetime | None = None
    returned_at: datetime | None = None

    def known_at(self, instant: datetime) -> "World":
        """The same world as it was written down up to `instant`."""
        returned = self.returned_at if self.returned_at and self.returned_at <= instant else None
        retired = self.retired_at if self.retired_at and self.retired_at <= instant else None
        first, *later = self.revisions
        return World((first, *(r for r in later if r.effective_from <= instant)), retired, returned)

    def row(self, cursor: datetime, number: int) -> ScheduleRow:
        return ScheduleRow(
            KEY,
            "default",
            cursor,
            number,
            retired_at=self.retired_at,
            returned_at=self.returned_at,
        )

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
        scope_retired = self.retired_at is not None and self.retired_at < due
        if self.returned_at is not None and self.returned_at < due:
            scope_retired = False
        if scope_retired or held.state is JobState.RETIRED:
            return SkipReason.RETIRED
        until = held.paused_until
        if held.state is JobState.PAUSED and (until is None or due <= until):
            return SkipReason.PAUSED
        return None

    @cached_property
    def all(self) -> list[datetime]:
        """The plan_times of the test's time: each second is looked at."""
        found = []
        for offset in range(-3, LAST + AHEAD):
            here = second(offset)
            definition = self.before(here).job
            fires = definition.schedule is not None and not (here - EPOCH) % _period(definition)
            if definition.starts_at is not None and here < definition.starts_at:
                fires = False
            if definition.ends_at is not None and here > definition.ends_at:
                fires = False
            if fires:
                found.append(here)
        return found

    def exists(self, after: datetime, through: datetime) -> list[datetime]:
        return [plan_time for plan_time in self.all if after < plan_time <= through]

    def due(self, plan_time: datetime) -> datetime:
        return due_at(self.before(plan_time).job, KEY, plan_time)


def _period(definition: Job) -> timedelta:
    assert definition.schedule is not None
    return timedelta(seconds=int(definition.schedule.removeprefix("@every ").removesuffix("s")))


Judged = list[tuple[datetime, Outcome]]


def judged(world: World, cursor: datetime, now: datetime, blocker: int | None) -> Judged:
    """What becomes of everything due, in order, were there room for all that is to run."""
    due = []
    for plan_time in world.exists(cursor, now):
        if world.due(plan_time) > now:
            break
        due.append(plan_time)
    chosen, rest = _chosen(world, [p for p in due if world.reason(world.due(p)) is None], now)
    policy = world.in_force(now).job
    overlaps = blocker if blocker is not None and policy.overlap is Overlap.SKIP else None
    ended = _retired_through(world, now)
    answer: Judged = []
    for plan_time in due:
        reason, by = world.reason(world.due(plan_time)), None
        if reason is None and plan_time not in chosen:
            reason = rest if world.due(plan_time) > ended else SkipReason.MISSED
        if overlaps is not None and chosen:
            here = plan_time in chosen or reason is SkipReason.SUPERSEDED
            reason, by = (SkipReason.OVERLAP, overlaps) if here else (reason, None)
        answer.append((plan_time, (reason, world.before(plan_time).revision, by)))
    return answer


def _retired_through(world: World, now: datetime) -> datetime:
    # A retirement ends with a revision or a return, or goes on.
    ends = [now, *(r.effective_from for r in world.revisions), world.returned_at or now]
    retired = [t for t in ends if t <= now and world.reason(t) is SkipReason.RETIRED]
    return max(retired, default=second(-1000))


def _chosen(
    world: World, active: Sequence[datetime], now: datetime
) -> tuple[Sequence[datetime], SkipReason]:
    policy = world.in_force(now).job
    ended = _retired_through(world, now)
    if not active or world.due(active[-1]) <= ended:
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
    within = [p for p in within if world.due(p) > ended]
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
    first = Revision(1, second(-1000), JobState.ACTIVE, draw(definitions()))
    revisions, at = [first], 0
    for number in range(2, 2 + draw(st.integers(0, 5))):
        at += draw(seconds)
        definition = draw(st.just(revisions[-1].job) | definitions())
        state = draw(st.sampled_from([*[JobState.ACTIVE] * 4, *[JobState.PAUSED] * 3, *JobState]))
        until = None
        if state is JobState.PAUSED and draw(st.booleans()):
            until = second(at + draw(seconds))
        revisions.append(Revision(number, second(at), state, definition, until))
    retired, back = draw(rarely), draw(st.none() | seconds)
    returned = retired + back * SECOND if retired is not None and back is not None else None
    return World(tuple(revisions), retired, returned)


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


# --- what holds for one plan ---------------------------------------------------------------------


def check(world: World, row: ScheduleRow, now: datetime, call: Call, answer: Plan) -> Judged:
    """Whatever one plan must be; answers what became of each plan_time it settled."""
    now = max(now, row.planned_through)
    policy = world.in_force(now).job
    exists = world.exists(row.planned_through, answer.planned_through)
    found = outcomes(answer, exists)

    # All that lies between the two cursors, once, in order, and as the rules judge it.
    assert [plan_time for plan_time, _ in found] == exists
    assert found == judged(world, row.planned_through, now, call.blocker)[: len(found)]
    assert answer.settled == len(found) <= call.step
    assert row.planned_through <= answer.planned_through <= now
    number = world.in_force(answer.planned_through).revision
    assert answer.planned_revision == max(number, row.planned_revision)
    assert (answer.next_due_at is None) is (answer.parked is not None)
    assert answer.spec_error is None
    for one, next_one in zip(answer.skips, answer.skips[1:], strict=False):
        joined = (one.reason, one.revision, one.blocked_by)
        same = joined == (next_one.reason, next_one.revision, next_one.blocked_by)
        between = [r for r in answer.runs if one.through_plan_time < r.plan_time]
        assert not same or any(r.plan_time < next_one.from_plan_time for r in between)

    assert len(answer.runs) <= min(
        n for n in (call.room.slots, call.room.job, call.room.queue) if n is not None
    )
    for run in answer.runs:
        assert run.due_at == world.due(run.plan_time) <= now
        assert run.revision is world.before(run.plan_time)
    if policy.overlap is not Overlap.ALLOW:
        assert len(answer.runs) <= (0 if call.blocker is not None else 1)
    return found


def check_next(world: World, now: datetime, call: Call, answer: Plan) -> None:
    """Why the walk stopped where it did, and that the row comes back for what is left."""
    cursor = answer.planned_through
    policy = world.in_force(now).job
    left = judged(world, cursor, now, call.blocker)
    later = world.exists(cursor, now + AHEAD * SECOND)
    edits = [r.effective_from for r in world.revisions[1:] if r.effective_from > now]
    changes = [*edits, *(t for t in (world.returned_at,) if t is not None and t > now)]
    held = world.reason(now + TICK) is not None
    if answer.parked in (Parked.WAITING, Parked.LIMIT):
        assert left
        assert left[0][1][0] is None
        assert answer.next_plan_time == left[0][0]
        busy = call.blocker is not None or len(answer.runs) == 1
        assert answer.parked is Parked.LIMIT or (busy and policy.overlap is not Overlap.ALLOW)
        assert answer.replaces is (
            policy.overlap is Overlap.REPLACE and answer.parked is Parked.WAITING
        )
        return
    assert not answer.replaces
    if answer.parked in (Parked.PAUSED, Parked.RETIRED):
        assert held
        assert not changes
        assert not left or left[0][1][0] is None  # what the pause holds back would run
    elif answer.parked is not None:
        assert not left
        assert not later
    elif held and not (left and answer.settled == call.step):
        # The clock went back: the end of what holds the row is known, and nothing else wakes it.
        assert answer.next_due_at == min(changes)
    elif left:
        assert answer.next_due_at is not None
        assert answer.next_due_at <= now
        again = policy.overlap in (Overlap.SKIP, Overlap.REPLACE) and answer.runs
        assert answer.settled == call.step or len(answer.runs) == call.room.slots or again
    else:
        assert answer.next_due_at is not None
        assert answer.next_due_at > now
        wanted = [world.due(later[0])] if later else []
        if answer.next_plan_time is None:
            assert answer.next_due_at == min(changes)
        else:
            assert answer.next_due_at == min([*wanted, *edits])
            assert answer.next_plan_time == later[0]


# --- properties ----------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None, derandomize=True)
@given(worlds(), st.lists(calls, min_size=4, max_size=8))
def test_every_plan_time_is_settled_once_in_order_by_the_rules(
    world: World, steps: list[Call]
) -> None:
    cursor = second(-2.5)
    row, now, latest = world.row(cursor, 1), cursor, cursor
    seen: Judged = []
    known = world.known_at(latest)
    for call in steps:
        now = max(now + call.wait, second(-2))
        if now > latest:
            latest, before = now, known
            known = world.known_at(latest)
            known = before if before == known else known  # it has listed its plan_times
        row = replace(row, retired_at=known.retired_at, returned_at=known.returned_at)
        revisions = known.since(row.planned_revision)
        answer = plan(
            row, revisions, now, blocker=call.blocker, room=call.room, step=call.step
        )  # fmt: skip
        seen += check(known, row, now, call, answer)
        check_next(known, max(now, row.planned_through), call, answer)
        row = advanced(row, answer)
        event(f"parked {answer.parked}")
    assert [plan_time for plan_time, _ in seen] == world.exists(cursor, row.planned_through)
    for _, (reason, _, by) in seen:
        event(f"became {reason or 'run'}")
        assert (by is not None) is (reason is SkipReason.OVERLAP)


def settle(world: World, cursor: datetime, now: datetime, blocker: int | None, step: int) -> Judged:
    """Plan again and again at one instant, as a claim would, until the row is parked or waits."""
    row, seen = world.row(cursor, 1), Judged()
    while True:
        revisions = world.since(row.planned_revision)
        answer = plan(row, revisions, now, blocker=blocker, room=ROOMY, step=step)
        seen += outcomes(answer, world.exists(row.planned_through, answer.planned_through))
        row = advanced(row, answer)
        if answer.runs and blocker is None and world.in_force(now).job.overlap is not Overlap.ALLOW:
            blocker = 99
        if answer.next_due_at is None or answer.next_due_at > now or not answer.settled:
            return seen


@settings(max_examples=150, deadline=None, derandomize=True)
@given(worlds(), st.integers(0, 400_000), st.sampled_from([None, 7]), st.integers(1, 25))
def test_small_steps_settle_what_one_large_step_does(
    world: World, now_ms: int, blocker: int | None, step: int
) -> None:
    now = second(now_ms / 1000)
    known = world.known_at(now)
    whole = settle(known, second(-2.5), now, blocker, 10_000)
    assert settle(known, second(-2.5), now, blocker, step) == whole


@settings(max_examples=50, deadline=None, derandomize=True)
@given(worlds(), st.integers(0, 400_000), calls)
def test_a_plan_is_a_function_of_what_it_is_given(world: World, now_ms: int, call: Call) -> None:
    now = second(now_ms / 1000)
    known = world.known_at(now)
    row = known.row(second(-2.5), 1)
    answers = [
        plan(row, known.revisions, now, blocker=call.blocker, room=call.room, step=call.step)
        for _ in range(2)
    ]
    assert answers[0] == answers[1]


def covered(
    world: World, row: ScheduleRow, looks: Sequence[datetime]
) -> tuple[Judged, ScheduleRow]:
    """What becomes of everything up to the last of these looks, the worker being free at each."""
    seen = Judged()
    for now in looks:
        while True:
            answer = plan(row, world.since(row.planned_revision), now, blocker=None, room=ROOMY)
            seen += outcomes(answer, world.exists(row.planned_through, answer.planned_through))
            row = advanced(row, answer)
            if answer.next_due_at is None or answer.next_due_at > now or not answer.settled:
                break
    return seen, row


looks = st.lists(st.integers(0, LAST), min_size=2, max_size=5).map(sorted)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(definitions(), looks)
def test_how_often_one_looks_changes_nothing_that_is_all_to_run(
    definition: Job, offsets: list[int]
) -> None:
    """Planning up to b, then up to c is planning up to c, where no policy asks how late it is."""
    policy = {"catch_up": CatchUp.ALL, "overlap": Overlap.ALLOW, "catch_up_limit": 10_000}
    definition = definition.model_copy(update={**policy, "catch_up_window": timedelta(days=1)})
    world = World((Revision(1, second(-1000), JobState.ACTIVE, definition),))
    row = world.row(second(-2.5), 1)
    now = [second(offset) for offset in offsets]
    often, once = covered(world, row, now), covered(world, row, now[-1:])
    assert often == once
    assert [p for p, _ in once[0]] == world.exists(row.planned_through, once[1].planned_through)
    assert all(reason is None for _, (reason, _, _) in once[0])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(worlds(), looks)
def test_however_often_one_looks_each_plan_time_is_accounted_for_once(
    world: World, offsets: list[int]
) -> None:
    now = [second(offset) for offset in offsets]
    known = world.known_at(now[-1])
    row = known.row(second(-2.5), 1)
    seen, after = covered(known, row, now)
    assert [p for p, _ in seen] == known.exists(row.planned_through, after.planned_through)
    # At the same instant there is nothing left to settle.
    again, still = covered(known, after, now[-1:])
    assert (again, still.planned_through) == ([], after.planned_through)
