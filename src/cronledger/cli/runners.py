"""`cronledger runners`: the replicas."""

import click

from cronledger.cli.show import json_option, print_json, print_rows

COLUMNS = {
    "id": "RUNNER",
    "state": "STATE",
    "version": "VERSION",
    "queues": "QUEUES",
    "slots": "SLOTS",
    "running": "RUNNING",
    "started_at": "STARTED",
    "seen": "SEEN",
}


@click.command()
@json_option
def runners(*, as_json: bool) -> None:
    """List the replicas; `dead` is one that was not seen in time."""
    from cronledger.cli.session import session

    with session() as ledger:
        rows = ledger.reports.runners()
    if as_json:
        print_json(rows)
        return
    for row in rows:
        row["seen"] = f"{max(0, round(row['seen_ago'].total_seconds()))}s ago"
    print_rows(rows, COLUMNS, "there are no runners; `cronledger run` starts one")
