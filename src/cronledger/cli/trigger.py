"""`cronledger trigger`: create one execution of a job, due now."""

from dataclasses import asdict
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

import click
from psycopg.types.json import Jsonb

from cronledger.cli import complete
from cronledger.cli.execution import usual_text
from cronledger.cli.follow import follow, has_ended, status_line
from cronledger.cli.listing import relative
from cronledger.cli.parameters import Duration, payload_option, scope_options
from cronledger.cli.session import Session, session
from cronledger.cli.show import echo, json_option, print_json
from cronledger.client import Execution
from cronledger.explain.expected import expected_rows
from cronledger.rules.problems import Exit

PROGRESS_SECONDS = 5.0
"""The least time between two lines that differ only in the progress."""


@click.command()
@click.argument("name", metavar="JOB", shell_complete=complete.jobs)
@scope_options
@payload_option
@click.option("--force", is_flag=True, help="Trigger even if the job or its queue is paused.")
@click.option(
    "--require-runner", is_flag=True, help="Refuse unless a live replica can run the job."
)
@click.option(
    "--wait", is_flag=True, help="Wait until the execution ends; exit 1 unless it succeeded."
)
@click.option(
    "--follow", "follows", is_flag=True, help="Like --wait, and print the output as it comes."
)
@click.option("--timeout", type=Duration(), metavar="DURATION",
              help="With --wait or --follow: stop after this time, and exit 1.")  # fmt: skip
@json_option
def trigger(
    *,
    name: str,
    scope: str | None,
    scope_kind: str | None,
    payload: Jsonb | None,
    force: bool,
    require_runner: bool,
    wait: bool,
    follows: bool,
    timeout: timedelta | None,
    as_json: bool,
) -> None:
    """Create one execution of a job, due now, and print its id.

    The schedule of the job is not affected. If the job's overlap is `skip`, the command is refused
    while an execution of the same scope is RUNNING. If no live replica can run the job, the
    execution stays PENDING until one can.
    """
    if timeout is not None and not (wait or follows):
        raise click.UsageError("--timeout needs --wait or --follow; add one, or omit --timeout")
    if follows and as_json:
        raise click.UsageError("--follow prints output, which is not JSON; use --wait with --json")
    with session() as ledger:
        key = ledger.scope(name, scope_kind, scope)
        made: int = ledger.call(
            "trigger",
            job=name,
            scope_kind=key.scope_kind,
            scope_id=key.scope_id,
            payload=payload,
            force=force,
            require_runner=require_runner,
        )
        if follows:
            row = _follow(ledger, made, timeout)
        else:
            row = _wait(ledger, made, timeout) if wait else ledger.reports.execution(made)
    if as_json:
        print_json(row)
    elif not follows:
        echo(str(made))
    if (wait or follows) and row is not None and row["status"] != "SUCCESS":
        raise click.exceptions.Exit(Exit.FAILED)


def _follow(ledger: Session, made: int, timeout: timedelta | None) -> dict[str, Any] | None:
    """Print the output of the execution until it has ended, or for `timeout`; return its state."""
    row = follow(ledger, made, None if timeout is None else timeout.total_seconds())
    if row is not None and not has_ended(row):
        _report_timeout(made)
    return row


def _report_timeout(made: int) -> None:
    echo(f"#{made} has not ended within --timeout; it was not cancelled", err=True)


def _wait(ledger: Session, made: int, timeout: timedelta | None) -> dict[str, Any] | None:
    """Wait until the execution has ended, or for `timeout`, and return its row.

    Each change of its status, its progress and the timeout are reported on standard error.
    """
    seconds = None if timeout is None else timeout.total_seconds()
    printed: tuple[str, datetime | None] | None = None
    progress_from = 0.0

    def seen(found: Execution) -> bool:
        nonlocal printed, progress_from
        status, reported = state = status_line(asdict(found)), found.progress_at
        changed = printed is None or status != printed[0]
        if changed or (reported and state != printed and monotonic() >= progress_from):
            expected = _expected(ledger, found) if found.status == "RUNNING" else ""
            echo(f"{status}{expected}", err=True)
            printed, progress_from = state, monotonic() + PROGRESS_SECONDS
        return found.ended

    try:
        ledger.wait(made, seconds, seen)
    except TimeoutError:
        _report_timeout(made)
    return ledger.reports.execution(made)


def _expected(ledger: Session, found: Execution) -> str:
    """Return the progress of a running execution, and when it probably ends."""
    reported: dict[str, Any] = {
        "job_name": found.job, "started_at": found.started_at,
        "progress_done": found.progress_done, "progress_total": found.progress_total,
        "progress_text": found.progress_text, "progress_at": found.progress_at,
    }  # fmt: skip
    now = ledger.reports.now()
    (row,) = expected_rows(ledger.reports, [reported], now)
    text = f"; {row['progress']}" if row["progress"] else ""
    if (usual := usual_text(row)) is not None:
        text += f"; usually takes {usual}"
    if row["expected_end"] is not None:
        text += f"; expected end {relative(row['expected_end'], now)}"
    return text
