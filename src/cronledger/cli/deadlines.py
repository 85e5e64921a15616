"""`cronledger deadlines` and `cronledger compliance`: missed deadlines, and how many were met."""

import re
from datetime import date

import click

from cronledger.cli.listing import Listing, Printer, listed
from cronledger.cli.parameters import job_option, limit_option, owner_options
from cronledger.cli.session import session
from cronledger.cli.show import unknown_job

BREACHES = Listing(
    {
        "breached_at": "BREACHED",
        "job_name": "JOB",
        "scope_id": "SCOPE",
        "plan_time": "PLAN TIME",
        "kind": "DEADLINE",
        "deadline": "AT",
        "closed_at": "MET LATE",
        "execution_id": "EXECUTION",
        "owner": "OWNER",
        "labels": "LABELS",
        "id": "ID",
    },
    drop=("id", "labels", "owner", "breached_at", "execution_id", "scope_id"),
    none="there are no matching breaches",
)
COMPLIANCE = Listing(
    {
        "month": "MONTH",
        "job_name": "JOB",
        "scope_id": "SCOPE",
        "deadlines": "DEADLINES",
        "met": "MET",
        "met_late": "MET LATE",
        "missed": "MISSED",
        "owner": "OWNER",
        "labels": "LABELS",
    },
    drop=("labels", "owner", "scope_id"),
    none="no deadlines were judged",
)
_MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")


def _month(_context: click.Context, _parameter: click.Parameter, given: str | None) -> date | None:
    if given is None:
        return None
    if _MONTH.fullmatch(given) is None or given.startswith("0000"):
        raise click.BadParameter(f"{given!r} is not a month; write it like 2027-03")
    return date.fromisoformat(f"{given}-01")


@click.command()
@click.option("--open", "only_open", is_flag=True, help="Only deadlines that were not met late.")
@job_option("deadlines of")
@owner_options
@limit_option("deadlines")
@listed(BREACHES)
def deadlines(
    *,
    only_open: bool,
    job: str | None,
    owner: str | None,
    labels: dict[str, str],
    limit: int,
    show: Printer,
) -> None:
    """List missed deadlines, newest plan_time first."""
    with session() as ledger:
        now = ledger.reports.now()
        rows = ledger.reports.breaches(
            only_open=only_open, job=job, owner=owner, labels=labels, limit=limit
        )
        # A deleted job is still in the history.
        if not rows and job is not None and not ledger.reports.revisions(job, 1):
            raise unknown_job(job, ledger.reports)
    show(rows, now)


@click.command()
@click.option("--month", metavar="YYYY-MM", callback=_month, help="Only this month.")
@job_option("deadlines of")
@owner_options
@listed(COMPLIANCE)
def compliance(
    *,
    month: date | None,
    job: str | None,
    owner: str | None,
    labels: dict[str, str],
    show: Printer,
) -> None:
    """List how many deadlines of each job and scope were met each month, newest month first."""
    with session() as ledger:
        now = ledger.reports.now()
        rows = ledger.reports.compliance(month=month, job=job, owner=owner, labels=labels)
        if not rows and job is not None and not ledger.reports.revisions(job, 1):
            raise unknown_job(job, ledger.reports)
    show(rows, now)
