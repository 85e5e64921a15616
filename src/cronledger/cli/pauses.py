"""`cronledger pauses`: list, plan, change and end pauses of jobs."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

import click
from psycopg.types.json import Jsonb

from cronledger.cli import complete
from cronledger.cli.listing import Listing, Printer, listed, print_listing
from cronledger.cli.parameters import ID, limit_option, moment_option, owner_options
from cronledger.cli.session import Session, session
from cronledger.cli.show import (
    counted,
    echo,
    json_option,
    print_json,
    print_result,
    read_moment,
    unknown_job,
)
from cronledger.explain.pauses import OPEN_ENDED, PausedJob, paused_jobs, selected
from cronledger.rules import durations
from cronledger.rules.instants import InstantError, iso

LISTING = Listing(
    {
        "id": "PAUSE",
        "state": "STATE",
        "selection": "JOBS",
        "jobs": "COUNT",
        "from_at": "FROM",
        "until_at": "UNTIL",
        "reason": "REASON",
        "requested_by": "BY",
        "ended_at": "ENDED",
        "ended_by": "ENDED BY",
    },
    drop=("ended_by", "ended_at", "requested_by", "jobs"),
    none="no pause is planned or in force; `--all` lists those that are over",
)
PREVIEW = Listing(
    {
        "job": "JOB",
        "scopes": "SCOPES",
        "firings": "FIRINGS",
        "first": "FIRST",
        "error": "ERROR",
    },
    drop=("error", "scopes"),
    none="no job matches now; a job that is added later and matches will be paused",
)


@click.group()
def pauses() -> None:
    """List, plan, change and end pauses of jobs."""


@pauses.command("list")
@click.option("--all", "over", is_flag=True, help="List pauses that are over, too.")
@limit_option("pauses")
@listed(LISTING)
def list_pauses(*, over: bool, limit: int, show: Printer) -> None:
    """List the pauses that are planned or in force."""
    with session() as ledger:
        rows, now = ledger.reports.pauses(over=over, limit=limit), ledger.reports.now()
    show([{**row, "selection": selected(row)} for row in rows], now)


@pauses.command()
@click.option("--job", metavar="NAME", shell_complete=complete.jobs, help="Only this job.")
@click.option(
    "--queue", metavar="NAME", shell_complete=complete.queues, help="Only jobs of this queue."
)
@owner_options
@click.option("--all", "every", is_flag=True, help="Every job.")
@moment_option("--from", "begins", help="Beginning [default: now].")
@moment_option("--until", help="End [default: no planned end].")
@click.option("--reason", required=True, help="Reason, shown by `why` and in listings.")
@click.option("--dry-run", is_flag=True, help="Show what would be skipped, and plan nothing.")
@json_option
def plan(
    *,
    job: str | None,
    queue: str | None,
    owner: str | None,
    labels: dict[str, str],
    every: bool,
    begins: str | None,
    until: str | None,
    reason: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Plan a pause of jobs: plan_times due from --from through --until are skipped.

    The options select jobs; all of them have to match. RUNNING executions finish. Jobs that are
    added or edited during the pause, and match, are paused as well. The replicas begin the pause;
    it applies exactly from --from on, even if no replica runs at that time.
    """
    chosen = {"job": job, "queue": queue, "owner": owner, "labels": labels or None}
    if every == any(value is not None for value in chosen.values()):
        raise click.UsageError("select jobs by --job, --queue, --owner or --label, or use --all")
    with session() as ledger:
        now = ledger.reports.now()
        start = read_moment(begins, "--from", now, ahead=True) if begins else None
        end = read_moment(until, "--until", now, ahead=True) if until else None
        rows = ledger.reports.selected_jobs(job=job, queue=queue, owner=owner, labels=labels)
        if job is not None and not rows and ledger.reports.job(job) is None:
            raise unknown_job(job, ledger.reports)
        if dry_run:
            try:
                found = list(paused_jobs(ledger.reports, rows, start or now, end))
            except InstantError as error:
                raise click.UsageError(str(error)) from None
            _print_preview(found, end, now, as_json)
            return
        stored = {**chosen, "labels": Jsonb(labels) if labels else None}
        pause = ledger.call("plan_pause", reason=reason, begins=start, until=end, **stored)
    text = (
        f"pause {pause}: {counted(len(rows), 'job')} {_when(start, end)}; "
        f"`cronledger pauses end {pause}` ends it"
    )
    if not rows:
        echo(
            "Warning: no job matches now; jobs that are added or edited and match are paused",
            err=True,
        )
    print_result({"pause": pause, "jobs": len(rows), "from": start, "until": end}, text, as_json)


@pauses.command()
@click.argument("pause", metavar="PAUSE", type=ID)
@moment_option("--from", "begins", help="New beginning.")
@moment_option("--until", metavar="ISO|DURATION|none", help="New end; none: no planned end.")
@click.option("--reason", help="New reason.")
@json_option
def change(
    *, pause: int, begins: str | None, until: str | None, reason: str | None, as_json: bool
) -> None:
    """Change a planned pause that has not begun."""
    if begins is None and until is None and reason is None:
        raise click.UsageError("give --from, --until or --reason")
    with session() as ledger:
        now = ledger.reports.now()
        start = read_moment(begins, "--from", now, ahead=True) if begins else None
        changed = ledger.call(
            "change_pause", pause_id=pause, begins=start, until=_end(ledger, until), reason=reason
        )
    text = f"pause {pause}: {'changed' if changed else 'unchanged'}"
    print_result({"pause": pause, "changed": changed}, text, as_json)


@pauses.command()
@click.argument("pause", metavar="PAUSE", type=ID)
@json_option
def end(*, pause: int, as_json: bool) -> None:
    """End a pause for all of its jobs, or withdraw one that has not begun.

    A job stays paused while another pause covers it. Plan_times that were due during the pause stay
    skipped.
    """
    with session() as ledger:
        ended = ledger.call("end_pause", pause_id=pause)
    text = f"pause {pause}: {'ended' if ended else 'was over already'}"
    print_result({"pause": pause, "ended": ended}, text, as_json)


def _end(ledger: Session, text: str | None) -> datetime | str | None:
    if text is None or text == "none":
        return "infinity" if text else None
    return read_moment(text, "--until", ledger.reports.now(), ahead=True)


def _when(start: datetime | None, end: datetime | None) -> str:
    begins = f"from {iso(start, 'seconds')}" if start else "from now"
    return f"{begins} until {iso(end, 'seconds') if end else 'it is ended'}"


def _print_preview(
    found: Sequence[PausedJob], end: datetime | None, now: datetime, as_json: bool
) -> None:
    if as_json:
        print_json([asdict(one) for one in found])
        return
    print_listing([asdict(one) for one in found], PREVIEW, now)
    count = counted(sum(one.firings for one in found), "firing")
    period = "" if end else f" in the first {durations.format(OPEN_ENDED)}"
    echo(f"{count} of {counted(len(found), 'job')} will be skipped{period}; nothing was planned")
