"""`cronledger audit`: who did what to the ledger."""

import click

from cronledger.cli.listing import Listing, Printer, listed
from cronledger.cli.parameters import job_option, limit_option, owner_options, since_option
from cronledger.cli.session import session
from cronledger.cli.show import read_moment

LISTING = Listing(
    {
        "at": "AT",
        "requested_by": "BY",
        "verb": "VERB",
        "object_kind": "KIND",
        "object": "OBJECT",
        "outcome": "OUTCOME",
        "reason": "REASON",
        "error": "ERROR",
        "arguments": "ARGUMENTS",
        "revision": "REVISION",
        "session_user": "ROLE",
    },
    drop=("arguments", "session_user", "revision", "object_kind", "error", "reason"),
    none="there are no matching actions",
)


@click.command()
@since_option("time of the action")
@click.option("--by", metavar="NAME", help="Only actions of this person, program or role.")
@click.option("--verb", metavar="NAME", help="Only this action, such as retry or edit.")
@job_option("actions on")
@owner_options
@limit_option("actions")
@listed(LISTING)
def audit(
    *,
    since: str | None,
    by: str | None,
    verb: str | None,
    job: str | None,
    owner: str | None,
    labels: dict[str, str],
    limit: int,
    show: Printer,
) -> None:
    """List the actions of operators and the edits of jobs and queues, newest first."""
    with session() as ledger:
        now = ledger.reports.now()
        first = read_moment(since, "--since", now) if since else None
        rows = ledger.reports.audit(
            since=first, by=by, verb=verb, job=job, owner=owner, labels=labels, limit=limit
        )
        if not rows and job is not None:
            ledger.require_job(job)
    show(rows, now)
