"""`cronledger jobs`: list, show, apply, diff, pause, resume, remove, redact."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from cronledger.cli import complete
from cronledger.cli.apply import apply, diff
from cronledger.cli.listing import Listing, Printer, listed, print_listing
from cronledger.cli.parameters import moment_option, owner_options
from cronledger.cli.session import session
from cronledger.cli.show import (
    counted,
    json_option,
    print_fields,
    print_json,
    print_result,
    read_moment,
    unknown_job,
)
from cronledger.rules.instants import iso

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
        "owner": "OWNER",
        "labels": "LABELS",
    },
    drop=("labels", "owner", "queue", "timezone", "last_plan_time", "parked", "running"),
    none="there are no jobs; `cronledger jobs apply FILE` adds jobs",
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
    none="the job has no scopes",
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
    none="the job has no history",
)


@click.group()
def jobs() -> None:
    """List, show, apply, compare, pause, resume, remove and redact jobs."""


jobs.add_command(apply)
jobs.add_command(diff)


@jobs.command("list")
@click.option(
    "--queue", metavar="NAME", shell_complete=complete.queues, help="List only jobs of this queue."
)
@owner_options
@click.option("--all", "retired", is_flag=True, help="List retired jobs too.")
@listed(LISTING)
def list_jobs(
    *, queue: str | None, owner: str | None, labels: dict[str, str], retired: bool, show: Printer
) -> None:
    """List the jobs, with their next plan_time and the status of their last execution."""
    with session() as ledger:
        rows = ledger.reports.jobs(queue=queue, owner=owner, labels=labels, retired=retired)
        now = ledger.reports.now()
    show(rows, now)
    _remark_pauses(rows)


def _remark_pauses(rows: Sequence[Mapping[str, Any]]) -> None:
    """Warn of planned pauses that will skip the next firings of jobs."""
    for pause in sorted({row["next_pause"] for row in rows} - {None}):
        names = ", ".join(row["name"] for row in rows if row["next_pause"] == pause)
        click.echo(f"Warning: pause {pause} will skip the next firing of: {names}", err=True)


@jobs.command()
@click.argument("name", metavar="JOB", shell_complete=complete.jobs)
@json_option
def show(*, name: str, as_json: bool) -> None:
    """Show one job: its policies, its scopes and its latest edits."""
    with session() as ledger:
        row = ledger.reports.job(name)
        if row is None:
            raise unknown_job(name, ledger.reports)
        scopes = ledger.reports.scopes(name)
        revisions, now = ledger.reports.revisions(name), ledger.reports.now()
        if (secret := ledger.reports.target(name)) is not None:
            row |= secret
    if as_json:
        print_json({**row, "schedules": scopes, "revisions": revisions})
        return
    # Without a line, a reader would assume the default, 1h.
    print_fields(row if row["run_timeout"] is not None else {**row, "run_timeout": "none"})
    click.echo()
    for scope in scopes:
        scope["scope"] = f"{scope['scope_kind']}/{scope['scope_id']}"
    print_listing(scopes, SCOPES, now)
    click.echo()
    print_listing(revisions, REVISIONS, now)


@jobs.command()
@click.argument("name", metavar="JOB", shell_complete=complete.jobs)
@click.option("--reason", help="Reason, shown by `why` and in listings.")
@moment_option("--until", help="Time at which the pause ends by itself.")
@json_option
def pause(*, name: str, reason: str | None, until: str | None, as_json: bool) -> None:
    """Pause a job: running executions finish, and nothing new starts.

    Plan_times that become due during the pause are skipped. A second pause replaces the reason and
    the end of the first.
    """
    with session() as ledger:
        end = read_moment(until, "--until", ledger.reports.now(), ahead=True) if until else None
        paused = ledger.call("pause", job=name, reason=reason, until=end)
    ends = f"until {iso(end, 'seconds')}" if end else "until it is resumed"
    text = f"{name}: {'paused' if paused else 'was already paused; now paused'} {ends}"
    print_result({"job": name, "paused": paused, "until": end}, text, as_json)


@jobs.command()
@click.argument("name", metavar="JOB", shell_complete=complete.jobs)
@json_option
def resume(*, name: str, as_json: bool) -> None:
    """Resume a paused job. Plan_times that were due during the pause stay skipped."""
    with session() as ledger:
        resumed = ledger.call("resume", job=name)
    text = f"{name}: {'resumed' if resumed else 'was not paused'}"
    print_result({"job": name, "resumed": resumed}, text, as_json)


@jobs.command()
@click.argument("name", metavar="JOB", shell_complete=complete.jobs)
@json_option
def remove(*, name: str, as_json: bool) -> None:
    """Retire a job: nothing more is planned, and waiting executions are CANCELLED.

    The history of the job stays in the ledger.
    """
    with session() as ledger:
        retired = ledger.call("retire", job=name)
        row = ledger.reports.job(name)
    text = f"{name}: {'removed' if retired else 'was already removed'}"
    print_result({"job": name, "removed": retired}, text, as_json)
    if retired and row is not None and row["source"] is not None:
        click.echo(
            f"Warning: the source {row['source']!r} declares this job and restores it when it is "
            "applied; remove the job there too",
            err=True,
        )


@jobs.command()
@click.argument("name", metavar="JOB", shell_complete=complete.jobs)
@click.argument("path", metavar="FIELD...", nargs=-1, required=True)
@click.option("--reason", help="Reason, shown in the audit trail.")
@json_option
def redact(*, name: str, path: tuple[str, ...], reason: str | None, as_json: bool) -> None:
    """Remove a value, such as a password, from the earlier revisions of a job.

    FIELD... is the place of the value in the job, such as `target env DB_PASSWORD`,
    `target command` or `payload token`. Each earlier revision whose value differs from the current
    one gets *** instead. Change the current value first, for example to {env = "NAME"}.
    """
    with session() as ledger:
        number = ledger.call("redact_revisions", job=name, path=list(path), reason=reason)
    field = ".".join(path)
    text = f"{name}: {field} was replaced by *** in {counted(number, 'revision')}"
    print_result({"job": name, "path": path, "revisions": number}, text, as_json)
