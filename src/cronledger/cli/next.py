"""`cronledger next`: when a schedule or a job fires next."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import click

from cronledger.cli.listing import Listing, print_listing
from cronledger.cli.show import iso, json_option, print_json, read_instant

if TYPE_CHECKING:
    from cronledger.rules.cron import Cron, Firing

HORIZON = timedelta(days=365 * 100)
LISTING = Listing({"utc": "UTC", "local": "LOCAL", "note": "NOTE"}, (), "it does not fire any more")


@dataclass(frozen=True, slots=True)
class _Asked:
    """What to walk: firings of `spec` in (`after`, `ends_at`], none before `starts_at`."""

    spec: "Cron"
    after: datetime
    starts_at: datetime | None = None
    ends_at: datetime | None = None


@click.command("next")
@click.argument("what", metavar="SPEC|JOB")
@click.option("--tz", metavar="ZONE", help="Zone of SPEC [default: UTC]; a job has its own.")
@click.option("--from", "start", metavar="ISO", help="Strictly after this instant [default: now].")
@click.option(
    "--count",
    type=click.IntRange(1, 10_000),
    default=10,
    show_default=True,
    help="How many.",
)
@click.option("--scope", metavar="ID", help="Scope of JOB whose `H` counts [default: its first].")
@json_option
def next_firings(
    *, what: str, tz: str | None, start: str | None, count: int, scope: str | None, as_json: bool
) -> None:
    """Show when a schedule or a job fires next.

    What has a blank in it or begins with @ is a schedule; everything else is the name of a job of
    the ledger. Instants are shown in UTC and in the zone of the schedule; the note says where a
    clock change moved one. --from without an offset is read in that zone. --json prints an array of
    instants in UTC.
    """
    asked = _job(what, start, tz, scope) if _is_job(what) else _spec(what, start, tz, scope)
    for warning in asked.spec.warnings:
        click.echo(f"Warning: {warning}", err=True)
    firings = list(islice(_firings(asked), count))
    if as_json:
        print_json([iso(firing.plan_time) for firing in firings])
    else:
        print_listing([_row(firing) for firing in firings], LISTING, asked.after)


def _is_job(what: str) -> bool:
    return not (what.startswith("@") or any(character.isspace() for character in what))


def _spec(text: str, start: str | None, tz: str | None, scope: str | None) -> _Asked:
    from cronledger.rules import cron

    if scope is not None:
        raise click.UsageError("--scope goes with the name of a job, not with a schedule")
    timezone = tz or "UTC"
    try:
        spec = cron.parse(text, timezone=timezone)
    except cron.CronError as error:
        hint = "--tz" if error.field == "timezone" else "SPEC"
        raise click.BadParameter(str(error), param_hint=hint) from None
    if start is not None:
        return _Asked(spec, read_instant(start, "--from", ZoneInfo(timezone)))
    # Explaining a text needs no database; nothing fires by this clock.
    return _Asked(spec, datetime.now(UTC))  # noqa: TID251


def _job(name: str, start: str | None, tz: str | None, scope: str | None) -> _Asked:
    from cronledger.cli.session import session
    from cronledger.rules import cron

    if tz is not None:
        raise click.UsageError(f"--tz goes with a schedule; the job {name!r} has a zone of its own")
    with session() as ledger:
        row, now = ledger.reports.job(name), ledger.reports.now()
        scopes = [found["scope_id"] for found in ledger.reports.scopes(name, 1)]
    if row is None:
        raise click.UsageError(
            f"job {name!r}: there is no such job; `cronledger jobs list` has their names, and a "
            "schedule has blanks or begins with @"
        )
    if row["schedule"] is None:
        raise click.UsageError(f"job {name!r} has no schedule: it runs only when triggered")
    _remark(row, now)
    try:
        spec = cron.parse(
            row["schedule"],
            timezone=row["timezone"],
            day_or=row["day_or"],
            dst_gap=row["dst_gap"],
            dst_fold=row["dst_fold"],
            job=name,
            scope=f"{row['scope_kind']}/{scope or next(iter(scopes), row['scope_kind'])}",
        )
    except cron.CronError as error:
        raise click.UsageError(f"job {name!r}: {error}") from None
    after = read_instant(start, "--from", ZoneInfo(row["timezone"])) if start else now
    return _Asked(spec, after, row["starts_at"], row["ends_at"])


def _remark(row: Mapping[str, Any], now: datetime) -> None:
    """Say on standard error why what follows will not all come true."""
    paused_until = row["paused_until"]
    if row["retired_at"] is not None:
        said = f"is retired since {iso(row['retired_at'])}: it fires no more"
    elif row["paused_at"] is not None and (paused_until is None or paused_until > now):
        until = f"until {iso(paused_until)}" if paused_until else "until it is resumed"
        said = f"is paused {until}: nothing fires before"
    else:
        return
    click.echo(f"Warning: job {row['name']!r} {said}", err=True)


def _firings(asked: _Asked) -> "Iterator[Firing]":
    after = asked.after
    if asked.starts_at is not None and asked.starts_at > after:
        after = asked.starts_at - timedelta(microseconds=1)
    try:
        through = after + HORIZON
    except OverflowError:
        through = datetime.max.replace(tzinfo=UTC)
    return asked.spec.firings(after, min(through, asked.ends_at or through))


def _row(firing: "Firing") -> dict[str, str]:
    notes = []
    if firing.shifted:
        notes.append("shifted: the clock leaps over its time")
    if firing.folded:
        which = "second" if firing.local.fold else "first"
        notes.append(f"folded: its time occurs twice, the {which} pass")
    return {
        "utc": iso(firing.plan_time),
        "local": f"{firing.local:%a} {firing.local.isoformat(sep=' ')}",
        "note": "; ".join(notes),
    }
