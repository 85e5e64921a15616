"""`cronledger jobs`: list, show, apply, diff, pause, resume, remove."""

import click

from cronledger.cli.apply import apply, diff
from cronledger.cli.listing import Listing, Printer, listed, print_listing
from cronledger.cli.show import (
    iso,
    json_option,
    print_fields,
    print_json,
    print_result,
    read_moment,
    without_secrets,
)

LISTING = Listing(
    {
        "name": "JOB",
        "schedule": "SCHEDULE",
        "timezone": "ZONE",
        "state": "STATE",
        "parked": "PARKED",
        "next_plan_time": "NEXT",
        "running": "RUNNING",
        "last_status": "LAST",
        "last_plan_time": "LAST PLAN TIME",
        "queue": "QUEUE",
    },
    drop=("queue", "timezone", "last_plan_time", "parked", "running"),
    none="there are no jobs; `cronledger jobs apply FILE` adds some",
)
SCOPES = Listing(
    {
        "scope": "SCOPE",
        "next_plan_time": "NEXT",
        "parked": "PARKED",
        "last_id": "LAST ID",
        "last_plan_time": "LAST PLAN TIME",
        "last_status": "LAST",
    },
    drop=("last_id", "last_plan_time"),
    none="it has no scopes",
)
REVISIONS = Listing(
    {
        "revision": "REVISION",
        "effective_from": "FROM",
        "state": "STATE",
        "requested_by": "BY",
        "reason": "REASON",
    },
    drop=("reason", "requested_by"),
    none="it has no history",
)


@click.group()
def jobs() -> None:
    """List, show, apply, compare, pause, resume and remove jobs."""


jobs.add_command(apply)
jobs.add_command(diff)


@jobs.command("list")
@click.option("--queue", metavar="NAME", help="Only jobs of this queue.")
@click.option("--all", "retired", is_flag=True, help="Retired jobs too.")
@listed(LISTING)
def list_jobs(*, queue: str | None, retired: bool, show: Printer) -> None:
    """List the jobs: what they are, when they fire next, how the last execution ended."""
    from cronledger.cli.session import session

    with session() as ledger:
        rows, now = ledger.reports.jobs(queue=queue, retired=retired), ledger.reports.now()
    show(rows, now)


@jobs.command()
@click.argument("name", metavar="JOB")
@json_option
def show(*, name: str, as_json: bool) -> None:
    """Show a job: its policies, its scopes, its last edits."""
    from cronledger.cli.session import session

    with session() as ledger:
        row = ledger.reports.job(name)
        if row is None:
            raise click.UsageError(
                f"job {name!r}: there is no such job; see `cronledger jobs list`"
            )
        scopes = ledger.reports.scopes(name)
        revisions, now = ledger.reports.revisions(name), ledger.reports.now()
        if (secret := ledger.reports.target(name)) is not None:
            row |= secret | {"target": without_secrets(secret["target"])}
    if as_json:
        print_json({**row, "schedules": scopes, "revisions": revisions})
        return
    # An absent line would read as the default, 1h.
    print_fields(row if row["run_timeout"] is not None else {**row, "run_timeout": "none"})
    click.echo()
    for scope in scopes:
        scope["scope"] = f"{scope['scope_kind']}/{scope['scope_id']}"
    print_listing(scopes, SCOPES, now)
    click.echo()
    print_listing(revisions, REVISIONS, now)


@jobs.command()
@click.argument("name", metavar="JOB")
@click.option("--reason", help="Why, for people.")
@click.option("--until", metavar="ISO|DURATION", help="The pause ends by itself then.")
@json_option
def pause(*, name: str, reason: str | None, until: str | None, as_json: bool) -> None:
    """Let nothing of a job start until it is resumed; what is RUNNING finishes.

    What is due meanwhile is skipped. Pausing again sets reason and end anew.
    """
    from cronledger.cli.session import requester, session

    with session() as ledger:
        end = read_moment(until, "--until", ledger.reports.now(), 1) if until else None
        paused = ledger.call("pause", job=name, reason=reason, until=end, requested_by=requester())
    ends = f"until {iso(end.replace(microsecond=0))}" if end else "until it is resumed"
    text = f"{name}: {'paused' if paused else 'was paused already; now paused'} {ends}"
    print_result({"job": name, "paused": paused, "until": end}, text, as_json)


@jobs.command()
@click.argument("name", metavar="JOB")
@json_option
def resume(*, name: str, as_json: bool) -> None:
    """Let a paused job go on from now; what was due in the pause stays skipped."""
    from cronledger.cli.session import requester, session

    with session() as ledger:
        resumed = ledger.call("resume", job=name, requested_by=requester())
    text = f"{name}: {'resumed' if resumed else 'was not paused'}"
    print_result({"job": name, "resumed": resumed}, text, as_json)


@jobs.command()
@click.argument("name", metavar="JOB")
@json_option
def remove(*, name: str, as_json: bool) -> None:
    """Retire a job: it plans no more, what waits is CANCELLED; its history stays."""
    from cronledger.cli.session import requester, session

    with session() as ledger:
        retired = ledger.call("retire", job=name, requested_by=requester())
        row = ledger.reports.job(name)
    text = f"{name}: {'removed' if retired else 'was removed already'}"
    print_result({"job": name, "removed": retired}, text, as_json)
    if retired and row is not None and row["source"] is not None:
        click.echo(
            f"Warning: {row['source']!r} declares it and brings it back when it is applied; "
            "remove it there too",
            err=True,
        )
