"""Calendars in the ledger: set_calendar(), the jobs that use one, and what claims do with it."""

from datetime import date, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from cronledger.rules.calendars import Calendar
from tests.db.support.engine import DAY, Ledger, Runner
from tests.db.support.rows import connected, start_blocked
from tests.marks import first_short


def set_calendar(ledger: Ledger, excluded: dict[str, str], name: str = "de", **given: Any) -> int:
    """Call set_calendar() for this year and the next four."""
    values = {"first": f"{ledger.now().year}-01-01", "through": f"{ledger.now().year + 4}-12-31"}
    values |= given
    arguments = ", ".join(f"{argument} => %s" for argument in values)
    revision: int = ledger.one(
        f"SELECT set_calendar(%s, %s, {arguments})", name, Jsonb(excluded), *values.values()
    )
    return revision


def revisions(ledger: Ledger, job: str = "job") -> list[tuple[int, int | None]]:
    """Return number and calendar_revision of each revision of a job."""
    return ledger.values(
        "SELECT revision, (definition ->> 'calendar_revision')::int FROM job_revisions"
        " WHERE job_name = %s ORDER BY revision", job,
    )  # fmt: skip


def test_an_edit_of_a_calendar_is_an_edit_of_each_job_that_uses_it(ledger: Ledger) -> None:
    day = f"{ledger.now().year}-12-25"
    assert set_calendar(ledger, {day: "Christmas Day"}) == 1
    ledger.job(calendar="de", schedule="@daily")
    ledger.job("retired", calendar="de", schedule="@daily", retired_at=ledger.now())
    ledger.job("plain", schedule="@daily")
    assert set_calendar(ledger, {day: "Christmas Day"}) == 1
    assert revisions(ledger) == [(1, 1)]
    assert set_calendar(ledger, {day: "Christmas"}, requested_by="ann") == 2
    assert revisions(ledger) == [(1, 1), (2, 2)]
    assert revisions(ledger, "retired") == [(1, 1)]
    assert revisions(ledger, "plain") == [(1, None)]
    ledger.edit("retired", retired_at=None)
    assert revisions(ledger, "retired") == [(1, 1), (2, 2)]
    asked = "SELECT requested_by FROM job_history WHERE revision = 2 AND job_name = 'job'"
    assert ledger.one(asked) == "ann"
    audited = (
        "SELECT verb, object, (arguments ->> 'jobs')::int FROM audit WHERE requested_by = 'ann'"
    )
    assert ledger.values(audited) == [("set_calendar", "de", 1)]
    names = ledger.values("SELECT excluded ->> %s FROM calendar_revisions ORDER BY revision", day)
    assert names == ["Christmas Day", "Christmas"]


def test_the_revision_of_a_calendar_is_set_by_the_ledger_alone(ledger: Ledger) -> None:
    set_calendar(ledger, {})
    ledger.job(calendar="de", calendar_revision=7, schedule="@daily")
    ledger.edit(calendar_revision=9)
    assert revisions(ledger) == [(1, 1)]
    ledger.edit(calendar=None)
    assert revisions(ledger) == [(1, 1), (2, None)]


def test_first_is_that_of_the_present_revision_or_the_first_of_january(ledger: Ledger) -> None:
    set_calendar(ledger, {}, first=None)
    set_calendar(ledger, {}, first="2001-02-03")
    set_calendar(ledger, {}, first=None, through="2100-12-31")
    firsts = ledger.values("SELECT first FROM calendar_revisions ORDER BY revision")
    assert firsts == [date(ledger.now().year, 1, 1), date(2001, 2, 3), date(2001, 2, 3)]


def test_a_calendar_of_a_source_is_changed_only_there(ledger: Ledger) -> None:
    set_calendar(ledger, {})
    assert set_calendar(ledger, {}, source="file") == 1
    for source in (None, "app"):
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as refused:
            set_calendar(ledger, {}, source=source, through="2100-12-31")
        assert "calendar de: it belongs to the source file" in str(refused.value)
    ledger.values("INSERT INTO sources (name) VALUES ('file')")
    ledger.values("SELECT rename_source('file', 'app')")
    assert set_calendar(ledger, {}, source="app", through="2100-12-31") == 2


TOO_MANY = {str(date(2027, 1, 1) + n * DAY): "x" for n in range(20_001)}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"excluded": []}, "excluded: it is not a JSON object"),
        ({"excluded": TOO_MANY, "through": "2100-12-31"}, "20001 dates; the limit is 20000"),
        ({"excluded": {"2027-02-30": "x"}}, "excluded '2027-02-30': it is not a date from"),
        ({"excluded": {"2019-01-01": "x"}}, "excluded '2019-01-01': it is not a date from"),
        ({"excluded": {"2027-01-01": 1}}, "excluded 2027-01-01: 1 is not a name"),
        ({"excluded": {"2027-01-01": " x"}}, 'excluded 2027-01-01: " x" is not a name'),
        ({"through": "2026-12-31"}, "through 2026-12-31: it is not 0 to 36525 days after"),
        ({"through": "infinity"}, "through: it is not a date"),
        ({"first": "-infinity"}, "first: it is not a date"),
        ({"definition": Jsonb([])}, "definition: it is not a JSON object"),
        ({"name": ""}, "name: it is not 1 to 200 characters long"),
    ],
)
def test_a_bad_calendar_is_refused_with_its_value(
    ledger: Ledger, given: dict[str, Any], said: str
) -> None:
    values = {"name": "de", "excluded": {}, "first": "2027-01-01", "through": "2031-12-31"} | given
    with pytest.raises(psycopg.Error) as refused:
        set_calendar(ledger, values.pop("excluded"), values.pop("name"), **values)
    assert said in str(refused.value)
    assert refused.value.diag.message_hint


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"calendar": "es"}, "job job: calendar 'es' does not exist"),
        ({"on_excluded": "next"}, "on_excluded_needs_calendar"),
        (
            {"calendar": "de", "on_excluded": "next", "schedule": " @EVERY 5s"},
            "every_cannot_be_moved",
        ),
        ({"calendar": "de", "on_excluded": "later"}, "jobs_on_excluded_check"),
    ],
)
def test_a_job_with_a_bad_calendar_is_refused(
    ledger: Ledger, columns: dict[str, Any], said: str
) -> None:
    set_calendar(ledger, {})
    with pytest.raises(psycopg.Error) as refused:
        ledger.job(**({"schedule": "@daily"} | columns))
    assert said in str(refused.value)


def test_a_calendar_that_a_job_names_cannot_be_deleted(ledger: Ledger) -> None:
    set_calendar(ledger, {})
    ledger.job(calendar="de", schedule="@daily")
    with pytest.raises(psycopg.errors.ForeignKeyViolation, match="calendar de: the job job uses"):
        ledger.values("DELETE FROM calendars")
    ledger.edit(calendar=None)
    ledger.values("DELETE FROM calendars")


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_set_calendar_needs_read_committed(ledger: Ledger, level: str) -> None:
    """After its wait for the table it must see the jobs that were added meanwhile."""
    ledger.values(f"SET default_transaction_isolation = '{level}'")
    with pytest.raises(psycopg.errors.InvalidTransactionState, match="set_calendar"):
        set_calendar(ledger, {})


def test_a_job_that_is_added_during_an_edit_gets_the_new_dates(ledger: Ledger) -> None:
    set_calendar(ledger, {})
    ledger.job("old", calendar="de", schedule="@daily")
    longer = "SELECT cronledger.set_calendar('de', '{}', '2100-12-31')"
    with (
        psycopg.connect(ledger.url) as adding,
        connected(ledger.url) as editing,
        connected(ledger.url) as pausing,
    ):
        adding.execute(
            "INSERT INTO cronledger.jobs (name, handler, target, calendar)"
            " VALUES ('new', 'python', '{\"python\": \"a:b\"}', 'de')"
        )
        edit = start_blocked(ledger.db, editing, partial(editing.execute, longer))
        # lock_job takes the table before the row. Otherwise the two would wait for each other.
        call = "SELECT cronledger.pause('old')"
        pause = start_blocked(ledger.db, pausing, partial(pausing.execute, call))
        adding.commit()
        edit.result(90)
        pause.result(90)
    assert revisions(ledger, "new") == [(1, 1), (2, 2)]
    assert revisions(ledger, "old") == [(1, 1), (2, 2), (3, 2)]


# --- claims ---------------------------------------------------------------------------------------


def days_from_now(ledger: Ledger, *names: str | None) -> dict[str, str]:
    """Return the excluded days from today on. None: the day is included."""
    today = ledger.now().date()
    return {str(today + n * DAY): name for n, name in enumerate(names) if name is not None}


def skips(ledger: Ledger) -> list[tuple[str, str | None, int]]:
    return ledger.values("SELECT reason, detail, count FROM skips ORDER BY from_plan_time")


async def test_firings_on_excluded_days_become_skips_with_their_names(
    ledger: Ledger, one: Runner
) -> None:
    set_calendar(ledger, days_from_now(ledger, "Eve", "Feast", "Feast"))
    ledger.job(calendar="de", schedule="0 */6 * * *", timezone="UTC")
    assert await one.settle() == []
    noon = ledger.now().replace(second=0, microsecond=0)
    due, next_plan = ledger.one("SELECT next_due_at, next_plan_time FROM schedules")
    assert (due, next_plan) == (noon + timedelta(hours=6), noon + timedelta(days=2, hours=12))
    for _ in range(10):
        ledger.travel(by=timedelta(hours=6))
        started = await one.settle()
    assert [s.claimed.key.plan_time for s in started] == [noon + timedelta(days=2, hours=12)]
    assert skips(ledger) == [("calendar", "Eve", 1), ("calendar", "Feast", 8)]


async def test_an_outage_over_excluded_days_catches_up_the_included_ones(
    ledger: Ledger, one: Runner
) -> None:
    set_calendar(ledger, days_from_now(ledger, None, "Feast", None))
    ledger.job(
        calendar="de", schedule="@every 1h", catch_up="all", overlap="allow", catch_up_limit=4,
        catch_up_window="9 days",
    )  # fmt: skip
    ledger.travel(by=timedelta(hours=37))
    started = await one.settle()
    assert len(started) == 4 + 1
    assert skips(ledger) == [("missed", None, 8), ("calendar", "Feast", 24)]


async def test_i10_an_edit_of_a_calendar_never_fires_the_past(ledger: Ledger, one: Runner) -> None:
    """I10: what was excluded when it was due stays so."""
    set_calendar(ledger, days_from_now(ledger, "Eve"))
    ledger.job(calendar="de", schedule="0 * * * *", catch_up_window="9 days")
    ledger.travel(by=timedelta(hours=2))
    set_calendar(ledger, {})
    ledger.travel(by=timedelta(hours=1))
    (start,) = await one.settle()
    assert start.claimed.revision == 2
    assert skips(ledger) == [("calendar", "Eve", 2)]


async def test_i10_a_later_end_does_not_fire_what_was_unknown(ledger: Ledger, one: Runner) -> None:
    today = str(ledger.now().date())
    set_calendar(ledger, {}, through=today)
    ledger.job(calendar="de", schedule="0 6 * * *")
    ledger.travel(by=timedelta(days=3))
    assert await one.settle() == []
    assert ledger.parked() == "spec_error"
    error = ledger.one("SELECT spec_error FROM jobs")
    assert error.startswith(f"calendar 'de' ends on {today}; ")
    set_calendar(ledger, {})
    assert ledger.one("SELECT spec_error FROM jobs") is None
    assert await one.settle() == []
    ledger.travel(by=timedelta(days=1))
    assert len(await one.settle()) == 1
    assert skips(ledger) == []


async def test_the_dates_of_a_calendar_are_read_once_for_all_jobs(
    ledger: Ledger, one: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_calendar(ledger, days_from_now(ledger, "Eve"))
    for n in range(3):
        ledger.job(f"j{n}", calendar="de", schedule="* * * * *")
    read: list[int] = []
    of_row = Calendar.from_row

    def counted(row: dict[str, Any]) -> Calendar:
        read.append(row["revision"])
        return of_row(row)

    monkeypatch.setattr(Calendar, "from_row", counted)
    await one.settle()
    ledger.edit("j1", schedule="*/2 * * * *")
    ledger.travel(by=timedelta(minutes=2))
    await one.settle()
    assert read == [1]
    set_calendar(ledger, {})
    await one.settle()
    assert read == [1, 2]


async def test_a_revision_with_the_number_of_a_lost_one_is_read_again(
    ledger: Ledger, one: Runner
) -> None:
    """A restore or a failover takes revisions away, and the next ones get their numbers."""
    set_calendar(ledger, {})
    ledger.job(calendar="de", schedule="0 * * * *")
    set_calendar(ledger, days_from_now(ledger, "Lost"))
    await one.settle()
    for table, key in (("calendar_revisions", "calendar_name"), ("job_revisions", "job_name")):
        ledger.values(f"DELETE FROM {table} WHERE {key} IN ('de', 'job') AND revision = 2")
    ledger.values("UPDATE calendars SET revision = 1")
    ledger.values("ALTER TABLE jobs DISABLE TRIGGER USER")
    ledger.values("UPDATE jobs SET revision = 1, calendar_revision = 1")
    ledger.values("ALTER TABLE jobs ENABLE TRIGGER USER")
    set_calendar(ledger, days_from_now(ledger, "Other"))
    ledger.travel(by=timedelta(hours=1))
    await one.settle()
    assert skips(ledger) == [("calendar", "Other", 1)]


# --- verify ---------------------------------------------------------------------------------------

FALSE_STATES = {
    "another name": (
        "UPDATE skips SET detail = 'Easter' WHERE detail = 'Feast'",
        "untrue_skip", "the reason is calendar (Easter), but the date is Feast",
    ),
    "another reason": (
        "UPDATE skips SET reason = 'missed', detail = NULL WHERE detail = 'Feast'",
        "untrue_skip", "the reason is missed, but the calendar excludes its date (Feast)",
    ),
    "a skip on an included date": (
        "UPDATE calendar_revisions SET excluded = excluded - %s",
        "untrue_skip", "the reason is calendar (Feast), but the date is not excluded",
    ),
    "an execution on an excluded date": (
        "UPDATE executions SET plan_time = plan_time - interval '13 h',"
        " due_at = due_at - interval '13 h' WHERE id = (SELECT max(id) FROM executions)",
        "extra", "the calendar excludes its date (Feast)",
    ),
    "firings after the end of the calendar": (
        "UPDATE calendar_revisions SET through = %s", "extra", "has no such plan_time",
    ),
}  # fmt: skip


@pytest.mark.parametrize("state", first_short(FALSE_STATES))
async def test_verify_finds_what_no_calendar_explains(
    ledger: Ledger, one: Runner, state: str
) -> None:
    """The days are included, Eve, Feast, included, with a firing each hour."""
    ledger.stop_clock(ledger.now().replace(hour=22))
    feast = str(ledger.now().date() + 2 * DAY)
    set_calendar(ledger, days_from_now(ledger, None, "Eve", "Feast", None))
    ledger.job(calendar="de", schedule="0 * * * *")
    for _ in range(54):
        ledger.pass_time(timedelta(hours=1))
        for start in await one.settle():
            await one.finish(start)
    assert skips(ledger) == [("calendar", "Eve", 24), ("calendar", "Feast", 24)]
    assert ledger.violations() == []
    statement, kind, text = FALSE_STATES[state]
    ledger.values(statement, *([feast] if "%s" in statement else []))
    found = ledger.violations()
    assert any(kind in violation and text in violation for violation in found), found


async def test_a_plan_time_that_waits_for_nothing_but_its_calendar_is_not_behind(
    ledger: Ledger, one: Runner
) -> None:
    """superseded and missed are judged by the plan_times on included dates alone."""
    set_calendar(ledger, days_from_now(ledger, None, "Eve", None))
    ledger.job(calendar="de", schedule="0 */6 * * *", grace="1 h", catch_up_window="1 h")
    ledger.travel(by=timedelta(hours=31))
    assert await one.settle() == []
    assert skips(ledger) == [("missed", None, 1), ("calendar", "Eve", 4)]
    assert ledger.violations() == []
    ledger.values("UPDATE skips SET reason = 'superseded' WHERE reason = 'missed'")
    (found,) = ledger.violations()
    assert "no newer plan_time followed" in found
