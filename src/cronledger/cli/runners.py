"""`cronledger runners`: list the replicas."""

import click

from cronledger.cli.listing import Listing, Printer, listed
from cronledger.cli.session import session

LISTING = Listing(
    {
        "id": "RUNNER",
        "state": "STATE",
        "failing": "FAILING",
        "version": "VERSION",
        "deploy": "DEPLOY",
        "queues": "QUEUES",
        "labels": "LABELS",
        "slots": "SLOTS",
        "running": "RUNNING",
        "started_at": "STARTED",
        "heartbeat_at": "SEEN",
    },
    drop=("started_at", "labels", "queues", "slots", "version", "deploy"),
    none="there are no runners; `cronledger run` starts one",
)


@click.command()
@click.option(
    "--all", "former", is_flag=True, help="Also list former replicas, as far back as the retention."
)
@listed(LISTING)
def runners(*, former: bool, show: Printer) -> None:
    """List the replicas of the last day, with their version and deploy.

    A `dead` replica has not checked in for too long. A `failing` replica checks in, but a part of
    it fails; the column FAILING shows the error. The column RUNNING counts the executions of the
    replica in the ledger.
    """
    with session() as ledger:
        rows, now = ledger.reports.runners(former=former), ledger.reports.now()
    show(rows, now)
