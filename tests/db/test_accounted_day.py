"""The accounted day: its sums are those of plain SQL, on every day of a year in four zones."""

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest
from psycopg.types.json import Jsonb

from cronledger.explain.day.account import MARKS, AccountedDay, Mark
from cronledger.explain.day.read import MAX_EDITS, TooManyEditsError, read_day
from cronledger.explain.day.states import State, equation, planned
from cronledger.explain.day.strips import CELLS, MAX_ROWS, WIDTH, Strip, read_strips
from cronledger.ledger import queries
from cronledger.ledger.days import Row
from cronledger.rules import cron
from cronledger.rules.model import GLOBAL, ScopeKey
from cronledger.rules.outcome import failure
from cronledger.web.drawing.day_words import detail
from tests.db.support.engine import DAY, HOUR, MINUTE, SECOND, Ledger, Runner

YEAR = 2026
KEY = ScopeKey("job", GLOBAL, GLOBAL)
STATUS = {"on_time": "SUCCESS", "late": "SUCCESS", "failed": "FAILED", "cancelled": "CANCELLED"}


@pytest.fixture
def reader(database_url: str) -> Iterator["Reader"]:
    """Reads days as a member of cronledger_viewer does, in one read-only snapshot each."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("SET ROLE cronledger_viewer")
        yield Reader(connection)


class Reader:
    """Reads accounted days."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        self.statements: list[str] = []

    def __call__(self, day: date, zone: str = "UTC", key: ScopeKey = KEY) -> AccountedDay:
        self.statements.clear()
        with self._connection.transaction():
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            found = read_day(self._read, key, zone, day)
        assert found is not None
        return found

    def strips(self, keys: list[ScopeKey], now: datetime) -> list[Strip]:
        self.statements.clear()
        return read_strips(self._read, keys, now)

    def _read(self, name: str, params: Mapping[str, object]) -> list[Row]:
        self.statements.append(name)
        return queries.rows(self._connection, name, "cronledger", params)


# --- a year --------------------------------------------------------------------------------------

PLAIN = """
SELECT (t.at AT TIME ZONE %s)::date AS day,
       CASE WHEN e.status = 'SUCCESS' AND e.started_at > e.due_at + interval '60 s' THEN 'late'
            WHEN e.status = 'SUCCESS' THEN 'on_time'
            WHEN e.status IS NOT NULL THEN lower(e.status)
            ELSE coalesce(k.reason, 'unexplained') END AS state, count(*)
FROM public.plan t
LEFT JOIN cronledger.executions e
    ON e.job_name = 'job' AND e.plan_time = t.at AND e.trigger = 'schedule'
LEFT JOIN LATERAL (
    SELECT k.reason, k.through_plan_time FROM cronledger.skips k
    WHERE k.job_name = 'job' AND k.from_plan_time <= t.at ORDER BY k.from_plan_time DESC LIMIT 1
) k ON k.through_plan_time >= t.at
GROUP BY 1, 2
"""


SOME, MANY = ("10,40 0-4,22,23 * * *", "5 */2 * * *"), ("*/20 * * * *", "7,37 * * * *")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("zone", "schedules"),
    [("Europe/Berlin", SOME), ("America/Santiago", MANY), ("Australia/Lord_Howe", SOME),
     ("UTC", MANY)],
)  # fmt: skip
def test_every_day_of_a_year_has_the_sums_of_plain_sql(
    ledger: Ledger, reader: Reader, zone: str, schedules: tuple[str, str]
) -> None:
    first, then = schedules
    edited = datetime(YEAR, 6, 3, 10, 20, tzinfo=UTC)  # itself a plan_time of the first revision
    ledger.travel(to=datetime(YEAR - 1, 12, 20, tzinfo=UTC))
    ledger.job(schedule=first, timezone=zone)
    ledger.travel(to=edited)
    ledger.edit(schedule=then)
    ledger.values("UPDATE job_revisions SET effective_from = %s WHERE revision = 2", edited)
    ledger.travel(to=datetime(YEAR + 1, 1, 10, tzinfo=UTC))
    start = datetime(YEAR, 1, 1, tzinfo=ZoneInfo(zone)).astimezone(UTC)
    end = datetime(YEAR + 1, 1, 1, tzinfo=ZoneInfo(zone)).astimezone(UTC)
    plan = [at.plan_time for at in _firings(first, zone, start - SECOND, edited)]
    plan += [at.plan_time for at in _firings(then, zone, edited, end - SECOND)]
    _fill(ledger, plan, edited, random.Random(f"{zone} {first}"))
    ledger.values(
        "UPDATE schedules SET planned_through = %s, planned_revision = 2, created_at = %s",
        end, start - DAY,
    )  # fmt: skip
    sums: dict[date, Counter[str]] = {}
    for day, state, count in ledger.values(PLAIN, zone):
        sums.setdefault(day, Counter())[state] = count
    day = date(YEAR, 1, 1)
    while day.year == YEAR:
        found = reader(day, zone)
        assert {state.value: n for state, n in found.counts.items()} == sums.get(day, {}), day
        assert sum((Counter(m) for m in found.minutes.values()), Counter()) == found.counts
        assert found.marks is not None
        assert Counter(mark.state for mark in found.marks) == found.counts
        assert all(0 <= found.local.x(m.plan_time) < found.local.hours for m in found.marks)
        day += DAY
    assert sum(planned(reader(d, zone).counts) for d in list(sums)[:3]) > 0


def _firings(schedule: str, zone: str, after: datetime, through: datetime) -> Iterator[cron.Firing]:
    spec = cron.parse(schedule, timezone=zone, job="job", scope="global/global")
    return spec.firings(after, through)


def _fill(ledger: Ledger, plan: list[datetime], edited: datetime, rng: random.Random) -> None:
    """Give every plan_time an execution or a place in a skip, except a few."""
    ledger.values("CREATE TABLE public.plan (at timestamptz PRIMARY KEY)")
    ledger.values("INSERT INTO public.plan SELECT unnest(%s::timestamptz[])", plan)
    weeks = [plan[0] + n * 7 * DAY for n in range(54)]
    ledger.values("SELECT cronledger_internal.create_missing_partitions(%s)", weeks)
    ran: list[tuple[datetime, str]] = []
    skips: list[tuple[datetime, datetime, int, str]] = []
    index = 0
    while index < len(plan):
        if rng.random() < 0.05:
            length = min(rng.choice((1, 1, 2, 5, 100)), len(plan) - index)
            reason = rng.choice(("overlap", "superseded", "missed", "paused", "retired"))
            skips.append((plan[index], plan[index + length - 1], length, reason))
            index += length
        elif rng.random() < 0.01:
            index += 1  # unexplained
        else:
            state = rng.choices(list(STATUS), (90, 4, 4, 2))[0]
            ran.append((plan[index], state))
            index += 1
    insert_executions(ledger, [one for one in ran if one[0] <= edited])
    insert_executions(ledger, [one for one in ran if one[0] > edited], revision=2)
    insert_skips(ledger, skips)


def insert_executions(ledger: Ledger, ran: list[tuple[datetime, str]], **columns: Any) -> None:
    """Insert ended executions of the job's schedule with these states."""
    late = [2 * MINUTE if state == "late" else SECOND for _, state in ran]
    ledger.ended([at for at, _ in ran], [STATUS[state] for _, state in ran], late=late, **columns)


def insert_skips(ledger: Ledger, skips: list[tuple[datetime, datetime, int, str]]) -> None:
    """Insert ranges of skips: the first and the last plan_time, their number, the reason."""
    ledger.values(
        "INSERT INTO skips (job_name, scope_kind, scope_id, from_plan_time, through_plan_time,"
        " count, reason, revision) SELECT 'job', 'global', 'global', t.*, 1"
        " FROM unnest(%s::timestamptz[], %s::timestamptz[], %s::bigint[], %s::text[]) t",
        *map(list, zip(*skips, strict=True)),
    )  # fmt: skip


# --- days that the product wrote -----------------------------------------------------------------


def utc(*fields: int) -> datetime:
    return datetime(*fields, tzinfo=UTC)  # type: ignore[arg-type, misc]


async def work(ledger: Ledger, runner: Runner, at: datetime) -> None:
    """Everything that is due at an instant has run."""
    ledger.travel(to=at)
    await runner.live_through()
    for start in await runner.settle():
        await runner.finish(start)


def at(day: AccountedDay, instant: datetime) -> Mark:
    assert day.marks is not None
    (found,) = [mark for mark in day.marks if mark.plan_time == instant]
    return found


@pytest.fixture
async def berlin(ledger: Ledger, one: Runner) -> date:
    """A day with something of everything that happens to plan_times; it is 18:00 in Berlin."""
    day = date(2027, 6, 1)
    start = utc(2027, 5, 31, 22)
    ledger.travel(to=start - 2 * HOUR - 30 * SECOND)
    ledger.job(schedule="0 * * * *", timezone="Europe/Berlin", catch_up="skip")
    for hour in range(-1, 3):
        await work(ledger, one, start + hour * HOUR + SECOND)
    # 03:00 runs until 05:10, and fails. 04:00 and 05:00 are skipped.
    ledger.travel(to=start + 3 * HOUR + SECOND)
    await one.live_through()
    (long,) = await one.settle()
    for hour in (4, 5):
        ledger.values("UPDATE executions SET stale_after = '2028-01-01Z' WHERE status = 'RUNNING'")
        await work(ledger, one, start + hour * HOUR + SECOND)
    ledger.travel(to=start + 5 * HOUR + 10 * MINUTE)
    await one.finish(long, failure(RuntimeError("it broke")))
    # 06:00 is paused. Nothing runs from 07:30 to 09:30, so 08:00 and 09:00 are missed.
    ledger.travel(to=start + 5 * HOUR + 30 * MINUTE)
    ledger.values("SELECT pause('job', reason => 'stock count', requested_by => 'anna')")
    ledger.travel(to=start + 6 * HOUR + 30 * MINUTE)
    ledger.values("SELECT resume('job', requested_by => 'ben')")
    await work(ledger, one, start + 7 * HOUR + SECOND)
    await work(ledger, one, start + 9 * HOUR + 30 * MINUTE)
    ledger.trigger(requested_by="carl")
    await work(ledger, one, start + 9 * HOUR + 31 * MINUTE)
    for hour in range(10, 18):
        await work(ledger, one, start + hour * HOUR + SECOND)
    ledger.values("SELECT backfill('job', ARRAY[%s]::timestamptz[])", start + 8 * HOUR)
    await work(ledger, one, start + 17 * HOUR + 30 * MINUTE)
    ledger.travel(to=start + 18 * HOUR)
    return day


@pytest.mark.long
def test_a_day_is_accounted_for_with_its_reasons(
    berlin: date, ledger: Ledger, reader: Reader
) -> None:
    day = reader(berlin, "Europe/Berlin")
    assert len(reader.statements) == 10
    start = day.local.start
    assert equation(day.counts) == (
        "24 planned = 12 ran + 1 failed + 5 skipped (2 overlap, 2 missed, 1 paused) + 1 overdue"
        " + 5 to come · 0 unexplained"
    )
    assert {trigger: dict(counts) for trigger, counts in day.beside.items()} == {
        "manual": {State.RAN: 1}, "backfill": {State.RAN: 1},
    }  # fmt: skip
    assert [(edit.kind, edit.requested_by, edit.reason) for edit in day.edits] == [
        ("paused", "anna", "stock count"), ("resumed", "ben", None),
    ]  # fmt: skip
    failed = at(day, start + 3 * HOUR)
    assert failed.execution is not None
    overlap = at(day, start + 4 * HOUR).skip
    assert overlap is not None
    assert (overlap.count, overlap.blocked_by) == (2, failed.execution["id"])
    paused = at(day, start + 6 * HOUR).skip
    assert paused is not None
    assert paused.pause is not None
    assert (paused.pause.requested_by, paused.pause.reason) == ("anna", "stock count")
    assert at(day, start + 8 * HOUR).state is State.MISSED
    assert at(day, start + 18 * HOUR).state is State.OVERDUE
    assert at(day, start + 19 * HOUR).state is State.FUTURE
    # The day before has only what was planned after the scope began.
    before = reader(berlin - DAY, "Europe/Berlin")
    assert (before.counts, before.began) == ({State.MISSED: 1, State.ON_TIME: 1}, True)
    assert before.complete_after is not None
    assert start - 2 * HOUR - MINUTE < before.complete_after < start - 2 * HOUR
    assert planned(reader(berlin - 2 * DAY, "Europe/Berlin").counts) == 0
    # The hours in which no runner was alive.
    ledger.values(
        "UPDATE runners SET started_at = %s, heartbeat_at = %s, stale_after = %s",
        utc(2027, 6, 1, 6), utc(2027, 6, 1, 8), utc(2027, 6, 1, 9),
    )  # fmt: skip
    day = reader(berlin, "Europe/Berlin")
    spans = [(gap.start.hour, gap.end.hour) for gap in day.runner_gaps]
    assert spans == [(22, 6), (8, 16)]
    missed = at(day, utc(2027, 6, 1, 6)).skip
    assert missed is not None
    assert missed.gap is None  # its last plan_time was at 07:00, when a runner was alive
    ledger.travel(by=2 * DAY)
    assert list(reader(berlin, "Europe/Berlin").runner_gaps) == []


def test_a_plan_time_that_a_pause_holds_names_the_pause(ledger: Ledger, reader: Reader) -> None:
    ledger.travel(to=utc(2027, 6, 1, 12) + 30 * MINUTE)
    ledger.job(schedule="0 * * * *")
    until = utc(2027, 6, 1, 18)
    ledger.values("SELECT pause('job', 'stock count', %s, requested_by => 'anna')", until)
    ledger.travel(by=HOUR)
    ledger.values("UPDATE jobs SET max_attempts = 7, edited_by = 'ben'")
    ledger.travel(by=HOUR)
    day = reader(date(2027, 6, 1))
    held = [detail(day, one) for one in day.marks or () if one.state is State.HELD]
    pause = "revision 2, paused until 2027-06-01T18:00:00Z by anna: stock count"
    assert held == [f"{pause}; the resume records the skip"] * 2


@pytest.mark.long
def test_what_a_calendar_or_a_pause_will_skip_is_not_to_come(
    ledger: Ledger, reader: Reader
) -> None:
    """A pause decides by due_at, and contains both of its ends."""
    ledger.travel(to=utc(2027, 6, 1, 12) + 30 * SECOND)
    ledger.values(
        "SELECT set_calendar('de', %s, '2031-12-31', first => '2027-01-01')",
        Jsonb({"2027-06-02": "Works holiday"}),
    )
    ledger.job(schedule="0 * * * *", calendar="de")
    ledger.job("delayed", schedule="0 * * * *", schedule_delay="30 min")
    begins = utc(2027, 6, 1, 15)
    ledger.values("SELECT plan_pause('move', %s, %s)", begins, begins + 2 * HOUR)
    day = reader(date(2027, 6, 1))
    assert day.counts == {State.FUTURE: 8, State.TO_SKIP: 3}
    skipped = [one for one in day.marks or () if one.state is State.TO_SKIP]
    assert [one.plan_time for one in skipped] == [begins, begins + HOUR, begins + 2 * HOUR]
    assert skipped[0].obstacle is not None
    assert re.fullmatch(r"pause \d+ of \w+ \(move\) skips it", skipped[0].obstacle)
    delayed = reader(date(2027, 6, 1), key=ScopeKey("delayed", GLOBAL, GLOBAL))
    assert delayed.counts == {State.FUTURE: 9, State.TO_SKIP: 2}
    holiday = reader(date(2027, 6, 2))
    assert holiday.counts == {State.TO_SKIP: 24}
    excluded = "the calendar de excludes this day (Works holiday)"
    assert {detail(holiday, one) for one in holiday.marks or ()} == {excluded}
    assert reader(date(2027, 6, 3)).counts == {State.FUTURE: 24}
    ledger.values("SELECT end_pause(id) FROM pauses")
    assert reader(date(2027, 6, 1)).counts == {State.FUTURE: 11}


def test_a_hole_made_by_hand_is_unexplained(berlin: date, ledger: Ledger, reader: Reader) -> None:
    start = reader(berlin, "Europe/Berlin").local.start
    ledger.values("DELETE FROM executions WHERE plan_time = %s", start + 2 * HOUR)
    ledger.values("DELETE FROM skips WHERE reason = 'overlap'")
    day = reader(berlin, "Europe/Berlin")
    assert day.counts[State.UNEXPLAINED] == 3
    assert at(day, start + 2 * HOUR).state is State.UNEXPLAINED
    assert equation(day.counts).endswith("+ 5 to come + 3 unexplained")
    # A row at another instant does not account for it.
    insert_executions(ledger, [(start + 2 * HOUR + SECOND, "on_time")])
    day = reader(berlin, "Europe/Berlin")
    assert (day.counts[State.UNEXPLAINED], day.counts[State.EXTRA]) == (3, 1)
    assert equation(day.counts).startswith("24 planned = 11 ran")
    # An execution that was requested does not account for it either, as in `verify`.
    ledger.values("UPDATE executions SET trigger = 'backfill' WHERE plan_time = %s", start + HOUR)
    assert reader(berlin, "Europe/Berlin").counts[State.UNEXPLAINED] == 4


def test_pruned_plan_times_are_not_accounted_for(ledger: Ledger, reader: Reader) -> None:
    start = utc(2027, 6, 1)
    ledger.travel(to=start - DAY)
    ledger.job(schedule="0 * * * *")
    ledger.travel(to=start + DAY)
    ledger.values("SELECT cronledger_internal.record_pruned(%s)", start + 12 * HOUR)
    day = reader(start.date())
    assert equation(day.counts) == "11 planned = 0 ran + 11 overdue · 0 unexplained"
    assert (day.complete_after, day.began) == (start + 12 * HOUR, False)


def test_a_job_that_is_edited_without_end_is_refused(ledger: Ledger, reader: Reader) -> None:
    start = utc(2027, 6, 1)
    ledger.travel(to=start)
    ledger.job(schedule="0 * * * *")
    ledger.values(
        "INSERT INTO job_revisions (job_name, revision, effective_from, state, definition)"
        " SELECT job_name, n, %s::timestamptz + n * interval '1 s', state, definition"
        " FROM job_revisions, generate_series(2, %s) n", start, MAX_EDITS,
    )  # fmt: skip
    with pytest.raises(TooManyEditsError, match="job has at least 500 revisions on 2027-06-01"):
        reader(start.date())


def test_the_number_of_marks_is_bounded(ledger: Ledger, reader: Reader) -> None:
    start = utc(2027, 6, 1)
    ledger.travel(to=start - HOUR)
    ledger.job(schedule="*/4 * * * *")
    ledger.travel(to=start + DAY)
    requested = [(start + n * SECOND / 2, "on_time") for n in range(MARKS + 1)]
    insert_executions(ledger, requested, trigger="enqueue")
    day = reader(start.date())
    assert (day.marks, day.beside_marks) == (None, None)
    assert day.beside_minutes[1] == {State.RAN: 120}
    assert sum(sum(counts.values()) for counts in day.beside_minutes.values()) == MARKS + 1


# --- strips --------------------------------------------------------------------------------------


@pytest.mark.long
def test_strips_of_many_jobs_come_from_one_statement(
    berlin: date, ledger: Ledger, reader: Reader
) -> None:
    ledger.job("idle", schedule="@yearly")
    idle, now = ScopeKey("idle", GLOBAL, GLOBAL), ledger.now()
    first, second, third = reader.strips([KEY, idle, KEY], now)
    assert reader.statements == ["list_strip_cells"]
    assert first.cells == third.cells
    assert first.read_from is None
    assert second.totals() == {}
    day = reader(berlin, "Europe/Berlin")
    expected = {
        State.RAN: day.counts[State.ON_TIME] + 1,  # and the last one of the day before
        State.FAILED: 1, State.OVERLAP: 0, State.MISSED: 0, State.PAUSED: 0,
    }  # fmt: skip
    assert first.totals() == expected
    start = day.local.start
    assert first.cells[(start + 3 * HOUR - first.start) // WIDTH] == {State.FAILED: 1}
    # A range of skips is in each of its cells.
    overlap = [n for n, cell in enumerate(first.cells) if State.OVERLAP in cell]
    assert first.start + overlap[0] * WIDTH == start + 4 * HOUR
    assert first.start + overlap[-1] * WIDTH == start + 5 * HOUR
    assert overlap == list(range(overlap[0], overlap[-1] + 1))


@pytest.mark.long
def test_a_strip_reads_a_bounded_number_of_rows(ledger: Ledger, reader: Reader) -> None:
    start = utc(2027, 6, 1)
    ledger.travel(to=start)
    ledger.job(schedule="* * * * * *")
    ledger.travel(to=start + HOUR)
    insert_executions(ledger, [(start + n * SECOND, "on_time") for n in range(3600)])
    (strip,) = reader.strips([KEY], start + HOUR)
    assert strip.totals() == {State.RAN: MAX_ROWS}
    assert strip.read_from == start + (3600 - MAX_ROWS) * SECOND
    assert [strip.is_known(n) for n in range(90, CELLS)] == [False] * 4 + [True, True]
