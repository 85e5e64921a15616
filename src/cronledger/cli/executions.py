"""`cronledger executions`: the ledger's rows, what they wrote, one more attempt, an end."""

import sys

import click

from cronledger.cli.execution import print_execution
from cronledger.cli.listing import Listing, Printer, listed
from cronledger.cli.show import echo, iso, json_option, print_json, print_result, read_moment

LISTING = Listing(
    {
        "id": "ID",
        "job_name": "JOB",
        "scope_id": "SCOPE",
        "plan_time": "PLAN TIME",
        "status": "STATUS",
        "trigger": "TRIGGER",
        "attempt": "ATTEMPT",
        "started_at": "STARTED",
        "duration_ms": "MS",
        "error_code": "ERROR",
        "next_attempt_at": "AGAIN AT",
    },
    drop=("trigger", "started_at", "scope_id", "next_attempt_at", "duration_ms", "attempt"),
    none="there are no such executions",
)
STATUSES = ["PENDING", "RUNNING", "SUCCESS", "FAILED", "CANCELLED"]


@click.group()
def executions() -> None:
    """List and show executions and their output; retry and cancel them."""


@executions.command("list")
@click.option("--job", metavar="NAME", help="Only of this job.")
@click.option("--scope", metavar="ID", help="Only of this scope.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(STATUSES, case_sensitive=False),
    help="Only these; may be repeated.",
)
@click.option("--since", metavar="ISO|DURATION", help="plan_time from then, or so long ago, on.")
@click.option("--until", metavar="ISO|DURATION", help="plan_time before then, or so long ago.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=50,
    show_default=True,
    help="How many at most.",
)
@listed(LISTING)
def list_executions(
    *,
    job: str | None,
    scope: str | None,
    statuses: tuple[str, ...],
    since: str | None,
    until: str | None,
    limit: int,
    show: Printer,
) -> None:
    """List executions, the newest first."""
    from cronledger.cli.session import session

    with session() as ledger:
        now = ledger.reports.now()
        first = read_moment(since, "--since", now, -1) if since else None
        end = read_moment(until, "--until", now, -1) if until else None
        if first is not None and end is not None and end <= first:
            raise click.UsageError(f"--until {iso(end)} does not lie after --since {iso(first)}")
        rows = ledger.reports.executions(
            job=job, scope=scope, statuses=statuses, since=first, until=end, limit=limit
        )
        # A job that was deleted is known by its history.
        if not rows and job is not None and not ledger.reports.revisions(job, 1):
            raise click.UsageError(f"job {job!r}: there is no such job; see `cronledger jobs list`")
    show(rows, now)


@executions.command()
@click.argument("execution_id", metavar="ID", type=click.IntRange(1, 2**63 - 1))
@json_option
def show(*, execution_id: int, as_json: bool) -> None:
    """Show everything about one execution, except its output."""
    from cronledger.cli.session import session

    with session() as ledger:
        row, now = ledger.reports.execution(execution_id), ledger.reports.now()
    if row is None:
        raise _unknown(execution_id)
    if as_json:
        print_json(row)
    else:
        print_execution(row, now)


@executions.command()
@click.argument("execution_id", metavar="ID", type=click.IntRange(1, 2**63 - 1))
@json_option
def output(*, execution_id: int, as_json: bool) -> None:
    """Print the tail of what the last attempt of an execution wrote."""
    from cronledger.cli.session import session

    with session() as ledger:
        row = ledger.reports.output(execution_id)
    if row is None:
        raise _unknown(execution_id)
    if as_json:
        print_json(row)
    elif row["output"] is None:
        click.echo(f"execution {execution_id} ({row['status']}) has stored no output", err=True)
    else:
        newline = not row["output"].endswith("\n")
        if sys.stdout.isatty():
            echo(row["output"], nl=newline)
        else:  # a file gets the output as it was written, its colours included
            click.echo(row["output"], nl=newline, color=True)


@executions.command()
@click.argument("execution_id", metavar="ID", type=click.IntRange(1, 2**63 - 1))
@click.option("--force", is_flag=True, help="Even if how its last attempt ended is unknown.")
@json_option
def retry(*, execution_id: int, force: bool, as_json: bool) -> None:
    """Give a FAILED or CANCELLED execution one more attempt, now.

    Refused for a SUCCESS; and, without --force, where the end of the last attempt is unknown and
    the job is not reentrant: make sure first that it has ended and may run again.
    """
    from cronledger.cli.session import requester, session

    with session() as ledger:
        said = ledger.call(
            "retry", execution_id=execution_id, force=force, requested_by=requester()
        )
    result = {"execution_id": execution_id, "result": said}
    print_result(result, f"{execution_id}: {said.replace('_', ' ')}", as_json)


@executions.command()
@click.argument("execution_id", metavar="ID", type=click.IntRange(1, 2**63 - 1))
@json_option
def cancel(*, execution_id: int, as_json: bool) -> None:
    """End an execution: at once if it waits; if it is RUNNING, its replica is asked to.

    Exit status: 1 when its row is being written at this moment; ask again.
    """
    from cronledger.cli.session import requester, session
    from cronledger.rules.problems import Exit

    with session() as ledger:
        said = ledger.call("cancel", execution_id=execution_id, requested_by=requester())
    result = {"execution_id": execution_id, "result": said}
    print_result(result, f"{execution_id}: {said.replace('_', ' ')}", as_json)
    if said == "busy":
        raise click.exceptions.Exit(Exit.FAILED)


def _unknown(execution_id: int) -> click.UsageError:
    return click.UsageError(
        f"execution {execution_id}: there is none of that id; its partition may be behind "
        "retention; see `cronledger executions list`"
    )
