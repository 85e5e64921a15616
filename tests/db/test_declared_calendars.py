"""Applying a source with calendars: in one transaction with its jobs, and never over another's."""

from collections.abc import Callable, Sequence
from datetime import date, timedelta
from functools import partial
from typing import Any

import pytest

from cronledger import CalendarSpec
from cronledger.explain.doctor_ledger import calendars as check_calendars
from cronledger.rules.model import Handler, Job
from cronledger.rules.problems import ConfigurationError
from cronledger.sources.apply import Applied, apply
from cronledger.sources.diff import diff
from tests.db.support.engine import FUNCTION, Ledger

WEEKEND = CalendarSpec(weekend=("Saturday", "Sunday"))
Declared = dict[str, CalendarSpec]


def job(name: str = "a", calendar: str | None = "de", **more: Any) -> Job:
    columns = {"handler": Handler.PYTHON, "target": {"python": FUNCTION}, "schedule": "@daily"}
    return Job.model_validate({"name": name, "calendar": calendar, **columns, **more})


def applied(
    ledger: Ledger, jobs: Sequence[Job], calendars: Declared, source: str = "file", **more: Any
) -> Applied:
    return apply(ledger.url, jobs, source=source, calendars=calendars, by="ann", **more)


def closed(ledger: Ledger, *days: int, **more: Any) -> CalendarSpec:
    """A calendar that excludes these days after today, beside the weekend."""
    today = ledger.now().date()
    dates = {today + timedelta(days=day): f"Day {day}" for day in days}
    return CalendarSpec(weekend=("Saturday", "Sunday"), exclude=dates, **more)


def revisions(ledger: Ledger) -> list[tuple[Any, ...]]:
    return ledger.values("SELECT name, revision, calendar_revision FROM jobs ORDER BY name")


def assert_refused(
    ledger: Ledger, jobs: Sequence[Job], calendars: Declared, message: str, source: str = "file"
) -> None:
    """Fail unless `apply` and `diff` refuse what a source declares with this message."""
    calls: tuple[Callable[..., Any], ...] = (apply, partial(diff, days=1))
    for call in calls:
        with pytest.raises(ConfigurationError) as refused:
            call(ledger.url, jobs, source=source, calendars=calendars)
        assert str(refused.value) == message


def test_calendars_are_applied_with_jobs_and_stay_when_undeclared(ledger: Ledger) -> None:
    found = applied(ledger, [job()], {"de": WEEKEND, "unused": WEEKEND})
    assert (found.added, found.calendars, found.warnings) == (("a",), ("de", "unused"), ())
    assert revisions(ledger) == [("a", 1, 1)]
    year = ledger.now().year
    assert ledger.values(
        "SELECT calendar_name, first, through, requested_by, definition FROM calendar_revisions"
        " WHERE calendar_name = 'de'"
    ) == [(
        "de", date(year - 1, 1, 1), date(year + 5, 12, 31), "ann",
        {"weekend": ["Saturday", "Sunday"]},
    )]  # fmt: skip
    again = applied(ledger, [job()], {"de": WEEKEND, "unused": WEEKEND})
    assert (again.changed, again.unchanged, again.calendars) == ((), 1, ())
    assert revisions(ledger) == [("a", 1, 1)]
    assert applied(ledger, [job()], {}).unchanged == 1
    assert ledger.values("SELECT name FROM calendars ORDER BY 1") == ["de", "unused"]


def test_an_edit_of_a_calendar_changes_the_jobs_of_all_sources(ledger: Ledger) -> None:
    applied(ledger, [job(), job("plain", None)], {"de": WEEKEND})
    applied(ledger, [job("b")], {}, source="other")
    would = diff(ledger.url, [job(), job("plain", None)], source="file", days=7,
                 calendars={"de": closed(ledger, 10)})  # fmt: skip
    assert [change.job for change in would.changes] == ["a", "b"]
    assert [change.after.name for change in would.calendars] == ["de"]
    found = applied(ledger, [job(), job("plain", None)], {"de": closed(ledger, 10)})
    assert (found.changed, found.unchanged, found.calendars) == (("a",), 1, ("de",))
    assert revisions(ledger) == [("a", 2, 2), ("b", 2, 2), ("plain", 1, None)]


def test_one_apply_may_change_a_calendar_and_its_job(ledger: Ledger) -> None:
    applied(ledger, [job()], {"de": WEEKEND})
    found = applied(ledger, [job(schedule="@hourly")], {"de": closed(ledger, 10)})
    assert (found.changed, found.calendars) == (("a",), ("de",))
    ((_, _, calendar_revision),) = revisions(ledger)
    assert calendar_revision == 2
    assert ledger.values(
        "SELECT definition ->> 'schedule' FROM job_revisions ORDER BY revision"
    ) == (["@daily", "@daily", "@hourly"])
    assert ledger.values("SELECT * FROM violations") == []


def test_an_unknown_calendar_is_refused_with_the_known_ones(ledger: Ledger) -> None:
    unknown = "is a calendar that does not exist; declare it as [calendars.NAME]"
    assert_refused(ledger, [job()], {}, f'file: jobs.a.calendar = "de": {unknown}')
    applied(ledger, [], {"de": WEEKEND})
    message = f'file: jobs.a.calendar = "Germany": {unknown}, or use one of de'
    assert_refused(ledger, [job(calendar="Germany")], {}, message)
    assert ledger.values("SELECT name FROM jobs") == []


def test_a_calendar_of_another_source_is_refused(ledger: Ledger) -> None:
    applied(ledger, [job()], {"de": WEEKEND}, source="first")
    assert_refused(
        ledger, [], {"de": closed(ledger, 10)},
        "second: calendars.de: belongs to the source 'first'; use another name, or remove this "
        "declaration: jobs may name calendars of other sources", source="second",
    )  # fmt: skip
    assert applied(ledger, [job("b")], {}, source="second").added == ("b",)


def test_a_source_takes_over_a_calendar_that_sql_has_set(ledger: Ledger) -> None:
    ledger.values("SELECT set_calendar('de', '{}', '2100-12-31')")
    found = applied(ledger, [job()], {"de": WEEKEND})
    assert (found.calendars, revisions(ledger)) == (("de",), [("a", 1, 2)])
    assert ledger.values("SELECT source FROM calendars") == ["file"]


def test_an_apply_that_fails_or_is_refused_sets_no_calendar(ledger: Ledger) -> None:
    applied(ledger, [job("b")], {"de": WEEKEND}, source="other")
    with pytest.raises(ConfigurationError, match="belongs to the source 'other'"):
        applied(ledger, [job("b")], {"fr": WEEKEND})
    with pytest.raises(ConfigurationError, match="names a channel that does not exist"):
        applied(ledger, [job(notify="ops")], {"fr": WEEKEND})
    assert applied(ledger, [job()], {}, deploy=2).added == ("a",)
    assert applied(ledger, [job()], {"fr": WEEKEND}, deploy=1).refused is not None
    assert ledger.values("SELECT name FROM calendars") == ["de"]


def findings(ledger: Ledger) -> list[tuple[str, str, str | None]]:
    return [(x.severity, x.found, x.remedy) for x in ledger.findings(check_calendars)]


def test_doctor_warns_90_days_before_the_end_of_a_calendar_that_a_job_uses(ledger: Ledger) -> None:
    today = ledger.now().date()
    ledger.values("SELECT set_calendar('unused', '{}', %s)", today)
    (fine,) = findings(ledger)
    assert fine[0] == "ok"
    ledger.values("SELECT set_calendar('far', '{}', %s)", today + timedelta(days=90))
    ledger.values("SELECT set_calendar('near', '{}', %s)", today + timedelta(days=89))
    for job, calendar in (("a", "far"), ("b", "near"), ("c", "near")):
        ledger.job(job, calendar=calendar, schedule="@daily")
    assert findings(ledger) == [(
        "warning", f"near ends on {today + timedelta(days=89)} (2 jobs)",
        "call set_calendar() with a later date",
    )]  # fmt: skip
    ledger.travel(by=timedelta(days=90))
    ledger.values("UPDATE calendars SET source = 'jobs.toml'")
    assert [(severity, found.partition(" on ")[0]) for severity, found, _ in findings(ledger)] == [
        ("problem", "near ended"), ("warning", "far ends")
    ]  # fmt: skip
    assert findings(ledger)[0][2] == "apply jobs.toml again, with a later `through` if it has one"
    ledger.values("SELECT retire(name) FROM jobs")
    assert findings(ledger)[0][0] == "ok"
