"""`cronledger queues`: list, limit, pause, resume."""

import click

from cronledger.cli import complete
from cronledger.cli.listing import Listing, Printer, listed
from cronledger.cli.parameters import Limit
from cronledger.cli.session import session
from cronledger.cli.show import json_option, print_result

LISTING = Listing(
    {
        "name": "QUEUE",
        "max_running": "LIMIT",
        "jobs": "JOBS",
        "waiting": "WAITING",
        "running": "RUNNING",
        "runners": "RUNNERS",
        "paused_at": "PAUSED",
        "paused_by": "BY",
        "paused_reason": "REASON",
    },
    drop=("paused_by", "runners", "jobs", "paused_reason"),
    none="there are no queues, because no job and no replica uses one",
)


@click.group()
def queues() -> None:
    """List, limit, pause and resume queues."""


@queues.command("list")
@listed(LISTING)
def list_queues(*, show: Printer) -> None:
    """List the queues, with their waiting and running executions and their runners."""
    with session() as ledger:
        rows, now = ledger.reports.queues(), ledger.reports.now()
    show(rows, now)


@queues.command()
@click.argument("name", metavar="QUEUE", shell_complete=complete.queues)
@click.argument("limit", metavar="N|none", type=Limit())
@json_option
def limit(*, name: str, limit: int | None, as_json: bool) -> None:
    """Limit a queue to N running executions over all replicas; `none` removes the limit."""
    with session() as ledger:
        before = ledger.call("limit_queue", queue=name, max_running=limit)
    shown, was = ("none" if number is None else number for number in (limit, before))
    result = {"queue": name, "max_running": limit, "before": before}
    print_result(result, f"{name}: limit {shown} (before: {was})", as_json)


@queues.command()
@click.argument("name", metavar="QUEUE", required=False, shell_complete=complete.queues)
@click.option("--all", "every", is_flag=True, help="Pause every queue that is in use.")
@click.option("--reason", help="Reason, shown in listings.")
@json_option
def pause(*, name: str | None, every: bool, reason: str | None, as_json: bool) -> None:
    """Pause a queue: running executions finish, and nothing new starts."""
    _one_or_all(name, every)
    with session() as ledger:
        if every:
            count = ledger.call("pause_all", reason=reason)
            print_result({"paused": count}, f"paused: {count}", as_json)
        else:
            paused = ledger.call("pause_queue", queue=name, reason=reason)
            text = f"{name}: {'paused' if paused else 'was already paused'}"
            print_result({"queue": name, "paused": paused}, text, as_json)


@queues.command()
@click.argument("name", metavar="QUEUE", required=False, shell_complete=complete.queues)
@click.option("--all", "every", is_flag=True, help="Resume every paused queue.")
@json_option
def resume(*, name: str | None, every: bool, as_json: bool) -> None:
    """Resume a queue. Each job's catch_up applies to plan_times that were due in the pause."""
    _one_or_all(name, every)
    with session() as ledger:
        if every:
            count = ledger.call("resume_all")
            print_result({"resumed": count}, f"resumed: {count}", as_json)
        else:
            resumed = ledger.call("resume_queue", queue=name)
            text = f"{name}: {'resumed' if resumed else 'was not paused'}"
            print_result({"queue": name, "resumed": resumed}, text, as_json)


def _one_or_all(name: str | None, every: bool) -> None:
    if (name is None) != every:
        raise click.UsageError("name one QUEUE, or use --all")
