"""`cronledger runners`: list the replicas."""

import click

from cronledger.cli.listing import Listing, Printer, listed

LISTING = Listing(
    {
        "id": "RUNNER",
        "state": "STATE",
        "version": "VERSION",
        "queues": "QUEUES",
        "slots": "SLOTS",
        "running": "RUNNING",
        "started_at": "STARTED",
        "heartbeat_at": "SEEN",
    },
    drop=("version", "started_at", "queues", "slots"),
    none="there are no runners; `cronledger run` starts one",
)


@click.command()
@click.option("--all", "former", is_flag=True, help="List former replicas too, for the retention.")
@listed(LISTING)
def runners(*, former: bool, show: Printer) -> None:
    """List the replicas of the last day. A `dead` replica has not checked in for too long."""
    from cronledger.cli.session import session

    with session() as ledger:
        rows, now = ledger.reports.runners(former=former), ledger.reports.now()
    show(rows, now)
