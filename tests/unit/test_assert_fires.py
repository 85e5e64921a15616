"""`assert_fires`: what it accepts, and what its failures show."""

import sys
from datetime import UTC, date, datetime
from functools import partial
from types import ModuleType
from typing import Any

import pytest

from cronledger import App, CalendarSpec
from cronledger.rules.cron import CronError
from cronledger.rules.problems import ConfigurationError
from cronledger.testing import assert_fires
from tests.docs.support.pages import run_snippets, snippets

app = App(
    "shop",
    calendars={
        "berlin": CalendarSpec(
            weekend=("Saturday", "Sunday"), exclude={date(2027, 12, 24): "Christmas Eve"}
        )
    },
)


@app.job("30 2 * * *", timezone="Europe/Berlin")
def backup() -> None: ...


@app.job("30 2 * * *", timezone="Europe/Berlin", dst_gap="skip", dst_fold="both")
def exact() -> None: ...


@app.job("0 9 * * 1", ends_at=datetime(2027, 3, 1, tzinfo=UTC))
def ended() -> None: ...


@app.job()
def manual() -> None: ...


@app.job("30 7 * * *", timezone="Europe/Berlin", calendar="berlin")
def report() -> None: ...


@app.job("0 18 L * *", timezone="Europe/Berlin", calendar="berlin", on_excluded="previous")
def pay() -> None: ...


@app.job("H 3 * * *", scope_kind="tenant", scopes=["acme", "globex"])
def spread() -> None: ...


def failure(*arguments: Any, **named: Any) -> list[str]:
    with pytest.raises(AssertionError) as failed:
        assert_fires(*arguments, **named)
    return str(failed.value).splitlines()


def test_firings_of_a_day_with_a_clock_change_are_asserted() -> None:
    job = app.jobs["backup"]
    (firing,) = assert_fires(job, "2027-03-28", at=["03:00"])
    assert firing.plan_time == datetime(2027, 3, 28, 1, tzinfo=UTC)
    assert_fires(job, "2027-10-31", at=["02:30+02:00"])
    assert_fires(job, date(2027, 6, 1), at=["02:30"], times=1)
    assert_fires(app.jobs["exact"], "2027-03-28", at=[])
    assert_fires(app.jobs["exact"], "2027-10-31", at=["02:30", "02:30+02:00"])


def test_a_declared_function_is_its_job() -> None:
    assert_fires(backup, "2027-03-28", at=["03:00"])
    assert failure(manual, year=2027) == [
        "job 'manual' (without a schedule, UTC) does not fire in 2027"
    ]


def test_firings_of_a_year_are_counted() -> None:
    assert len(assert_fires(app.jobs["backup"], year=2027)) == 365
    assert_fires(app.jobs["exact"], year=2027, times=365)  # one is skipped, one is twice
    assert_fires("0 0 29 2 *", year=2028, at=["2028-02-29T00:00"])
    assert_fires("0 0 29 2 *", year=2027, times=0)


def test_another_zone_is_that_of_the_local_times() -> None:
    assert_fires(app.jobs["backup"], "2027-01-01", at=["01:30"], zone="UTC")
    assert_fires("30 2 * * *", "2027-03-28", at=["03:00:00"], zone="Europe/Berlin")
    assert_fires("30 2 * * *", "2027-03-28", at=["02:30Z"])


def test_a_job_fires_in_its_lifetime_and_its_scope() -> None:
    assert_fires(app.jobs["ended"], year=2027, times=8)
    first, other = (
        assert_fires(app.jobs["spread"], "2027-01-01", scope=scope)[0].plan_time
        for scope in ("acme", "globex")
    )
    assert first != other
    assert assert_fires(app.jobs["spread"], "2027-01-01")[0].plan_time == first


def test_a_failure_shows_the_firings_and_the_clock_change() -> None:
    assert failure("30 2 * * *", year=2027, times=366, zone="Europe/Berlin") == [
        "'30 2 * * *' (Europe/Berlin) fires 365 times in 2027, not 366 times",
        "  Sun 2027-03-28 03:00:00+02:00  clock change: 02:30 is skipped; it fires right after "
        "the gap",
        "  Sun 2027-10-31 02:30:00+02:00  clock change: 02:30 occurs twice; it fires the first "
        "time",
    ]


def test_a_failure_names_missing_and_further_firings() -> None:
    assert failure("0 0 * * *", "2027-01-01", at=["00:00+01:00"])[1:] == [
        "  not at 00:00+01:00",
        "  but at Fri 2027-01-01 00:00:00+00:00",
    ]
    assert failure("@hourly", "2027-01-01", at=[])[-1] == "  and at 14 more times"
    assert failure("@daily", "2027-01-01", times=2)[0].endswith(
        "fires once on 2027-01-01, not 2 times"
    )


@pytest.mark.parametrize(
    ("arguments", "named", "message"),
    [
        (["@daily"], {}, "give exactly one of them"),
        (["@daily", "tomorrow"], {}, "write it like 2027-03-28"),
        (["@daily", "2027-01-01"], {"at": ["noon"]}, "write it like 02:30"),
        (["@daily"], {"year": 2027, "at": ["00:00"]}, "has no date"),
        (["@daily", "2027-01-01"], {"zone": "Mars/Olympus"}, "unknown time zone"),
        (["@daily"], {"year": 0}, "year=0 is out of range"),
        (["@daily", "0001-01-01"], {"zone": "Asia/Tokyo"}, "on=0001-01-01 is out of range"),
        ([app.jobs["spread"], "2027-01-01"], {"scope": "acne"},
         "scope='acne' is not a scope of job 'spread'; did you mean `acme`?"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_named(
    arguments: list[Any], named: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        assert_fires(*arguments, **named)


def test_a_wrong_type_names_the_right_one() -> None:
    given: Any
    for given in (print, partial(backup), 3):
        with pytest.raises(TypeError, match=r"pass a function .* declared, app\.jobs\[NAME\], or"):
            assert_fires(given, "2027-01-01")
    with pytest.raises(TypeError, match="neither a date nor text"):
        assert_fires("@daily", datetime(2027, 1, 1, tzinfo=UTC))
    with pytest.raises(TypeError, match=r"at='00:00' is not a list; write at=\['00:00'\]"):
        assert_fires("@daily", "2027-01-01", at="00:00")
    with pytest.raises(TypeError, match="year='2027' is not a number"):
        assert_fires("@daily", year="2027")  # type: ignore[arg-type]
    assert issubclass(CronError, ValueError)


def test_a_job_fires_as_the_calendar_of_its_app_decides() -> None:
    assert_fires(report, "2027-01-29", at=["07:30"], calendars=app.calendars)
    assert_fires(report, year=2027, times=261 - 1, calendars=app.calendars)
    # The calendar is written out for the year that is asked for.
    (moved,) = assert_fires(pay, "2040-06-29", calendars=app.calendars)
    assert [(x.date, x.name) for x in moved.moved_from] == [(date(2040, 6, 30), "Saturday")]
    lines = failure(pay, "2027-01-31", calendars=app.calendars)
    assert lines == ["job 'pay' (0 18 L * *, Europe/Berlin) does not fire on 2027-01-31"]
    lines = failure(pay, "2027-01-29", at=[], calendars=app.calendars)
    assert lines[1].endswith("18:00:00+01:00  moved from 2027-01-31 (Sunday)")


def test_a_calendar_that_is_missing_or_over_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'berlin', which is not in `calendars`; pass calendars="):
        assert_fires(pay, year=2027)
    over = {"berlin": CalendarSpec(weekend=("Sunday",), through=2026)}
    with pytest.raises(ConfigurationError, match="is over"):
        assert_fires(pay, year=2027, calendars=over)


def test_the_examples_and_output_of_the_guide_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "myproject", ModuleType("myproject"))
    for module in ("myproject.jobs", "payments"):
        monkeypatch.setitem(sys.modules, module, sys.modules[__name__])
    names = run_snippets("howto/testing.md", "assert_fires")
    tests = [test for name, test in names.items() if name.startswith("test_")]
    assert len(tests) == 3
    for test in tests:
        test()
    (shown,) = snippets("howto/testing.md", "", "AssertionError: ")
    lines = failure(app.jobs["backup"], "2027-03-28", at=["02:30"])
    assert shown == "AssertionError: " + "\n".join(lines) + "\n"
