"""Write declared calendars out as dates with names.

Only this module knows the libraries of the extra `calendars`. It imports them when a declaration
needs them. What they find is written into the ledger once, so that all replicas agree although
they may have other versions of the libraries.
"""

import difflib
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cronledger.extras import require_library
from cronledger.rules.calendar_spec import LONGEST_NAME, WEEKDAYS, CalendarSpec
from cronledger.rules.calendars import Calendar
from cronledger.rules.problems import ConfigurationError, Problem, RefusedError, shown
from cronledger.sources.files import read_file

if TYPE_CHECKING:
    import icalendar

EXTRA = "calendars"
YEARS_AHEAD = 5
MOST_YEARS_AHEAD = 50
MOST_LISTED = 30
LANGUAGE = "en_US"
CODES = "use the code of a country, such as DE, DE-BY or US-NY, or of a market, such as XECB"
ONE_DAY = timedelta(days=1)
LIBRARIES = {"holidays": "holidays", "ics": "recurring_ical_events"}
FREQUENCIES = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")

Named = dict[date, str]
"""Dates with the names of their days."""


def written_out(
    name: str, spec: CalendarSpec, today: date, where: str | None = None
) -> tuple[Calendar, tuple[Problem, ...]]:
    """Return the calendar that `spec` declares, and warnings.

    It begins with the year before `today`, the date of the ledger, and has the revision 0. The
    result depends on nothing but the arguments, the files of `ics`, and the versions of the
    libraries. Raises ConfigurationError with every problem.
    """
    last = today.year + YEARS_AHEAD if spec.through is None else spec.through
    writing = _Writing(name, spec, date(today.year - 1, 1, 1), date(last, 12, 31), where)
    if not today.year <= last <= today.year + MOST_YEARS_AHEAD:
        past = last < today.year
        message = "is over" if past else f"is more than {MOST_YEARS_AHEAD} years ahead"
        writing.add("through", message, f"use for example {today.year + YEARS_AHEAD}", last)
        raise ConfigurationError(writing.problems)
    excluded = writing.excluded()
    if any(not problem.warning for problem in writing.problems):
        raise ConfigurationError(writing.problems)
    return Calendar(name, 0, writing.first, writing.through, excluded), tuple(writing.problems)


@dataclass(slots=True)
class _Writing:
    """Writes one calendar out in [first, through], and collects the problems."""

    name: str
    spec: CalendarSpec
    first: date
    through: date
    where: str | None
    problems: list[Problem] = field(default_factory=list)

    def add(
        self, key: str, message: str, remedy: str, value: object = None, *, warning: bool = False
    ) -> None:
        self.problems.append(Problem(
            where=self.where, field=f"calendars.{self.name}.{key}".removesuffix("."),
            value=None if value is None else shown(value), message=message, remedy=remedy,
            warning=warning,
        ))  # fmt: skip

    def excluded(self) -> Named:
        """Return the excluded dates in order. The name of the most specific source wins."""
        spec, found = self.spec, self._weekend()
        for key, values, read in (("holidays", spec.holidays, _holidays), ("ics", spec.ics, _ics)):
            found |= self._read(key, values, read)
        found |= {day: name or "excluded" for day, name in self._within("exclude").items()}
        for day in self._within("include"):
            if found.pop(day, None) is None:
                message, remedy = "is not excluded by anything else", "remove it"
                self.add("include", message, remedy, day, warning=True)
        if not found and not self.problems:
            remedy = 'add for example weekend = ["Saturday", "Sunday"]'
            self.add("", "excludes no day", remedy, warning=True)
        return dict(sorted(found.items()))

    def _weekend(self) -> Named:
        days = (self.first + ONE_DAY * n for n in range((self.through - self.first).days + 1))
        names = ((day, WEEKDAYS[day.weekday()]) for day in days)
        return {day: name for day, name in names if name in self.spec.weekend}

    def _within(self, key: str) -> Mapping[date, str | None]:
        """Return the dates of a list that the calendar has, and warn of those after its end.

        Those before its beginning are over, so a list may keep them.
        """
        dates: Mapping[date, str | None] = getattr(self.spec, key)
        for day in sorted(dates):
            if day > self.through:
                message = f"is after the end of the calendar ({self.through})"
                remedy = f"set through = {day.year}, or remove it"
                self.add(key, message, remedy, day, warning=True)
        return {day: dates[day] for day in dates if self.first <= day <= self.through}

    def _read(self, key: str, values: Collection[Any], read: "_Reader") -> Named:
        """Return the days of several holidays or files. A day that several have has all names."""
        if values:
            require_library(LIBRARIES[key], EXTRA, f"calendars.{self.name}.{key}")
        names: dict[date, list[str]] = {}
        for value in values:
            try:
                found = read(value, self.first, self.through)
            except RefusedError as error:
                self.add(key, error.problem, error.remedy, _short(value))
                continue
            self._warn(key, _short(value), found)
            for day, name in found.days:
                if self.first <= day <= self.through and name not in names.setdefault(day, []):
                    names[day].append(name)
        return {day: _cut("; ".join(several)) for day, several in names.items()}

    def _warn(self, key: str, value: object, found: "_Found") -> None:
        if (last := found.last_year) < self.through.year:
            message = f"has no day after {last}, but the calendar ends on {self.through}"
            remedy = f"set through = {last}, or add the days"
            self.add(key, message, remedy, value, warning=True)
        for text in found.notes:
            remedy = "check the last years of the calendar, or set through"
            self.add(key, text, remedy, value, warning=True)


def _short(value: object) -> object:
    return value.name if isinstance(value, Path) else value


@dataclass(frozen=True, slots=True)
class _Found:
    """Days of a code or of a file, the last year of which it has days, and warnings."""

    days: Iterable[tuple[date, str]]
    last_year: int
    notes: Iterable[str] = ()


_Reader = Callable[[Any, date, date], _Found]
"""Returns at least the days from the first through the last date. Raises RefusedError."""


def _holidays(code: str, first: date, through: date) -> _Found:
    import holidays  # noqa: PLC0415

    countries, markets = holidays.list_supported_countries(), holidays.list_supported_financial()
    whole, _, part = code.partition("-")
    if whole not in countries and whole not in markets:
        message = f"is not a code that the library holidays {metadata.version('holidays')} knows"
        raise RefusedError(message, _nearest_code(whole, part, {*countries, *markets}))
    build = holidays.country_holidays if whole in countries else holidays.financial_holidays
    empty = build(whole)
    if part and part not in empty.subdivisions:
        parts = {**{one: one for one in empty.subdivisions}, **empty.subdivisions_aliases}
        raise RefusedError(f"{whole} has no part {part}", _nearest_part(whole, part, parts))
    # Named, because otherwise the language may depend on the environment.
    language = LANGUAGE if LANGUAGE in empty.supported_languages else empty.default_language
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        years = range(first.year, through.year + 1)
        found = build(whole, part or None, years=years, expand=False, language=language)
    days = [(day, _clean(name)) for day, name in found.items()]
    notes = dict.fromkeys(_clean(str(note.message)).rstrip(".") for note in noted)
    return _Found(days, empty.end_year, notes)


def _nearest_code(whole: str, part: str, known: Collection[str]) -> str:
    """Return the remedy for an unknown country or market, which may be the name of a country."""
    from holidays import registry  # noqa: PLC0415

    codes = {name.replace("_", " "): code for name, (_, code, *_) in registry.COUNTRIES.items()}
    similar = _nearest(whole, {**codes, **{code: code for code in known}})
    if similar is None:
        return CODES
    return f"did you mean `{similar}-{part.upper()}`?" if part else f"did you mean `{similar}`?"


def _nearest_part(whole: str, part: str, parts: Mapping[str, str]) -> str:
    """Return the remedy for a part of a country that does not exist. `parts`: codes by name."""
    if (similar := _nearest(part, parts)) is not None:
        return f"did you mean `{whole}-{similar}`?"
    if not parts:
        return f"use {whole}"
    listed = ", ".join(sorted(set(parts.values()))[:MOST_LISTED])
    return f"use {whole}, or one of its parts: {listed}"


def _nearest(name: str, codes: Mapping[str, str]) -> str | None:
    """Return the code of the most similar name; None if none is similar."""
    folded = {known.casefold(): code for known, code in codes.items()}
    similar = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.75)
    return folded[similar[0]] if similar else None


def _ics(path: Path, first: date, through: date) -> _Found:
    import icalendar  # noqa: PLC0415
    import recurring_ical_events  # noqa: PLC0415

    try:
        calendars = icalendar.Calendar.from_ical(read_file(path), multiple=True)
        events = [
            event
            for calendar in calendars
            for event in calendar.walk("VEVENT")
            if isinstance(event, icalendar.Event)
        ]
        for event in events:
            _check_event(event)
        found = [
            event
            for calendar in calendars
            for event in recurring_ical_events.of(calendar).between(first, through + ONE_DAY)
        ]
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        raise RefusedError(message, f"use a readable file; this is {path}") from None
    except RefusedError:
        raise
    except ValueError as error:
        message = f"is not a valid iCalendar file: {error}"
        raise RefusedError(message, "correct it, or export it again") from None
    if not events:
        raise RefusedError("has no event (VEVENT)", "add events, or remove the file")
    days = [day for event in found if event.get("STATUS") != "CANCELLED" for day in _days_of(event)]
    if any(_is_endless(event) for event in events):
        return _Found(days, through.year)
    return _Found(days, max((day.year for day, _ in days), default=first.year - 1))


def _check_event(event: "icalendar.Event") -> None:
    """Raise RefusedError if some days of the event would be left out, or cannot be known."""
    named = shown(_clean(str(event.get("SUMMARY", "without a name"))))
    broken = [f"{key}: {text}" for key, text in event.errors]
    if broken or "DTSTART" not in event:
        found = broken[0] if broken else "it has no DTSTART"
        raise RefusedError(f"has a broken event {named}: {found}", "correct it in the file")
    start, end = event.start, event.end
    if _time(start) != time() or _time(end) != time():
        message = f"has the event {named} at {start}, which is not an all-day event"
        raise RefusedError(message, "let it last all day, or remove it")
    if end < start:
        raise RefusedError(f"has the event {named}, which ends before it begins", "correct it")
    for rule in _rules(event):
        if (frequency := rule["FREQ"][0]) not in FREQUENCIES:
            message = f"has the event {named}, which repeats {frequency}"
            raise RefusedError(message, f"use one of {', '.join(FREQUENCIES)}")


def _time(moment: date) -> time:
    """Return the wall time; midnight for a date. Some programs write whole days as instants."""
    return moment.time() if isinstance(moment, datetime) else time()


def _rules(event: "icalendar.Event") -> list[Any]:
    rules = event.get("RRULE", [])
    return rules if isinstance(rules, list) else [rules]


def _is_endless(event: "icalendar.Event") -> bool:
    return any("COUNT" not in rule and "UNTIL" not in rule for rule in _rules(event))


def _days_of(event: "icalendar.Event") -> Iterator[tuple[date, str]]:
    """Yield the days of one occurrence of an event."""
    day, end = (x.date() if isinstance(x, datetime) else x for x in (event.start, event.end))
    name = _clean(str(event.get("SUMMARY", ""))) or "excluded"
    while True:
        yield day, name
        day += ONE_DAY
        if day >= end:  # an event without a length lasts a day
            return


def _clean(name: str) -> str:
    """Return a name on one line that the ledger can store."""
    return _cut(" ".join("".join(x if x.isprintable() else " " for x in name).split()))


def _cut(name: str) -> str:
    return name[:LONGEST_NAME].rstrip()
