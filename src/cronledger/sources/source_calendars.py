"""The calendars that a source declares: written out, checked, and as rows."""

from collections.abc import Collection, Mapping, Sequence
from datetime import date
from typing import Any

from cronledger.rules.calendar_spec import CalendarSpec
from cronledger.rules.calendars import Calendar
from cronledger.rules.model import Job
from cronledger.rules.problems import ConfigurationError, Problem, nearest, shown
from cronledger.sources.calendars import written_out


def write_out(
    source: str, specs: Mapping[str, CalendarSpec], today: date
) -> tuple[list[Calendar], tuple[Problem, ...]]:
    """Return the calendars of a source with their dates, and warnings.

    Raises ConfigurationError with the problems of all of them.
    """
    written: list[Calendar] = []
    problems: list[Problem] = []
    for name, spec in specs.items():
        try:
            calendar, warnings = written_out(name, spec, today, source)
        except ConfigurationError as error:
            problems.extend(error.problems)
        else:
            written.append(calendar)
            problems.extend(warnings)
    if any(not problem.warning for problem in problems):
        raise ConfigurationError(problems)
    return written, tuple(problems)


def refuse(
    source: str,
    jobs: Sequence[Job],
    specs: Mapping[str, CalendarSpec],
    stored: Mapping[str, Mapping[str, Any]],
) -> None:
    """Raise ConfigurationError if a calendar of `source` belongs to another one, or if a job names
    a calendar that neither the source declares nor the ledger has.

    `stored`: the calendars of the ledger by name.
    """
    known = {*specs, *stored}
    problems = [
        Problem(
            where=source, field=f"calendars.{name}",
            message=f"belongs to the source {stored[name]['source']!r}",
            remedy="use another name, or remove this declaration: jobs may name calendars of other "
            "sources",
        )
        for name in specs.keys() & stored.keys()
        if stored[name]["source"] not in (None, source)
    ]  # fmt: skip
    problems += [
        unknown(job, source, known)
        for job in jobs
        if job.calendar is not None and job.calendar not in known
    ]
    if problems:
        raise ConfigurationError(problems)


def unknown(job: Job, where: str, known: Collection[str]) -> Problem:
    """Return the problem of a job whose calendar is not among those known."""
    declare = "declare it as [calendars.NAME]"
    remedy = f"{declare}, or {nearest(str(job.calendar), known)}" if known else declare
    return Problem(
        where=where, job=job.name, field="calendar", value=shown(job.calendar),
        message="is a calendar that does not exist", remedy=remedy,
    )  # fmt: skip


def row(calendar: Calendar, spec: CalendarSpec) -> dict[str, Any]:
    """Return a calendar as an argument of `set_calendars`."""
    return {
        "name": calendar.name, "first": str(calendar.first), "through": str(calendar.through),
        "excluded": {str(day): name for day, name in calendar.excluded.items()},
        "definition": spec.definition(),
    }  # fmt: skip
