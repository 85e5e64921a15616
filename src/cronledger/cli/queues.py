"""`cronledger queues`: list, limit, pause, resume."""

import click

from cronledger.cli.parameters import Limit
from cronledger.cli.show import json_option, print_json, print_rows

COLUMNS = {
    "name": "QUEUE",
    "max_running": "LIMIT",
    "jobs": "JOBS",
    "waiting": "WAITING",
    "running": "RUNNING",
    "runners": "RUNNERS",
    "paused_at": "PAUSED",
    "paused_by": "BY",
    "paused_reason": "REASON",
}


@click.group()
def queues() -> None:
    """List, limit, pause and resume queues."""


@queues.command("list")
@json_option
def list_queues(*, as_json: bool) -> None:
    """List the queues of jobs and replicas: what waits, what runs, who takes it."""
    from cronledger.cli.session import session

    with session() as ledger:
        rows = ledger.reports.queues()
    if as_json:
        print_json(rows)
    else:
        print_rows(rows, COLUMNS, "there are no queues: no job and no replica names one")


@queues.command()
@click.argument("name", metavar="QUEUE")
@click.argument("limit", metavar="N|none", type=Limit())
def limit(*, name: str, limit: int | None) -> None:
    """Limit a queue to N running executions over all replicas; none removes the limit."""
    from cronledger.cli.session import requester, session

    with session() as ledger:
        before = ledger.call("limit_queue", queue=name, max_running=limit, requested_by=requester())
    shown, was = ("none" if number is None else number for number in (limit, before))
    click.echo(f"{name}: limit {shown} (before: {was})")


@queues.command()
@click.argument("name", metavar="QUEUE", required=False)
@click.option("--all", "every", is_flag=True, help="Every queue that is in use.")
@click.option("--reason", help="Why, for people.")
def pause(*, name: str | None, every: bool, reason: str | None) -> None:
    """Let nothing of a queue start until it is resumed; what is RUNNING finishes."""
    from cronledger.cli.session import requester, session

    _one_or_all(name, every)
    with session() as ledger:
        if every:
            count = ledger.call("pause_all", reason=reason, requested_by=requester())
            click.echo(f"paused: {count}")
        else:
            paused = ledger.call("pause_queue", queue=name, reason=reason, requested_by=requester())
            click.echo(f"{name}: {'paused' if paused else 'was paused already'}")


@queues.command()
@click.argument("name", metavar="QUEUE", required=False)
@click.option("--all", "every", is_flag=True, help="Every queue that is paused.")
def resume(*, name: str | None, every: bool) -> None:
    """Let a queue go on; what it missed is caught up on as each job's catch_up says."""
    from cronledger.cli.session import requester, session

    _one_or_all(name, every)
    with session() as ledger:
        if every:
            click.echo(f"resumed: {ledger.call('resume_all', requested_by=requester())}")
        else:
            resumed = ledger.call("resume_queue", queue=name, requested_by=requester())
            click.echo(f"{name}: {'resumed' if resumed else 'was not paused'}")


def _one_or_all(name: str | None, every: bool) -> None:
    if (name is None) != every:
        raise click.UsageError("name one QUEUE, or say --all")
