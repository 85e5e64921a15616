"""`cronledger channels`: list the channels of alerts, and send a test message to one."""

from datetime import timedelta
from typing import Any

import click
from psycopg.types.json import Jsonb

from cronledger.cli import complete
from cronledger.cli.listing import Listing, Printer, listed
from cronledger.cli.parameters import Duration
from cronledger.cli.session import Session, requester, session
from cronledger.cli.show import echo, json_option, print_json
from cronledger.client import Client, Execution
from cronledger.ledger.reports import Row
from cronledger.rules.instants import iso
from cronledger.rules.problems import Exit

LISTING = Listing(
    {
        "name": "CHANNEL",
        "kind": "KIND",
        "delivery_status": "LAST",
        "delivery_at": "AT",
        "delivery_error": "ERROR",
        "paused_at": "PAUSED",
        "on_ledger": "ON LEDGER",
        "source": "SOURCE",
        "delivery_id": "EXECUTION",
    },
    drop=("delivery_id", "source", "on_ledger", "paused_at", "delivery_error", "delivery_at"),
    none="there are no channels; a source declares them as [channels.NAME]",
)


@click.group()
def channels() -> None:
    """List the channels of alerts, and test one."""


@channels.command("list")
@listed(LISTING)
def list_channels(*, show: Printer) -> None:
    """List the channels, each with its last delivery and its error."""
    with session() as ledger:
        rows, now = ledger.reports.channels(), ledger.reports.now()
    show(rows, now)


@channels.command()
@click.argument("name", metavar="CHANNEL", shell_complete=complete.channels)
@click.option(
    "--timeout", type=Duration(), metavar="DURATION", default="1m", show_default=True,
    help="Maximum time to wait for the end of the delivery.",
)  # fmt: skip
@json_option
def test(*, name: str, timeout: timedelta, as_json: bool) -> None:
    """Send a test message to a channel, and wait for the end of the delivery.

    A replica sends the message, in the environment and the network that alerts use. The message is
    an alert with the event `test`. It is not retried: if the delivery fails, or does not end within
    --timeout, the command cancels it.

    Exit status: 0 if the receiver accepted the message, otherwise 1.
    """
    with session() as ledger:
        found = ledger.reports.channels(name)
        if not found:
            raise click.UsageError(
                f"channel {name!r} does not exist; `cronledger channels list` lists the channels"
            )
        made: int = ledger.call("trigger", job=f"alerts.{name}", payload=_message(ledger, found[0]))
        error = _error(_ended(ledger, made, timeout.total_seconds()))
        if error is not None:
            ledger.call("cancel", execution_id=made)
    if as_json:
        print_json({"channel": name, "execution": made, "delivered": error is None, "error": error})
    elif error is None:
        echo(f"{name}: accepted the test message (execution {made})")
    else:
        echo(f"Error: {name}: the test message was not delivered: {error}", err=True)
    if error is not None:
        raise click.exceptions.Exit(Exit.FAILED)


def _message(ledger: Session, channel: Row) -> Any:
    """Return the payload of a delivery with one alert, whose event is `test`."""
    at, name = iso(ledger.reports.now()), channel["name"]
    alert = {
        "id": 0, "event": "test", "kind": "opened", "at": at, "since": at, "job": None,
        "scope_kind": None, "scope": None, "owner": None, "labels": {}, "runner": None,
        "execution_id": None, "plan_time": None, "count": 1,
        "summary": f"Test of the channel {name}, requested by {requester()}", "details": {},
    }  # fmt: skip
    return Jsonb({"channel": name, "ledger": str(channel["ledger"]), "alerts": [alert]})


def _ended(ledger: Session, made: int, seconds: float) -> Execution:
    """Wait until the first attempt has ended, or for `seconds`, and return the execution."""
    client = Client(connection=ledger.connection, settings=ledger.settings)
    try:
        return ledger.wait(made, seconds, lambda found: found.ended or found.status == "FAILED")
    except TimeoutError:
        return client.execution(made)


def _error(found: Execution) -> str | None:
    match found.status:
        case "SUCCESS":
            return None
        case "PENDING":
            return (
                "no replica has started the delivery within --timeout; start one whose "
                "alert_slots are not 0"
            )
        case "RUNNING":
            return f"the delivery on {found.runner_id} has not ended within --timeout"
        case _:
            return ": ".join(filter(None, (found.error_code, found.error_msg))) or found.status
