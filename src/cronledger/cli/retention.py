"""`cronledger retention`: show, set."""

from datetime import timedelta

import click

from cronledger.cli.parameters import Duration
from cronledger.cli.session import session
from cronledger.cli.show import cell, json_option, print_fields, print_json, print_result


@click.group()
def retention() -> None:
    """Show and set how long the ledger keeps executions."""


@retention.command()
@json_option
def show(*, as_json: bool) -> None:
    """Show how long executions are kept, and who set that."""
    with session() as ledger:
        row = ledger.reports.retention()
    if as_json:
        print_json(row)
    else:
        print_fields(row)


@retention.command("set")
@click.argument("keep", metavar="DURATION", type=Duration())
@click.option("--reason", help="Reason, recorded in the audit trail.")
@json_option
def set_retention(*, keep: timedelta, reason: str | None, as_json: bool) -> None:
    """Keep executions for DURATION, such as 90d, from a day to 36525 days.

    Skips, runners and alerts are kept for the same time. Replicas drop older rows within an hour.
    Dropped rows cannot be recovered.
    """
    with session() as ledger:
        before = ledger.call("set_retention", keep=keep, reason=reason)
    result = {"keep": keep, "before": before}
    text = f"executions are kept for {cell(keep)} (before: {cell(before)})"
    print_result(result, text, as_json)
