"""`cronledger alerts`: list the alerts, or the open states."""

import click

from cronledger.cli.listing import Listing, Printer, listed
from cronledger.cli.parameters import job_option, limit_option, owner_options
from cronledger.cli.session import session
from cronledger.cli.show import unknown_job

LISTING = Listing(
    {
        "at": "AT",
        "event": "EVENT",
        "kind": "KIND",
        "channel": "CHANNEL",
        "job_name": "JOB",
        "scope_id": "SCOPE",
        "runner_id": "RUNNER",
        "delivery_status": "DELIVERY",
        "summary": "SUMMARY",
        "execution_id": "EXECUTION",
    },
    drop=("execution_id", "runner_id", "scope_id", "delivery_status", "channel", "summary"),
    none="there are no matching alerts",
)


@click.command()
@click.option("--open", "is_open", is_flag=True, help="List the open states instead.")
@job_option("alerts of")
@owner_options
@limit_option("alerts")
@listed(LISTING)
def alerts(
    *,
    is_open: bool,
    job: str | None,
    owner: str | None,
    labels: dict[str, str],
    limit: int,
    show: Printer,
) -> None:
    """List the alerts that were raised, newest first.

    With --open, list the open states, oldest first, each with the time at which it was opened.
    """
    with session() as ledger:
        read = ledger.reports.alert_states if is_open else ledger.reports.alerts
        rows = read(job=job, owner=owner, labels=labels, limit=limit)
        now = ledger.reports.now()
        # A deleted job is still in the history.
        if not rows and job is not None and not ledger.reports.revisions(job, 1):
            raise unknown_job(job, ledger.reports)
    show(rows, now)
