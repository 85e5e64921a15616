"""`cronledger next`: show when a schedule or a job fires next."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import click

from cronledger.cli import complete
from cronledger.cli.listing import Listing, print_listing
from cronledger.cli.session import session
from cronledger.cli.show import json_option, print_json, read_instant, unknown_job
from cronledger.explain.firings import firings_of, noted, scope_of
from cronledger.rules import cron, zones
from cronledger.rules.calendars import ExcludedDate
from cronledger.rules.cron import CronError, Firing
from cronledger.rules.firings import Firings, later, local_text, note
from cronledger.rules.instants import iso
from cronledger.rules.model import ScopeKey

LISTING = Listing(
    {"utc": "UTC", "local": "LOCAL", "note": "NOTE"}, (), "there is no further firing"
)

MOST_SKIPPED = 1000
"""Skipped firings and dates after which a listing ends: those of a job that hardly fires."""


@click.command("next")
@click.argument("what", metavar="SPEC|JOB", shell_complete=complete.jobs)
@click.option("--tz", metavar="ZONE", help="Time zone of SPEC [default: UTC]; a job has its own.")
@click.option("--from", "start", metavar="ISO", help="Show firings after this time [default: now].")
@click.option(
    "--count",
    type=click.IntRange(1, 10_000),
    default=10,
    show_default=True,
    help="Number of firings.",
)
@click.option(
    "--scope", metavar="ID", shell_complete=complete.scopes,
    help="Scope of JOB, which decides `H` [default: the first].",
)  # fmt: skip
@json_option
def next_firings(
    *, what: str, tz: str | None, start: str | None, count: int, scope: str | None, as_json: bool
) -> None:
    """Show when a schedule or a job fires next.

    An argument that contains a space or begins with @ is a schedule. Any other argument is the name
    of a job in the ledger. Times are shown in UTC and in the time zone of the schedule. A note
    marks the firings that a clock change affects, and those that the calendar of the job moves.
    Dates that the calendar excludes are listed as skipped, each with its first firing. Firings that
    an operator skips are listed as skipped, too. A planned pause of the job causes a warning, and a
    note marks the firings that it skips. A time without an offset is read in the time
    zone of the schedule. With --json, the output is an array of firings.
    """
    if _is_job(what):
        wanted, text = _job(what, start, tz, scope)
    else:
        wanted, text = _spec(what, start, tz, scope), note
    for warning in wanted.cron.warnings if wanted.cron else ():
        click.echo(f"Warning: {warning}", err=True)
    firings = _listed(wanted, count)
    calendar, fired = wanted.calendar, sum(map(_runs, firings))
    if fired < count and calendar is not None and wanted.ends_with_calendar:
        click.echo(
            f"Warning: calendar {calendar.name!r} ends on {calendar.through}, and the job does not "
            "fire after that date",
            err=True,
        )
    if wanted.cron is not None and wanted.cron.is_reboot and not as_json:
        where = scope or f"each {'host of the job' if _is_job(what) else 'host'}"
        click.echo(f"at the next boot of {where}")
    elif as_json:
        print_json([_fields(firing, text(firing)) for firing in firings])
    else:
        print_listing([_row(firing, text(firing)) for firing in firings], LISTING, wanted.after)


def _listed(wanted: Firings, count: int) -> list[Firing]:
    """Return `count` firings and between them the skipped ones, of which there is a limit."""
    found: list[Firing] = []
    left = {True: count, False: MOST_SKIPPED}
    for firing in wanted.with_skipped():
        found.append(firing)
        left[_runs(firing)] -= 1
        if 0 in left.values():
            break
    return found


def _runs(firing: Firing) -> bool:
    return firing.excluded is None and firing.skipped is None


def _is_job(what: str) -> bool:
    return not (what.startswith("@") or any(character.isspace() for character in what))


def _spec(text: str, start: str | None, tz: str | None, scope: str | None) -> Firings:
    if scope is not None:
        raise click.UsageError("--scope needs the name of a job; omit it for a schedule")
    timezone = tz or "UTC"
    try:
        spec = cron.parse(text, timezone=timezone)
    except cron.CronError as error:
        hint = "--tz" if error.field == "timezone" else "SPEC"
        raise click.BadParameter(str(error), param_hint=hint) from None
    # A schedule needs no database, and this clock fires nothing.
    now = datetime.now(UTC)  # noqa: TID251
    after = now if start is None else read_instant(start, "--from", ZoneInfo(timezone))
    return Firings(spec, after, later(after))


def _job(
    name: str, start: str | None, tz: str | None, scope: str | None
) -> tuple[Firings, Callable[[Firing], str]]:
    """Return the firings of a job, and a function that returns the note of a firing."""
    if tz is not None:
        raise click.UsageError(
            f"--tz needs a schedule; omit it, because job {name!r} has a time zone"
        )
    with session() as ledger:
        row, now = ledger.reports.job(name), ledger.reports.now()
        if row is None:
            unknown = unknown_job(name, ledger.reports)
            raise click.UsageError(
                f"{unknown.message}; a schedule contains spaces or begins with @"
            )
        if row["schedule"] is None:
            raise click.UsageError(
                f"job {name!r} has no schedule; it runs only when it is triggered"
            )
        key = None if scope is None else ScopeKey(name, row["scope_kind"], scope)
        if key is not None and ledger.reports.schedule(key) is None:
            raise click.UsageError(
                f"job {name!r} has no scope {scope!r}; `cronledger jobs show {name}` lists its "
                "scopes"
            )
        _remark(row, now)
        pauses = ledger.reports.job_pauses(name)
        _remark_planned(pauses)
        try:
            zone = zones.named(row["timezone"])
            after = now if start is None else read_instant(start, "--from", zone)
            found = firings_of(ledger.reports, row, after, scope)
            return found, noted(row, scope_of(ledger.reports, row, scope), pauses)
        except CronError as error:
            raise click.UsageError(f"job {name!r}: {error}") from None


def _remark_planned(pauses: Sequence[Mapping[str, Any]]) -> None:
    """Warn of planned pauses of the job, during which the firings shown will not run."""
    for pause in pauses:
        if pause["is_planned"]:
            end = f"through {iso(pause['until_at'])}" if pause["until_at"] else "until it is ended"
            click.echo(
                f"Warning: pause {pause['id']} is planned, from {iso(pause['from_at'])} {end}: "
                f"{pause['reason']}",
                err=True,
            )


def _remark(row: Mapping[str, Any], now: datetime) -> None:
    """Warn if the job is retired or paused, because the firings shown will not all run."""
    paused_until = row["paused_until"]
    if row["retired_at"] is not None:
        state = f"was retired at {iso(row['retired_at'])}, and does not fire"
    elif row["paused_at"] is not None and (paused_until is None or paused_until > now):
        until = f"until {iso(paused_until)}" if paused_until else "until it is resumed"
        state = f"is paused {until}, and does not fire before then"
    elif row["spec_error"] is not None:
        state = f"does not fire: {row['spec_error']}"
    else:
        return
    click.echo(f"Warning: job {row['name']!r} {state}", err=True)


def _fields(firing: Firing, text: str) -> dict[str, Any]:
    return {
        "plan_time": iso(firing.plan_time),
        "local": local_text(firing.local),
        "note": text,
        "excluded": None if firing.excluded is None else _date(firing.excluded),
        "moved_from": [_date(one) for one in firing.moved_from],
        "skipped": firing.skipped,
    }


def _date(one: ExcludedDate) -> dict[str, str]:
    return {"calendar": one.calendar, "date": str(one.date), "name": one.name}


def _row(firing: Firing, text: str) -> dict[str, str]:
    return {
        "utc": iso(firing.plan_time),
        "local": local_text(firing.local),
        "note": text,
    }
