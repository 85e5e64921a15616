"""`cronledger trigger`: one execution of a job, now."""

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
@click.option("--scope", metavar="ID", help="For this scope [default: the job's only one].")
@click.option("--scope-kind", metavar="KIND", help="What the scope is [default: the job's].")
@click.option("--payload", metavar="JSON", help="Instead of the job's payload.")
@click.option("--force", is_flag=True, help="Even if the job or its queue is paused.")
@click.option("--require-runner", is_flag=True, help="Only if a live replica can run it.")
@click.option("--wait", is_flag=True, help="Wait for its end; exit 1 unless it is a SUCCESS.")
@click.option("--timeout", type=Duration(), metavar="DURATION",
              help="With --wait: wait no longer than this, then exit 1.")  # fmt: skip
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
    """Make one execution of a job, due now, and print its id.

    Its schedule goes on as before. Refused while one is RUNNING and overlap is skip. Where no live
    replica can run it, it stays PENDING until there is one.
    """
    from psycopg.types.json import Jsonb

    from cronledger.cli.session import requester, session
    from cronledger.rules.problems import Exit

    if timeout is not None and not wait:
        raise click.UsageError("--timeout needs --wait; give both")
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
    """Answer what the JSON of --payload says. Raises BadParameter."""
    from cronledger.rules import storable
    from cronledger.rules.problems import shown

    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        message = f"{storable.TOO_DEEP}; {storable.ELSEWHERE}"
        raise click.BadParameter(message, param_hint="--payload") from None
    except ValueError as error:
        raise click.BadParameter(
            f"{shown(text)} is not JSON ({error}); quote it, for example '{{\"day\": 1}}'",
            param_hint="--payload",
        ) from None
    problem = storable.problem(value)
    if problem is not None:
        raise click.BadParameter("; ".join(problem), param_hint="--payload")
    return value


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not in JSON")


def scope_of(ledger: "Session", job: str, kind: str | None, scope: str | None) -> tuple[str, str]:
    """Answer kind and id of the scope that is meant; an unknown one is the database's to refuse."""
    row = ledger.reports.job(job)
    if row is None:
        return kind or "global", scope or "global"
    kind = kind or row["scope_kind"]
    if scope is None:
        known = [found for found in ledger.reports.scopes(job, 20) if found["scope_kind"] == kind]
        if len(known) != 1:
            some = ", ".join(found["scope_id"] for found in known[:5]) or "none yet"
            raise click.UsageError(
                f"job {job!r} has scopes of the kind {kind!r} ({some}); say --scope ID"
            )
        scope = known[0]["scope_id"]
    return kind, scope


def _wait(ledger: "Session", made: int, timeout: timedelta | None) -> dict[str, Any] | None:
    """Return the row once it will not change any more, or as it is after `timeout`.

    Each change is reported on standard error, and so is the timeout.
    """
    said = None
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
            status += ", to be retried" if row["next_attempt_at"] is not None else ""
        if status != said:
            echo(status, err=True)
            said = status
        if row["status"] not in ("PENDING", "RUNNING") and row["next_attempt_at"] is None:
            return row
        left = POLL_SECONDS if give_up_at is None else give_up_at - time.monotonic()
        if left <= 0:
            echo(f"#{made} has not ended within --timeout; it continues", err=True)
            return row
        time.sleep(min(left, POLL_SECONDS))
