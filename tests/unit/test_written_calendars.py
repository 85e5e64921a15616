"""Calendars that files and Apps declare, and the dates that are written out for them."""

import itertools
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from cronledger import App, CalendarSpec, extras
from cronledger.rules import calendar_spec
from cronledger.rules.calendars import Calendar
from cronledger.rules.problems import ConfigurationError
from cronledger.sources.calendars import written_out
from cronledger.sources.toml import load

TODAY = date(2026, 11, 26)
WEEKEND = ["Saturday", "Sunday"]


def written(declared: dict[str, Any], today: date = TODAY) -> Calendar:
    """Return a calendar whose declaration causes no warning."""
    calendar, warnings = written_out("de", calendar_spec.read("de", declared), today)
    assert not warnings
    return calendar


def warned(declared: dict[str, Any], today: date = TODAY) -> list[str]:
    _, warnings = written_out("de", calendar_spec.read("de", declared), today)
    assert all(problem.warning for problem in warnings)
    return [str(problem).removeprefix("calendars.de") for problem in warnings]


def refused(declared: Any, today: date = TODAY) -> list[str]:
    with pytest.raises(ConfigurationError) as refusal:
        written_out("de", calendar_spec.read("de", declared), today)
    assert all(problem.remedy for problem in refusal.value.problems)
    return [str(problem).removeprefix("calendars.de") for problem in refusal.value.problems]


def in_year(calendar: Calendar, year: int) -> dict[str, str]:
    return {f"{day:%m-%d}": x for day, x in calendar.excluded.items() if day.year == year}


def test_a_weekend_is_written_out_through_a_year_with_the_names_of_its_days() -> None:
    calendar = written({"weekend": WEEKEND})
    assert (calendar.first, calendar.through) == (date(2025, 1, 1), date(2031, 12, 31))
    days = [calendar.first + timedelta(days=n) for n in range(7 * 365 + 1)]
    assert days[-1] == calendar.through
    assert all(calendar.excluded_day(day) == (
        {5: "Saturday", 6: "Sunday"}.get(day.weekday())
    ) for day in days)  # fmt: skip
    assert list(calendar.excluded) == sorted(calendar.excluded)
    for through in (2026, 2040):
        assert written({"weekend": WEEKEND, "through": through}).through == date(through, 12, 31)


DATES = {
    "DE-BE": "01-01 03-08 03-26 03-29 05-01 05-06 05-17 10-03 12-25 12-26",
    "US-NY": "01-01 01-18 02-12 02-15 05-31 06-18 06-19 07-04 07-05 09-06 10-11 11-02 11-11 11-25 "
    "12-24 12-25 12-31",
    "XECB": "01-01 03-26 03-29 05-01 12-25 12-26",
}  # fmt: skip
"""The holidays of 2027, by code."""


@pytest.mark.parametrize("code", DATES)
def test_holidays_have_their_dates_and_english_names(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANGUAGE", "th")
    found = in_year(written({"holidays": code}), 2027)
    assert sorted(found) == DATES[code].split()
    assert found["12-25"] == "Christmas Day"


@pytest.mark.parametrize("code", ["DE-BY", "US-NY", "JP", "XNYS"])
def test_each_present_year_finds_the_same_holidays(code: str) -> None:
    calendars = [written({"holidays": code}, date(year, 7, 1)) for year in range(2020, 2034)]
    for earlier, later in itertools.pairwise(calendars):
        assert later.first > earlier.first
        kept = {day: x for day, x in earlier.excluded.items() if day >= later.first}
        assert kept == {day: x for day, x in later.excluded.items() if day <= earlier.through}
        assert kept


def test_several_countries_add_their_holidays() -> None:
    both = written({"holidays": ["DE-BE", "US-NY"]})
    german, american = written({"holidays": "DE-BE"}), written({"holidays": "US-NY"})
    assert both.excluded.keys() == german.excluded.keys() | american.excluded.keys()
    assert both.excluded_day(date(2027, 12, 25)) == "Christmas Day"
    assert both.excluded_day(date(2027, 10, 3)) == "German Unity Day"
    assert both.excluded_day(date(2027, 11, 25)) == "Thanksgiving Day"


def test_the_most_specific_name_of_a_day_wins_and_include_removes_days() -> None:
    calendar = written({
        "weekend": WEEKEND, "holidays": "DE", "exclude": {"2027-12-25": "Stocktaking"},
        "include": ["2027-12-26", "2027-12-18"],
    })  # fmt: skip
    assert calendar.excluded_day(date(2027, 12, 24)) is None
    assert calendar.excluded_day(date(2027, 12, 25)) == "Stocktaking"
    assert calendar.excluded_day(date(2027, 12, 26)) is None  # a Sunday and a holiday
    assert calendar.excluded_day(date(2027, 12, 18)) is None
    assert calendar.excluded_day(date(2027, 12, 19)) == "Sunday"
    assert calendar.excluded_day(date(2027, 10, 3)) == "German Unity Day"  # also a Sunday


def test_dates_may_have_names_and_those_that_are_over_may_stay() -> None:
    named = {"2019-05-01": "Long ago", "2027-05-07": "Bridge day", "2027-12-24": "Christmas Eve"}
    assert written({"exclude": named}).excluded == {
        date(2027, 5, 7): "Bridge day", date(2027, 12, 24): "Christmas Eve",
    }  # fmt: skip
    assert written({"exclude": [date(2027, 5, 7)]}).excluded == {date(2027, 5, 7): "excluded"}
    assert written({"weekend": WEEKEND, "include": ["2019-05-04"]}).excluded


def test_probable_mistakes_cause_warnings() -> None:
    assert warned({}) == [': excludes no day; add for example weekend = ["Saturday", "Sunday"]']
    assert warned({"weekend": WEEKEND, "include": ["2027-12-24"]}) == [
        '.include = "2027-12-24": is not excluded by anything else; remove it'
    ]
    assert warned({"exclude": ["2032-01-01"]}) == [
        '.exclude = "2032-01-01": is after the end of the calendar (2031-12-31); '
        "set through = 2032, or remove it"
    ]
    assert warned({"holidays": "DE", "through": 2101}, date(2099, 1, 1)) == [
        '.holidays = "DE": has no day after 2100, but the calendar ends on 2101-12-31; '
        "set through = 2100, or add the days"
    ]
    # The library warns of years for which it has no table of the moon.
    (unknown,) = warned({"holidays": "IN"}, date(2090, 1, 1))
    assert unknown.startswith('.holidays = "IN": ') and "set through" in unknown


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ("DE", ': is not a table; write it like [calendars.de], with holidays = "DE"'),
        ({"holiday": "DE"}, '.holiday = "DE": unknown name; did you mean `holidays`?'),
        ({"weekend": ["Sat"]}, '.weekend[0] = "Sat": is not a valid choice; use \'Monday\', '),
        ({"weekend": [*calendar_spec.WEEKDAYS]}, "excludes every day; leave the working days out"),
        ({"exclude": ["2027-13-24"]}, '"2027-13-24" is not a date; write it like 2027-12-24'),
        ({"exclude": "2027-12-24"}, "is neither a list nor a table; put it in brackets: "),
        (
            {"exclude": {"2027-12-24": "a\nb"}},
            '.exclude.2027-12-24 = "a\\nb": is not a name of a day; use 1 to 200 printable ',
        ),
        (
            {"exclude": ["2027-12-24"], "include": ["2027-12-24"]},
            "2027-12-24 is also in exclude; remove it from one of them",
        ),
        ({"through": 2025}, ".through = 2025: is over; use for example 2031"),
        ({"through": 2077}, ".through = 2077: is more than 50 years ahead; use for example 2031"),
        ({"holidays": "Germany"}, "knows; did you mean `DE`?"),
        ({"holidays": "de-by"}, "knows; did you mean `DE-BY`?"),
        ({"holidays": "Atlantis"}, "knows; use the code of a country, such as DE, DE-BY or US-NY"),
        ({"holidays": "AD-99"}, "AD has no part 99; use AD, or one of its parts: 02, 03, 04, "),
        ({"holidays": "XECB-1"}, "XECB has no part 1; use XECB"),
        ({"ics": "bank.ics"}, "is not an absolute path; write it like Path(__file__).with_name("),
        ({"ics": "/nowhere/bank.ics"}, "cannot be read: No such file or directory; use a readable"),
    ],
)  # fmt: skip
def test_a_wrong_declaration_is_refused_with_a_remedy(declared: Any, problem: str) -> None:
    (found,) = refused(declared)
    assert problem in found


def test_all_problems_are_reported_at_once() -> None:
    assert len(refused({"weekend": ["Sat"], "through": "x", "exclude": [1], "holiday": 1})) == 4
    assert len(refused({"holidays": ["Atlantis", "DE-XX"], "ics": "/nowhere/bank.ics"})) == 3


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "is_installed", lambda module: False)
    assert written({"weekend": WEEKEND, "exclude": ["2027-12-24"]}).excluded
    for key, module in (("holidays", "holidays"), ("ics", "recurring_ical_events")):
        assert refused({key: "/DE"}) == [
            f".{key}: needs {module}, which is not installed; "
            "run `pip install 'cronledger[calendars]'`"
        ]


def ics(path: Path, *events: str) -> dict[str, Any]:
    """Write a file with these events, and return the declaration of a calendar that has it."""
    file = path / "bank.ics"
    body = "".join(
        f"BEGIN:VEVENT\nUID:{n}\n{event}\nEND:VEVENT\n" for n, event in enumerate(events)
    )
    text = f"BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:-//test//EN\n{body}END:VCALENDAR\n"
    file.write_bytes(text.replace("\n", "\r\n").encode())
    return {"ics": str(file), "through": 2027}


def days(declared: dict[str, Any]) -> dict[str, str]:
    return {str(day): name for day, name in written(declared).excluded.items()}


def test_an_event_of_an_icalendar_file_is_each_of_its_days(tmp_path: Path) -> None:
    assert days(ics(
        tmp_path,
        "DTSTART;VALUE=DATE:20271224\nSUMMARY:Christmas Eve",
        "DTSTART;VALUE=DATE:20271230\nDTEND;VALUE=DATE:20280102\nSUMMARY:Year-end\\, closed",
        "DTSTART;VALUE=DATE:20270510\nDURATION:P2D",
        "DTSTART;TZID=Europe/Berlin:20270601T000000\nDTEND;TZID=Europe/Berlin:20270602T000000\n"
        "SUMMARY:As an instant",
        "DTSTART;VALUE=DATE:20270701\nSTATUS:CANCELLED\nSUMMARY:Cancelled",
        "DTSTART;VALUE=DATE:20200301\nRRULE:FREQ=YEARLY\nEXDATE;VALUE=DATE:20260301\nSUMMARY:Yearly",
        "DTSTART;VALUE=DATE:20190701\nSUMMARY:Long ago",
        "DTSTART;VALUE=DATE:20241230\nDTEND;VALUE=DATE:20250102\nSUMMARY:Before the beginning",
    )) == {
        "2025-01-01": "Before the beginning", "2025-03-01": "Yearly", "2027-03-01": "Yearly",
        "2027-05-10": "excluded", "2027-05-11": "excluded",
        "2027-06-01": "As an instant", "2027-12-24": "Christmas Eve",
        "2027-12-30": "Year-end, closed", "2027-12-31": "Year-end, closed",
    }  # fmt: skip


def test_a_name_is_one_line_that_the_ledger_can_store(tmp_path: Path) -> None:
    long, control = "a" * 199 + " and more", "Eve\\nof\u0085 Christmas "
    assert days(ics(
        tmp_path, f"DTSTART;VALUE=DATE:20271224\nSUMMARY:{long}",
        f"DTSTART;VALUE=DATE:20271225\nSUMMARY:{control}",
        "DTSTART;VALUE=DATE:20271225\nSUMMARY:Day off",
    )) == {"2027-12-24": "a" * 199, "2027-12-25": "Eve of Christmas; Day off"}  # fmt: skip


def test_a_file_that_ends_before_the_calendar_causes_a_warning(tmp_path: Path) -> None:
    event = "DTSTART;VALUE=DATE:20261224\nSUMMARY:Christmas Eve"
    assert warned(ics(tmp_path, event)) == [
        '.ics = "bank.ics": has no day after 2026, but the calendar ends on 2027-12-31; '
        "set through = 2026, or add the days"
    ]
    assert not warned(ics(tmp_path, event, "DTSTART;VALUE=DATE:20261226\nRRULE:FREQ=YEARLY"))


EVENTS = {
    "DTSTART:20271224T100000Z\nDTEND:20271224T110000Z\nSUMMARY:Meeting":
        'has the event "Meeting" at 2027-12-24 10:00:00+00:00, which is not an all-day event',
    "SUMMARY:Never": 'has a broken event "Never": it has no DTSTART',
    "DTSTART;VALUE=DATE:20271224\nRRULE:FREQ=OFTEN": 'broken event "without a name": RRULE: ',
    "DTSTART;VALUE=DATE:20271224\nRRULE:FREQ=HOURLY\nSUMMARY:Bell":
        'has the event "Bell", which repeats HOURLY; use one of DAILY, WEEKLY, MONTHLY, YEARLY',
    "DTSTART;VALUE=DATE:20271224\nDTEND;VALUE=DATE:20271223\nSUMMARY:Back":
        'has the event "Back", which ends before it begins',
}  # fmt: skip
CONTENTS = {
    b"": "has no event (VEVENT)", b"\xff\xfe": "is not a valid iCalendar file: ",
}  # fmt: skip


@pytest.mark.parametrize(("content", "problem"), [*EVENTS.items(), *CONTENTS.items()])
def test_an_event_that_cannot_be_days_and_a_file_that_is_no_calendar_are_refused(
    content: str | bytes, problem: str, tmp_path: Path
) -> None:
    declared = ics(tmp_path, *([content] if isinstance(content, str) else []))
    if isinstance(content, bytes):
        (tmp_path / "bank.ics").write_bytes(content)
    (found,) = refused(declared)
    assert problem in found


def test_a_file_and_an_app_declare_the_same(tmp_path: Path, clean_environment: None) -> None:
    file = tmp_path / "cronledger.toml"
    file.write_text("""
        [calendars.de]
        weekend = ["Saturday", "Sunday"]
        holidays = "DE-BE"
        ics = "bank.ics"
        include = [2027-01-02]
        through = 2027
        [calendars.de.exclude]
        2027-12-24 = "Christmas Eve"
    """)
    app = App("payments", calendars={
        "de": CalendarSpec(
            weekend=("Saturday", "Sunday"), holidays=("DE-BE",), ics=(tmp_path / "bank.ics",),
            include={date(2027, 1, 2): None}, exclude={date(2027, 12, 24): "Christmas Eve"},
            through=2027,
        )
    })  # fmt: skip
    assert load(file).calendars == app.calendars
    assert app.calendars["de"].definition() == {
        "weekend": ["Saturday", "Sunday"], "holidays": ["DE-BE"], "ics": ["bank.ics"],
        "exclude": {"2027-12-24": "Christmas Eve"}, "include": {"2027-01-02": None},
        "through": 2027,
    }  # fmt: skip


def test_an_app_refuses_a_wrong_calendar() -> None:
    wrong = r'payments: calendars\.de\.ics = "bank\.ics": is not an absolute path'
    with pytest.raises(ConfigurationError, match=wrong):
        App("payments", calendars={"de": CalendarSpec(ics=(Path("bank.ics"),))})
