"""Applying a source with calendars: in one transaction with its jobs, and never over another's."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest
from pydantic import SecretStr

from cronledger import App, CalendarSpec, Replica
from cronledger.explain.doctor_ledger import calendars as check_calendars
from cronledger.rules.model import Handler, Job, Overlap
from cronledger.rules.problems import ConfigurationError
from cronledger.settings import Settings
from cronledger.sources.apply import Applied, apply
from cronledger.sources.diff import diff
from cronledger.sources.toml import load
from tests.db.support.engine import FUNCTION, Ledger, Runner, waiting
from tests.docs.support.pages import ROOT
from tests.waiting import eventually

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


CALLS: tuple[Callable[..., Any], ...] = (apply, lambda *a, **k: diff(*a, **k, days=1))
"""A refusal of `apply` is one of `diff` too."""


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
    undeclared = applied(ledger, [job()], {})
    assert (undeclared.calendars, undeclared.unchanged) == ((), 1)
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
    for call in CALLS:
        with pytest.raises(ConfigurationError) as refused:
            call(ledger.url, [job()], source="file")
        assert str(refused.value) == (
            'file: jobs.a.calendar = "de": is a calendar that does not exist; declare it as '
            "[calendars.NAME]"
        )
    applied(ledger, [], {"de": WEEKEND})
    for call in CALLS:
        with pytest.raises(ConfigurationError, match=r"as \[calendars.NAME\], or use one of de"):
            call(ledger.url, [job(calendar="Germany")], source="file")
    assert ledger.values("SELECT name FROM jobs") == []


def test_a_calendar_of_another_source_is_refused(ledger: Ledger) -> None:
    applied(ledger, [job()], {"de": WEEKEND}, source="first")
    for call in CALLS:
        with pytest.raises(ConfigurationError) as refused:
            call(ledger.url, [], source="second", calendars={"de": closed(ledger, 10)})
        assert str(refused.value) == (
            "second: calendars.de: belongs to the source 'first'; use another name, or remove this "
            "declaration: jobs may name calendars of other sources"
        )
    assert applied(ledger, [job("b")], {}, source="second").added == ("b",)


def test_a_source_takes_over_a_calendar_that_sql_has_set(ledger: Ledger) -> None:
    ledger.values("SELECT set_calendar('de', '{}', '2100-12-31')")
    found = applied(ledger, [job()], {"de": WEEKEND})
    assert (found.calendars, revisions(ledger)) == (("de",), [("a", 1, 2)])
    assert ledger.values("SELECT source FROM calendars") == ["file"]


def test_nothing_is_applied_if_one_calendar_cannot_be_written_out(ledger: Ledger) -> None:
    bad: Declared = {
        "fr": CalendarSpec(through=2001), "gb": CalendarSpec(ics=(Path("/nowhere/bank.ics"),)),
    }  # fmt: skip
    for call in CALLS:
        with pytest.raises(ConfigurationError) as refused:
            call(ledger.url, [job()], source="file", calendars={"de": WEEKEND, **bad})
        fields = [problem.field for problem in refused.value.problems]
        assert fields == ["calendars.fr.through", "calendars.gb.ics"]
    assert ledger.values("SELECT name FROM calendars") == []
    assert ledger.values("SELECT name FROM jobs") == []


def test_an_apply_that_fails_after_its_calendars_sets_none(ledger: Ledger) -> None:
    applied(ledger, [job("b")], {"de": WEEKEND}, source="other")
    with pytest.raises(ConfigurationError, match="belongs to the source 'other'"):
        applied(ledger, [job("b")], {"fr": WEEKEND})
    with pytest.raises(ConfigurationError, match="names a channel that does not exist"):
        applied(ledger, [job(notify="ops")], {"fr": WEEKEND})
    assert ledger.values("SELECT name FROM calendars") == ["de"]


def test_an_older_deploy_changes_no_calendar(ledger: Ledger) -> None:
    applied(ledger, [job()], {"de": WEEKEND}, deploy=2)
    assert applied(ledger, [job()], {"de": closed(ledger, 10)}, deploy=1).refused is not None
    assert revisions(ledger) == [("a", 1, 1)]


@pytest.mark.long
async def test_two_sources_that_edit_calendars_at_the_same_time_do_not_deadlock(
    ledger: Ledger,
) -> None:
    applied(ledger, [job()], {"de": WEEKEND})
    applied(ledger, [job("b", "fr")], {"fr": WEEKEND}, source="other")
    for day in range(10, 20):
        with ThreadPoolExecutor(2) as pool:
            new = closed(ledger, day)
            edits = [
                pool.submit(applied, ledger, [job()], {"de": new}),
                pool.submit(applied, ledger, [job("b", "fr")], {"fr": new}, "other"),
            ]
            assert [edit.result().changed for edit in edits] == [("a",), ("b",)]


async def test_an_apply_waits_for_a_job_that_is_being_added(ledger: Ledger) -> None:
    """The job would otherwise keep the old dates."""
    applied(ledger, [job()], {"de": WEEKEND})
    with psycopg.connect(ledger.url) as adding, ThreadPoolExecutor(1) as pool:
        adding.execute(
            "INSERT INTO cronledger.jobs (name, handler, calendar) VALUES ('b', 'external', 'de')"
        )
        edit = pool.submit(applied, ledger, [job()], {"de": closed(ledger, 10)})
        await eventually("the apply waits", lambda: waiting(ledger))
        adding.commit()
        assert edit.result().changed == ("a",)
    assert revisions(ledger) == [("a", 2, 2), ("b", 2, 2)]


async def test_a_replica_applies_the_calendars_of_its_app(ledger: Ledger, one: Runner) -> None:
    app = App("payments", calendars={"de": {"weekend": ["Saturday", "Sunday"]}, "no": {}})

    @app.job("@daily", calendar="de", on_excluded="next")
    def pay() -> None: ...

    async with Replica(app, settings=Settings(database_url=SecretStr(ledger.url))):
        await eventually("the job", lambda: revisions(ledger) == [("pay", 1, 1)])
    assert ledger.values("SELECT name, source FROM calendars ORDER BY name") == [
        ("de", "payments"), ("no", "payments")
    ]  # fmt: skip


def findings(ledger: Ledger) -> list[tuple[str, str, str | None]]:
    return [(x.severity, x.found, x.remedy) for x in ledger.findings(check_calendars)]


def test_doctor_warns_90_days_before_the_end_of_a_calendar_that_a_job_uses(ledger: Ledger) -> None:
    today = ledger.now().date()
    ledger.values("SELECT set_calendar('unused', '{}', %s)", today)
    (fine,) = findings(ledger)
    assert fine[0] == "ok"
    ledger.values("SELECT set_calendar('far', '{}', %s)", today + timedelta(days=90))
    ledger.values("SELECT set_calendar('near', '{}', %s)", today + timedelta(days=89))
    for name in ("far", "near"):
        ledger.job(name, calendar=name, schedule="@daily")
        ledger.job(f"{name}, too", calendar=name, schedule="@daily")
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
    for name in ("near", "near, too", "far", "far, too"):
        ledger.values("SELECT retire(%s)", name)
    assert findings(ledger)[0][0] == "ok"


@pytest.mark.parametrize("name", ["pay-berlin", "pay-new-york"])
async def test_the_example_pays_on_the_last_business_day_of_each_month(
    name: str, ledger: Ledger, one: Runner
) -> None:
    example = load(ROOT / "examples" / "payments.toml")
    (declared,) = [found for found in example.jobs if found.name == name]
    runs = {"handler": Handler.PYTHON, "target": {"python": FUNCTION}, "overlap": Overlap.ALLOW}
    zone = ZoneInfo(declared.timezone)
    today = ledger.now().astimezone(zone).date()
    ledger.travel(to=datetime(today.year, today.month, 1, 12, tzinfo=zone) + timedelta(days=31))
    applied(ledger, [declared.model_copy(update=runs)], dict(example.calendars))
    excluded = ledger.one(
        "SELECT excluded FROM calendar_revisions WHERE calendar_name = %s", declared.calendar
    )
    expected = []
    begin = ledger.now().astimezone(zone).date().replace(day=1)
    for _ in range(4):
        after = (begin + timedelta(days=31)).replace(day=1)
        day = after - timedelta(days=1)
        while str(day) in excluded:
            day -= timedelta(days=1)
        expected.append(datetime.combine(day, time(18), zone))
        begin = after
    paid = []
    for instant in expected:
        ledger.travel(to=instant + timedelta(seconds=1))
        paid += [x.claimed.key.plan_time for x in await one.settle()]
    assert paid == expected
    assert ledger.values("SELECT * FROM skips") == []
