"""The output of an execution on the terminal: as it was stored, or as it comes."""

import sys
import time
from collections.abc import Mapping
from typing import Any

import click

from cronledger.cli.session import Session
from cronledger.cli.show import echo
from cronledger.ledger.following import ANNOUNCE_SECONDS, POLL_SECONDS, Following
from cronledger.ledger.reports import Row


def print_output(text: str, *, nl: bool = False) -> None:
    """Print output. What is not a terminal gets it unchanged, including its colours."""
    if sys.stdout.isatty():
        echo(text, nl=nl)
    else:
        click.echo(text, nl=nl, color=True)


def follow(ledger: Session, execution_id: int, seconds: float | None = None) -> Row | None:
    """Print the output as it comes, until the execution has ended or `seconds` are over.

    Changes of its status are reported on standard error. Return its last state, or None if the
    execution does not exist.
    """
    following, began, announced, printed = Following(execution_id), time.monotonic(), None, None
    while (row := ledger.reports.followed(following)) is not None:
        print_output(following.news(row))
        if (status := status_line(row)) != printed:
            echo(status, err=True)
            printed = status
        now = time.monotonic()
        if has_ended(row) or (seconds is not None and now >= began + seconds):
            return row
        if announced is None or now >= announced + ANNOUNCE_SECONDS:
            ledger.reports.announce_follow(execution_id)
            announced = now
        time.sleep(POLL_SECONDS)
    return None


def has_ended(row: Mapping[str, Any]) -> bool:
    """Return whether the execution has ended and is not retried by itself."""
    return row["status"] not in ("PENDING", "RUNNING") and row["next_attempt_at"] is None


def status_line(row: Mapping[str, Any]) -> str:
    """Return the status of an execution as a line for people."""
    status = f"#{row['id']} {row['status']}"
    if row["status"] == "RUNNING":
        status += f" on {row['runner_id']}, attempt {row['attempt']} of {row['max_attempts']}"
    elif row["status"] == "FAILED":
        cause = (row["error_msg"] or "").partition("\n")[0]
        status += f": {row['error_code']}" + (f": {cause}" if cause else "")
        status += ", waits for a retry" if row["next_attempt_at"] is not None else ""
    return status
