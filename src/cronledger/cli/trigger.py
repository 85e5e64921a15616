"""`cronledger trigger`: create one execution of a job, due now."""

import json
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from cronledger.cli.parameters import Duration
from cronledger.cli.show import echo, json_option, print_json

if TYPE_CHECKING:
    from cronledger.cli.session import Session

POLL_SECONDS = 0.2


@click.command()
@click.argument("name", metavar="JOB")
@click.option(
    "--scope", metavar="ID", help="Scope of the execution [default: the job's only scope]."
)
@click.option("--scope-kind", metavar="KIND", help="Kind of the scope [default: that of the job].")
@click.option(
    "--payload", metavar="JSON", help="Payload of the execution [default: that of the job]."
)
@click.option("--force", is_flag=True, help="Trigger even if the job or its queue is paused.")
@click.option(
    "--require-runner", is_flag=True, help="Refuse unless a live replica can run the job."
)
@click.option(
    "--wait", is_flag=True, help="Wait until the execution ends; exit 1 unless it succeeded."
)
@click.option("--timeout", type=Duration(), metavar="DURATION",
              help="With --wait: stop waiting after this time, and exit 1.")  # fmt: skip
@json_option
def trigger(
    *,
    name: str,
    scope: str | None,
    scope_kind: str | None,
    payload: str | None,
    force: bool,
    require_runner: bool,
    wait: bool,
    timeout: timedelta | None,
    as_json: bool,
) -> None:
    """Create one execution of a job, due now, and print its id.

    The schedule of the job is not affected. If the job's overlap is `skip`, the command is refused
    while an execution of the same scope is RUNNING. If no live replica can run the job, the
    execution stays PENDING until one can.
    """
    from psycopg.types.json import Jsonb

    from cronledger.cli.session import requester, session
    from cronledger.rules.problems import Exit

    if timeout is not None and not wait:
        raise click.UsageError("--timeout needs --wait; add --wait, or omit --timeout")
    given = None if payload is None else Jsonb(read_payload(payload))
    with session() as ledger:
        kind, scope_id = scope_of(ledger, name, scope_kind, scope)
        made: int = ledger.call(
            "trigger",
            job=name,
            scope_kind=kind,
            scope_id=scope_id,
            payload=given,
            force=force,
            requested_by=requester(),
            require_runner=require_runner,
        )
        row = _wait(ledger, made, timeout) if wait else ledger.reports.execution(made)
    if as_json:
        print_json(row)
    else:
        echo(str(made))
    if wait and row is not None and row["status"] != "SUCCESS":
        raise click.exceptions.Exit(Exit.FAILED)


def read_payload(text: str) -> object:
    """Return the value of the JSON in --payload. Raises BadParameter."""
    from cronledger.rules import storable
    from cronledger.rules.problems import shown

    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        message = f"{storable.TOO_DEEP}; {storable.ELSEWHERE}"
        raise click.BadParameter(message, param_hint="--payload") from None
    except ValueError as error:
        raise click.BadParameter(
            f"{shown(text)} is not JSON ({error}); quote it for the shell, like '{{\"day\": 1}}'",
            param_hint="--payload",
        ) from None
    problem = storable.problem(value)
    if problem is not None:
        raise click.BadParameter("; ".join(problem), param_hint="--payload")
    return value


def _refuse(constant: str) -> object:
    raise ValueError(f"JSON has no {constant}")


def scope_of(ledger: "Session", job: str, kind: str | None, scope: str | None) -> tuple[str, str]:
    """Return the kind and id of the scope. The database refuses an unknown job or scope."""
    row = ledger.reports.job(job)
    if row is None:
        return kind or "global", scope or "global"
    kind = kind or row["scope_kind"]
    if scope is None:
        known = [found for found in ledger.reports.scopes(job, 20) if found["scope_kind"] == kind]
        if len(known) != 1:
            some = ", ".join(found["scope_id"] for found in known[:5])
            raise click.UsageError(
                f"job {job!r} has several scopes of the kind {kind!r} ({some}); use --scope ID"
                if known
                else f"job {job!r} has no scope of the kind {kind!r} yet; use --scope ID"
            )
        scope = known[0]["scope_id"]
    return kind, scope


def _wait(ledger: "Session", made: int, timeout: timedelta | None) -> dict[str, Any] | None:
    """Wait until the execution has ended, or for `timeout`, and return its row.

    Each change of its status, and the timeout, is reported on standard error.
    """
    printed = None
    give_up_at = None if timeout is None else time.monotonic() + timeout.total_seconds()
    while True:
        row = ledger.reports.execution(made)
        if row is None:
            return None
        status = f"#{made} {row['status']}"
        if row["status"] == "RUNNING":
            status += f" on {row['runner_id']}, attempt {row['attempt']} of {row['max_attempts']}"
        elif row["status"] == "FAILED":
            status += f": {row['error_code']}"
            status += ", waits for a retry" if row["next_attempt_at"] is not None else ""
        if status != printed:
            echo(status, err=True)
            printed = status
        if row["status"] not in ("PENDING", "RUNNING") and row["next_attempt_at"] is None:
            return row
        left = POLL_SECONDS if give_up_at is None else give_up_at - time.monotonic()
        if left <= 0:
            echo(f"#{made} has not ended within --timeout; it keeps running", err=True)
            return row
        time.sleep(min(left, POLL_SECONDS))
