"""`cronledger jobs`: list, show, apply, diff, pause, resume, remove."""

import click

from cronledger.cli.apply import apply, diff
from cronledger.cli.show import (
    iso,
    json_option,
    print_fields,
    print_json,
    print_rows,
    read_moment,
    without_secrets,
)

COLUMNS = {
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
}
SCOPE_COLUMNS = {
    "scope": "SCOPE",
    "next_plan_time": "NEXT",
    "parked": "PARKED",
    "last_id": "LAST ID",
    "last_plan_time": "LAST PLAN TIME",
    "last_status": "LAST",
}
REVISION_COLUMNS = {
    "revision": "REVISION",
    "effective_from": "FROM",
    "state": "STATE",
    "requested_by": "BY",
    "reason": "REASON",
}


@click.group()
def jobs() -> None:
    """List, show, apply, compare, pause, resume and remove jobs."""


jobs.add_command(apply)
jobs.add_command(diff)


@jobs.command("list")
@click.option("--queue", metavar="NAME", help="Only jobs of this queue.")
@click.option("--all", "retired", is_flag=True, help="Retired jobs too.")
@json_option
def list_jobs(*, queue: str | None, retired: bool, as_json: bool) -> None:
    """List the jobs: what they are, when they fire next, how the last execution ended."""
    from cronledger.cli.session import session

    with session() as ledger:
        rows = ledger.reports.jobs(queue=queue, retired=retired)
    if as_json:
        print_json(rows)
    else:
        print_rows(rows, COLUMNS, "there are no jobs; `cronledger jobs apply FILE` adds some")


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
        revisions = ledger.reports.revisions(name)
    row["target"] = without_secrets(row["target"])
    if as_json:
        print_json({**row, "schedules": scopes, "revisions": revisions})
        return
    # An absent line would read as the default, 1h.
    print_fields(row if row["run_timeout"] is not None else {**row, "run_timeout": "none"})
    click.echo()
    for scope in scopes:
        scope["scope"] = f"{scope['scope_kind']}/{scope['scope_id']}"
    print_rows(scopes, SCOPE_COLUMNS, "it has no scopes")
    click.echo()
    print_rows(revisions, REVISION_COLUMNS, "it has no history")


@jobs.command()
@click.argument("name", metavar="JOB")
@click.option("--reason", help="Why, for people.")
@click.option("--until", metavar="ISO|DURATION", help="The pause ends by itself then.")
def pause(*, name: str, reason: str | None, until: str | None) -> None:
    """Let nothing of a job start until it is resumed; what is RUNNING finishes.

    What is due meanwhile is skipped. Pausing again sets reason and end anew.
    """
    from cronledger.cli.session import requester, session

    with session() as ledger:
        end = read_moment(until, "--until", ledger.reports.now(), 1) if until else None
        paused = ledger.call("pause", job=name, reason=reason, until=end, requested_by=requester())
    ends = f"until {iso(end.replace(microsecond=0))}" if end else "until it is resumed"
    click.echo(f"{name}: {'paused' if paused else 'was paused already; now paused'} {ends}")


@jobs.command()
@click.argument("name", metavar="JOB")
def resume(*, name: str) -> None:
    """Let a paused job go on from now; what was due in the pause stays skipped."""
    from cronledger.cli.session import requester, session

    with session() as ledger:
        resumed = ledger.call("resume", job=name, requested_by=requester())
    click.echo(f"{name}: {'resumed' if resumed else 'was not paused'}")


@jobs.command()
@click.argument("name", metavar="JOB")
def remove(*, name: str) -> None:
    """Retire a job: it plans no more, what waits is CANCELLED; its history stays."""
    from cronledger.cli.session import requester, session

    with session() as ledger:
        retired = ledger.call("retire", job=name, requested_by=requester())
        row = ledger.reports.job(name)
    click.echo(f"{name}: {'removed' if retired else 'was removed already'}")
    if retired and row is not None and row["source"] is not None:
        click.echo(
            f"Warning: {row['source']!r} declares it and brings it back when it is applied; "
            "remove it there too",
            err=True,
        )
