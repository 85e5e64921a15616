"""`cronledger audit`: who did what to the ledger."""

import click

from cronledger.cli import complete
from cronledger.cli.listing import Listing, Printer, listed
from cronledger.cli.parameters import owner_options
from cronledger.cli.show import read_moment, unknown_job

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
@click.option("--since", metavar="ISO|DURATION", help="Earliest time of the action, or its age.")
@click.option("--by", metavar="NAME", help="Only actions of this person, program or role.")
@click.option("--verb", metavar="NAME", help="Only this action, such as retry or edit.")
@click.option(
    "--job", metavar="NAME", shell_complete=complete.jobs, help="Only actions on this job."
)
@owner_options
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=50,
    show_default=True,
    help="Most actions to list.",
)
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
    from cronledger.cli.session import session

    with session() as ledger:
        now = ledger.reports.now()
        first = read_moment(since, "--since", now) if since else None
        rows = ledger.reports.audit(
            since=first, by=by, verb=verb, job=job, owner=owner, labels=labels, limit=limit
        )
        # A deleted job is still in the history.
        if not rows and job is not None and not ledger.reports.revisions(job, 1):
            raise unknown_job(job)
    show(rows, now)
