"""`cronledger channels`: list, test, pause and resume channels; list and retry deliveries."""

from datetime import timedelta
from time import monotonic, sleep

import click

from cronledger.cli import complete
from cronledger.cli.listing import Listing, Printer, listed
from cronledger.cli.parameters import ID, Duration, limit_option
from cronledger.cli.session import Session, session
from cronledger.cli.show import echo, json_option, print_json, print_result
from cronledger.ledger.reports import Row
from cronledger.rules.problems import Exit

POLL_SECONDS = 0.1
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
        "delivery_id": "DELIVERY",
    },
    drop=("delivery_id", "source", "on_ledger", "paused_at", "delivery_error", "delivery_at"),
    none="there are no channels; a source declares them as [channels.NAME]",
)
DELIVERIES = Listing(
    {
        "id": "ID",
        "channel": "CHANNEL",
        "status": "STATUS",
        "attempt": "ATTEMPT",
        "created_at": "CREATED",
        "finished_at": "ENDED",
        "due_at": "AGAIN AT",
        "runner_id": "RUNNER",
        "error_msg": "ERROR",
    },
    drop=("runner_id", "created_at", "due_at", "attempt", "finished_at", "error_msg"),
    none="there are no matching deliveries",
)
channel_argument = click.argument("name", metavar="CHANNEL", shell_complete=complete.channels)


@click.group()
def channels() -> None:
    """List, test, pause and resume the channels of alerts; list and retry deliveries."""


@channels.command("list")
@listed(LISTING)
def list_channels(*, show: Printer) -> None:
    """List the channels, each with its last delivery and its error."""
    with session() as ledger:
        rows, now = ledger.reports.channels(), ledger.reports.now()
    show(rows, now)


@channels.command()
@click.argument("name", metavar="[CHANNEL]", required=False, shell_complete=complete.channels)
@click.option("--status", type=click.Choice(["PENDING", "RUNNING", "SUCCESS", "FAILED"]),
              help="Only deliveries with this status.")  # fmt: skip
@limit_option("deliveries")
@listed(DELIVERIES)
def deliveries(*, name: str | None, status: str | None, limit: int, show: Printer) -> None:
    """List deliveries of alerts and tests, newest first. FAILED ones may be tried again."""
    with session() as ledger:
        if name is not None:
            _require(ledger, name)
        rows = ledger.reports.deliveries(channel=name, status=status, limit=limit)
        now = ledger.reports.now()
    show(rows, now)


@channels.command()
@click.argument("delivery", metavar="ID", type=ID)
@json_option
def retry(*, delivery: int, as_json: bool) -> None:
    """Send a FAILED delivery again, with all of its attempts."""
    with session() as ledger:
        retried = ledger.call("retry_delivery", delivery=delivery)
    text = f"{delivery}: {'retried' if retried else 'was already waiting'}"
    print_result({"delivery": delivery, "retried": retried}, text, as_json)


@channels.command()
@channel_argument
@json_option
def pause(*, name: str, as_json: bool) -> None:
    """Pause a channel: its alerts and deliveries wait until it is resumed."""
    with session() as ledger:
        paused = ledger.call("pause_channel", channel=name)
    text = f"{name}: {'paused' if paused else 'was already paused'}"
    print_result({"channel": name, "paused": paused}, text, as_json)


@channels.command()
@channel_argument
@json_option
def resume(*, name: str, as_json: bool) -> None:
    """Resume a channel: the alerts and deliveries that have waited are sent."""
    with session() as ledger:
        resumed = ledger.call("resume_channel", channel=name)
    text = f"{name}: {'resumed' if resumed else 'was not paused'}"
    print_result({"channel": name, "resumed": resumed}, text, as_json)


@channels.command()
@channel_argument
@click.option(
    "--timeout", type=Duration(), metavar="DURATION", default="1m", show_default=True,
    help="Maximum time to wait for the end of the delivery.",
)  # fmt: skip
@json_option
def test(*, name: str, timeout: timedelta, as_json: bool) -> None:
    """Send a test message to a channel, and wait for the end of the delivery.

    A replica sends the message, in the environment and the network that alerts use. The message is
    an alert with the event `test`. It is not retried, and it is not sent if no replica has started
    it within --timeout.

    Exit status: 0 if the receiver accepted the message, otherwise 1.
    """
    with session() as ledger:
        _require(ledger, name)
        made: int = ledger.call("test_channel", channel=name, patience=timeout)
        error = _error(_ended(ledger, made, timeout.total_seconds()))
    if as_json:
        print_json({"channel": name, "delivery": made, "delivered": error is None, "error": error})
    elif error is None:
        echo(f"{name}: accepted the test message (delivery {made})")
    else:
        echo(f"Error: {name}: the test message was not delivered: {error}", err=True)
    if error is not None:
        raise click.exceptions.Exit(Exit.FAILED)


def _require(ledger: Session, channel: str) -> None:
    if not ledger.reports.channels(channel):
        raise click.UsageError(
            f"channel {channel!r} does not exist; `cronledger channels list` lists the channels"
        )


def _ended(ledger: Session, delivery: int, seconds: float) -> Row:
    """Wait until a delivery has ended, or for `seconds`, and return its row."""
    until = monotonic() + seconds
    while True:
        (row,) = ledger.reports.deliveries(delivery=delivery)
        if row["due_at"] is None or monotonic() >= until:
            return row
        sleep(POLL_SECONDS)


def _error(delivery: Row) -> str | None:
    match delivery["status"]:
        case "SUCCESS":
            return None
        case "PENDING":
            return (
                "no replica has started the delivery within --timeout; start one whose "
                "alert_slots are not 0"
            )
        case "RUNNING":
            return f"the delivery on {delivery['runner_id']} has not ended within --timeout"
        case _:
            return f"{delivery['error_code']}: {delivery['error_msg']}"
