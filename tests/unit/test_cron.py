"""Reading schedules: what is named, what is refused or warned about, and how far it is walked."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronledger.rules import cron
from cronledger.rules.model import ScopeKey
from tests.unit.support.schedules import FAR, plan_times, refusal

START = datetime(2026, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def first(text: str, count: int, **options: Any) -> list[str]:
    found = plan_times(text, START - SECOND, most=count, **options)
    return [f"{plan_time:%Y-%m-%d %H:%M:%S}" for plan_time in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@hourly", ["2026-01-01 00:00:00", "2026-01-01 01:00:00"]),
        ("@daily", ["2026-01-01 00:00:00", "2026-01-02 00:00:00"]),
        ("@Monthly", ["2026-01-01 00:00:00", "2026-02-01 00:00:00"]),
        ("@yearly", ["2026-01-01 00:00:00", "2027-01-01 00:00:00"]),
        ("5,35 0 0 * * *", ["2026-01-01 00:00:05", "2026-01-01 00:00:35", "2026-01-02 00:00:05"]),
        ("30 9\t* * MON-fri", ["2026-01-01 09:30:00", "2026-01-02 09:30:00"]),
        ("0 0 L * *", ["2026-01-31 00:00:00", "2026-02-28 00:00:00"]),
        # croniter alone would say 04:00, 00:18 and the 12th
        ("0 22-5/5 * * *", ["2026-01-01 03:00:00", "2026-01-01 22:00:00"]),
        ("37-34/20 0 1 1 *", ["2026-01-01 00:17:00", "2026-01-01 00:37:00", "2026-01-01 00:57:00"]),
        ("0 0 1,11,13-10,L 1 *", [f"2026-01-{day:02} 00:00:00" for day in (*range(1, 12), 13)]),
        ("0 0 * * 5#2", ["2026-01-09 00:00:00", "2026-02-13 00:00:00"]),
        ("0 0 * * L5", ["2026-01-30 00:00:00", "2026-02-27 00:00:00"]),
        ("0 0 15W * *", ["2026-01-15 00:00:00", "2026-02-16 00:00:00"]),
        ("@EVERY PT1H30M", ["2026-01-01 00:00:00", "2026-01-01 01:30:00"]),
        ("@every 11m", ["2026-01-01 00:05:00", "2026-01-01 00:16:00"]),
    ],
)
def test_a_schedule_names_these_plan_times(text: str, expected: list[str]) -> None:
    assert first(text, len(expected)) == expected


@pytest.mark.parametrize(
    ("text", "day_or", "days"),
    [
        ("0 0 13 * 5", True, ["01-02", "01-09", "01-13", "01-16"]),  # either
        ("0 0 13 * 5", False, ["02-13", "03-13", "11-13"]),  # both
        ("0 0 */5 * 5", True, ["01-16", "02-06", "03-06"]),  # one begins with '*': both
        ("0 0 5,*/5 * 5", True, ["01-01", "01-02", "01-05", "01-06"]),  # '*' inside: either
        ("0 0 1 * 5#2", True, ["01-01", "01-09", "02-01", "02-13"]),  # '#' and W: either too
        ("0 0 15W * 1", True, ["01-05", "01-12", "01-15", "01-19"]),
    ],
)
def test_day_or_decides_between_day_of_month_and_weekday(
    text: str, day_or: bool, days: list[str]
) -> None:
    assert first(text, len(days), day_or=day_or) == [f"2026-{day} 00:00:00" for day in days]


def test_hashed_fields_depend_on_job_and_scope_and_never_change() -> None:
    jobs = [ScopeKey(f"job{n}", "global", "global") for n in range(40)]
    scopes = [ScopeKey("job", "tenant", f"tenant{n}") for n in range(40)]
    for keys in (jobs, scopes):
        assert len({first("H H * * *", 1, key=key)[0] for key in keys}) > 30
    # What is stored in ledgers already: these may never change.
    assert first("H H(1-5) H(1-28) * *", 1) == ["2026-01-01 02:23:00"]
    eu = ScopeKey("report", "global", "eu")
    assert first("H/9 H * * * *", 1, key=eu) == ["2026-01-01 00:57:08"]
    assert first("@daily", 1) == ["2026-01-01 00:00:00"]
    quarters = first("H/15 * * * *", 5)
    assert [a[-5:-3] for a in quarters[:4]] == sorted({a[-5:-3] for a in quarters})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("61 * * * *", "minute field '61'"), ("* * * foo *", "month field 'foo'"),
        ("* * * * mon#6", "day of week field 'mon#6'"), ("60 * * * * *", "second field '60'"),
        ("0 0 31 4,6 *", "day of month '31' never occurs in month '4,6'"),
        ("0 0 1 * */9#2", "day of week field '*/9#2'"), ("* * * *", "4 fields"), ("", "0 fields"),
        ("0 * * * * * 2026", "years are not supported"), ("R * * * *", "R in the minute field"),
        ("@fortnightly", "unknown alias"), ("CRON_TZ=UTC 0 * * * *", "variables"),
        ("* " * 200, "400 characters"), ("@every", "the period is invalid"),
        ("@every 90", "the period has no unit"), ("@every 500ms", "shorter than a second"),
        ("@every 1s500ms", "not a whole number of seconds"),
        ("@every 20000d", "longer than ten years"),
    ],
)  # fmt: skip
def test_refused_schedules_name_field_value_and_remedy(text: str, problem: str) -> None:
    error = refusal(text)
    assert (error.field, error.value) == ("schedule", text)
    assert problem in str(error)
    assert str(error).endswith(error.remedy)
    assert "\n" not in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(
    ("options", "field", "remedy"),
    [
        ({"timezone": "Europe/Berln"}, "timezone", "did you mean 'Europe/Berlin'"),
        ({"timezone": "../../etc/passwd"}, "timezone", "use a name such as"),
        ({"dst_gap": "later"}, "dst_gap", "'shift' or 'skip'"),
        ({"dst_fold": "last"}, "dst_fold", "'first' or 'both'"),
    ],
)
def test_a_wrong_option_is_refused_with_its_remedy(options: Any, field: str, remedy: str) -> None:
    error = refusal("0 0 * * *", **options)
    assert error.field == field
    assert remedy in str(error)


def test_days_that_never_meet_are_refused() -> None:
    error = refusal("0 0 1 * 1#2", day_or=False)
    assert "day of month '1' and day of week '1#2' never coincide" in str(error)


@pytest.mark.parametrize(
    ("text", "options", "warnings"),
    [
        ("0 9 * * 1-5", {}, []),
        ("0 0 15-L * *", {}, []),
        ("@every 6d", {}, []),
        ("5-5 * * * *", {}, ["5-5 in the minute field means the whole field"]),
        ("0 0 * nov-feb/2 1,fri-mon", {}, ["nov-feb in the month", "fri-mon in the day of week"]),
        ("*/7 * * * *", {}, ["*/7 in the minute field restarts with each hour"]),
        ("0 0 * */5 */2", {}, ["each year", "each week"]),
        ("H/7 * * * *", {}, ["h/7 in the minute field"]),
        ("0 0 H * *", {"job": "i"}, ["H is day 31"]),
        ("@every 2w", {"timezone": "Asia/Tokyo"}, ["Thursdays", "'Asia/Tokyo' has no effect"]),
    ],
)
def test_a_misleading_schedule_has_a_warning(text: str, options: Any, warnings: list[str]) -> None:
    found = cron.parse(text, **options).warnings
    assert len(found) == len(warnings)
    assert all(part in sentence for part, sentence in zip(warnings, found, strict=True))


@pytest.mark.parametrize(
    ("text", "period"),
    [
        ("* * * * * *", SECOND), ("0,55 * * * * *", 5 * SECOND), ("50,10 * * * *", 20 * MINUTE),
        ("0 0,23 * * *", HOUR), ("0 9 * * 1-5", DAY), ("0 9 * * 1,4", 3 * DAY),
        ("0 0 1 * *", 28 * DAY), ("0 0 31 * *", 31 * DAY), ("0 0 31 12 *", 365 * DAY),
        ("0 0 1 * 5#2", 7 * DAY), ("0 0 29 2 *", 1461 * DAY), ("0 0 29 2 */7", 28 * 365 * DAY),
        ("@every 90s", 90 * SECOND),
    ],
)  # fmt: skip
def test_the_shortest_period_is_that_of_the_closest_plan_times(
    text: str, period: timedelta
) -> None:
    assert cron.parse(text).shortest_period == period


@settings(max_examples=30)
@given(
    text=st.tuples(
        st.sampled_from(["0", "0,50", "*/13", "59"]),
        st.sampled_from(["0", "59,3", "*", "*/7"]),
        st.sampled_from(["0", "0,23", "*", "5-9"]),
        st.sampled_from(["*", "1,31", "*/9", "28"]),
        st.sampled_from(["*", "2,3", "12"]),
        st.sampled_from(["*", "0,6", "3", "1#1"]),
    ).map(" ".join)
)
def test_no_neighbours_are_closer_than_the_shortest_period(text: str) -> None:
    spec = cron.parse(text)
    plan_times = list(islice(spec.plan_times(START, FAR), 150))
    assert min(b - a for a, b in pairwise(plan_times)) >= spec.shortest_period


def test_counts_without_enumerating(monkeypatch: pytest.MonkeyPatch) -> None:
    def count(text: str, after: datetime, through: datetime, **options: Any) -> int:
        return cron.parse(text, **options).count(after, through)

    last = datetime(9899, 12, 31, 23, 59, 59, tzinfo=UTC)
    monkeypatch.delattr(cron._WallTimes, "walls")
    assert count("@every 90s", START, START + HOUR) == 40
    assert count("@every 90s", START - SECOND, START + HOUR - SECOND) == 40
    assert count("@every 7m", EPOCH - 14 * MINUTE, EPOCH + 7 * MINUTE) == 3
    assert count("* * * * * *", START, START + 1000 * DAY) == 86_400_000
    assert count("*/5 9-17 * * 1-5", START, START + 700 * DAY) == 54_000
    assert count("0 9 1,15 * *", START, datetime(2027, 1, 1, tzinfo=UTC)) == 24
    assert count("* * * * *", START + SECOND, START) == 0
    assert count("* * * * *", START, START + MINUTE - SECOND) == 0
    assert count("* * * * * *", last - SECOND, FAR) == 1
    assert count("@every 1s", last - SECOND, FAR) == 1


def test_every_walks_the_epoch_grid_on_both_sides_of_the_epoch() -> None:
    seven, berlin = 7 * MINUTE, "Europe/Berlin"
    found = plan_times("@every 7m", EPOCH - 2 * seven, EPOCH + seven, timezone=berlin)
    assert found == [EPOCH - seven, EPOCH, EPOCH + seven]
    (firing,) = cron.parse("@every 7m", timezone=berlin).firings(EPOCH - SECOND, EPOCH)
    assert firing.local.isoformat() == "1970-01-01T01:00:00+01:00"
    assert not firing.shifted


def test_next_after_stops_at_ten_years_or_the_horizon() -> None:
    rare = cron.parse("0 0 29 2 *")
    before_2100 = datetime(2096, 3, 1, tzinfo=UTC)
    found = rare.next_after(before_2100)
    assert found is not None
    assert found.plan_time == datetime(2104, 2, 29, tzinfo=UTC)
    assert cron.parse("0 0 29 2 */7").next_after(START + 3000 * DAY) is None  # next in 2060
    daily = cron.parse("0 12 * * *")
    noon = START + DAY / 2
    for _ in range(2):  # asked afresh, then out of the cache
        assert daily.next_after(START, noon - SECOND) is None
        hit = daily.next_after(START, noon)
        assert hit is not None
        assert hit.plan_time == noon
    assert daily.next_after(noon) == next(daily.firings(noon, FAR))
    assert daily.next_after(START) == hit  # back in time


def test_next_after_is_right_when_threads_share_it() -> None:
    spec = cron.parse("*/7 3 * * mon#2,fri#3", timezone="America/New_York")
    moments = [START + n * timedelta(hours=31) for n in range(120)]
    expected = [next(spec.firings(moment, FAR)) for moment in moments]

    def ask(order: int) -> bool:
        turn = range(len(moments))[::order]
        return all(spec.next_after(moments[n]) == expected[n] for n in turn)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask, [1, -1, 7, -5]))


def test_ranges_are_walked_lazily_and_fast() -> None:
    begin = datetime(1, 1, 1, tzinfo=UTC)
    assert plan_times("* * * * * *", begin, most=1)[0].year == 1900
    seconds = cron.parse("* * * * * *", timezone="Europe/Berlin")
    leap = cron.parse("0 0 29 2 *", timezone="America/Santiago")
    started = process_time()
    assert next(leap.plan_times(begin, FAR)).year == 1904
    month = seconds.plan_times(START + 70 * DAY, START + 100 * DAY)
    assert len(list(islice(month, 10_000))) == 10_000
    # Measured 0.02 s; the bound only tells lazy from eager, fast from hopeless.
    assert process_time() - started < 2
