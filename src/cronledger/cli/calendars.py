"""`cronledger calendars`: list the calendars, show the dates of one, and compare its revisions."""

from collections.abc import Mapping
from datetime import date
from typing import Any

import click

from cronledger.cli import complete
from cronledger.cli.listing import Listing, Printer, listed, print_listing
from cronledger.cli.parameters import BIGINT
from cronledger.cli.session import Session, session
from cronledger.cli.show import counted, echo, json_option, print_fields, print_json
from cronledger.ledger.reports import Row
from cronledger.rules.calendar_changes import CalendarChange, date_changes
from cronledger.rules.calendar_spec import WEEKDAYS
from cronledger.rules.calendars import Calendar

MOST_DATES = 20
LISTING = Listing(
    {
        "name": "CALENDAR",
        "revision": "REVISION",
        "through": "THROUGH",
        "excluded": "DATES",
        "jobs": "JOBS",
        "source": "SOURCE",
        "created_at": "SET",
        "requested_by": "BY",
    },
    drop=("requested_by", "created_at", "source", "revision"),
    none="there are no calendars; a source declares them as [calendars.NAME]",
)
DATES = Listing(
    {"date": "DATE", "weekday": "WEEKDAY", "name": "NAME"},
    drop=(),
    none="no such date is excluded in this year; --weekends lists those of the weekend, too",
)
REVISIONS = Listing(
    {
        "revision": "REVISION",
        "created_at": "SET",
        "through": "THROUGH",
        "excluded": "DATES",
        "requested_by": "BY",
    },
    drop=("requested_by",),
    none="the calendar has no revisions",
)


@click.group()
def calendars() -> None:
    """List the calendars, show the dates of one, and compare its revisions."""


@calendars.command("list")
@listed(LISTING)
def list_calendars(*, show: Printer) -> None:
    """List the calendars, each with its last date and the number of jobs that use it."""
    with session() as ledger:
        rows, now = ledger.reports.all_calendars(), ledger.reports.now()
    show(rows, now)


@calendars.command("show")
@click.argument("name", metavar="CALENDAR", shell_complete=complete.calendars)
@click.option(
    "--revision", type=BIGINT, metavar="N", help="Show this revision [default: the current one]."
)
@click.option(
    "--year", type=click.IntRange(1000, 9998), help="List its dates [default: the current year]."
)
@click.option("--weekends", is_flag=True, help="List days of the weekend, too.")
@json_option
def show_calendar(
    *, name: str, revision: int | None, year: int | None, weekends: bool, as_json: bool
) -> None:
    """Show a calendar: what was declared, its revisions, and the excluded dates of a year.

    With --json, the output has all dates of the calendar.
    """
    with session() as ledger:
        row = _found(ledger, name, revision)
        present = ledger.reports.all_calendars(name)[0]
        revisions, now = ledger.reports.calendar_revisions(name), ledger.reports.now()
    fields = _fields(row, present)
    if as_json:
        print_json({**fields, "dates": row["excluded"], "revisions": revisions})
        return
    print_fields(fields)
    click.echo()
    dates = [_date(day, text) for day, text in sorted(row["excluded"].items())]
    dates = [found for found in dates if found["date"].startswith(f"{year or now.year}-")]
    # A day of the weekend has its own name, unless a holiday falls on it.
    print_listing([x for x in dates if weekends or x["name"] != x["weekday"]], DATES, now)
    click.echo()
    print_listing(revisions, REVISIONS, now)


@calendars.command("diff")
@click.argument("name", metavar="CALENDAR", shell_complete=complete.calendars)
@click.argument("old", metavar="[OLD]", type=BIGINT, required=False)
@click.argument("new", metavar="[NEW]", type=BIGINT, required=False)
@json_option
def diff_calendar(*, name: str, old: int | None, new: int | None, as_json: bool) -> None:
    """Compare two revisions of a calendar, by default the current one and the one before it.

    The output lists the dates that are excluded since then (+), that are included since then (-),
    and that have another name (~). `cronledger jobs diff FILE` compares the calendars of a file
    with those of the ledger.
    """
    with session() as ledger:
        after = Calendar.from_row(_found(ledger, name, new))
        if old is None:
            numbers = [row["revision"] for row in ledger.reports.calendar_revisions(name)]
            old = max((number for number in numbers if number < after.revision), default=None)
        if old is None:
            raise click.UsageError(f"revision {after.revision} of calendar {name!r} is its first")
        before = Calendar.from_row(_found(ledger, name, old))
    one = CalendarChange(before, after, tuple(date_changes(before, after)))
    if as_json:
        print_json(change(one))
    else:
        print_change(one)


def change(one: CalendarChange) -> dict[str, Any]:
    """Return a change of a calendar for JSON."""
    return {
        "calendar": one.after.name,
        "before": None if one.before is None else _range(one.before),
        "after": _range(one.after),
        "dates": [
            {"date": str(found.date), "before": found.before, "after": found.after}
            for found in one.dates
        ],
    }


def print_change(one: CalendarChange) -> None:
    """Print a change of a calendar, with one date a line, and at most MOST_DATES."""
    if one.before is None:
        count, through = len(one.after.excluded), one.after.through
        echo(f"added calendar {one.after.name}: {counted(count, 'date')} through {through}")
        return
    echo(f"changed calendar {one.after.name}")
    for field in ("first", "through"):
        was, is_now = getattr(one.before, field), getattr(one.after, field)
        if was != is_now:
            echo(f"    {field}: {was} -> {is_now}")
    for found in one.dates[:MOST_DATES]:
        sign = "+" if found.before is None else "-" if found.after is None else "~"
        names = " -> ".join(text for text in (found.before, found.after) if text is not None)
        echo(f"    {sign} {found.date} {found.date:%a} {names}")
    if (more := len(one.dates) - MOST_DATES) > 0:
        echo(f"    … and {more} more; `--json` lists all")


def _range(calendar: Calendar) -> dict[str, Any]:
    """Return what JSON tells of a calendar. The revision 0 is not in the ledger yet."""
    return {
        "revision": calendar.revision or None, "first": str(calendar.first),
        "through": str(calendar.through), "excluded": len(calendar.excluded),
    }  # fmt: skip


def _date(text: str, name: str) -> dict[str, str]:
    return {"date": text, "weekday": WEEKDAYS[date.fromisoformat(text).weekday()], "name": name}


def _fields(row: Row, present: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "calendar": row["calendar_name"], "revision": row["revision"],
        "first": str(row["first"]), "through": str(row["through"]),
        "excluded": len(row["excluded"]), "declared": row["definition"],
        "source": present["source"], "jobs": present["jobs"], "set_at": row["created_at"],
        "set_by": row["requested_by"],
    }  # fmt: skip


def _found(ledger: Session, name: str, revision: int | None) -> Row:
    """Return a revision of a calendar. Raises UsageError if there is none."""
    row = ledger.reports.calendar(name, revision)
    if row is not None:
        return row
    if revision is None or not ledger.reports.all_calendars(name):
        raise click.UsageError(
            f"calendar {name!r} does not exist; `cronledger calendars list` lists the calendars"
        )
    raise click.UsageError(
        f"calendar {name!r} has no revision {revision}; `cronledger calendars show` lists them"
    )
