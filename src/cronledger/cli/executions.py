"""`cronledger executions`: list, show, output, retry, cancel, redact."""

from dataclasses import asdict

import click

from cronledger.cli import complete
from cronledger.cli.execution import print_execution
from cronledger.cli.follow import follow, print_output
from cronledger.cli.listing import Listing, Printer, listed
from cronledger.cli.parameters import (
    ID,
    job_option,
    limit_option,
    moment_option,
    owner_options,
    since_option,
)
from cronledger.cli.session import session
from cronledger.cli.show import echo, json_option, print_json, print_result, read_moment
from cronledger.explain.expected import expected_rows
from cronledger.ledger import calls
from cronledger.ledger.values import ManyResult
from cronledger.rules.instants import iso
from cronledger.rules.problems import Exit

LISTING = Listing(
    {
        "id": "ID",
        "job_name": "JOB",
        "scope_id": "SCOPE",
        "plan_time": "PLAN TIME",
        "status": "STATUS",
        "queue": "QUEUE",
        "trigger": "TRIGGER",
        "runner_id": "RUNNER",
        "attempt": "ATTEMPT",
        "started_at": "STARTED",
        "finished_at": "FINISHED",
        "duration_ms": "MS",
        "progress": "PROGRESS",
        "expected_end": "EXPECTED END",
        "error_code": "ERROR",
        "next_attempt_at": "AGAIN AT",
    },
    drop=(
        "trigger",
        "queue",
        "started_at",
        "runner_id",
        "finished_at",
        "scope_id",
        "next_attempt_at",
        "duration_ms",
        "attempt",
        "expected_end",
        "progress",
    ),
    none="there are no matching executions",
)
STATUSES = ["PENDING", "RUNNING", "SUCCESS", "FAILED", "CANCELLED"]


failed_argument = click.argument(
    "execution_id", metavar="ID", type=ID, shell_complete=complete.failures
)
failed_arguments = click.argument(
    "execution_ids", metavar="ID...", type=ID, nargs=-1, required=True,
    shell_complete=complete.failures,
)  # fmt: skip
running_arguments = click.argument(
    "execution_ids", metavar="ID...", type=ID, nargs=-1, required=True,
    shell_complete=complete.running,
)  # fmt: skip
reason_option = click.option("--reason", help="Reason, shown in the audit trail.")


@click.group()
def executions() -> None:
    """List and show executions and their output; retry and cancel them."""


@executions.command("list")
@job_option("executions of")
@click.option(
    "--scope", metavar="ID", shell_complete=complete.scopes, help="Only executions of this scope."
)
@owner_options
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(STATUSES, case_sensitive=False),
    help="Only executions with this status; repeatable.",
)
@click.option(
    "--runner", metavar="RUNNER", help="Only executions whose last attempt this runner runs or ran."
)
@since_option("plan_time")
@moment_option("--until", help="Only plan_times before this one, or older than this.")
@limit_option("executions")
@listed(LISTING)
def list_executions(
    *,
    job: str | None,
    scope: str | None,
    owner: str | None,
    labels: dict[str, str],
    statuses: tuple[str, ...],
    runner: str | None,
    since: str | None,
    until: str | None,
    limit: int,
    show: Printer,
) -> None:
    """List executions, newest first."""
    with session() as ledger:
        now = ledger.reports.now()
        first = read_moment(since, "--since", now) if since else None
        end = read_moment(until, "--until", now) if until else None
        if first is not None and end is not None and end <= first:
            raise click.UsageError(
                f"--until {iso(end)} is not after --since {iso(first)}; swap them"
            )
        rows = ledger.reports.executions(
            job=job, scope=scope, owner=owner, labels=labels, statuses=statuses,
            runner=runner, since=first, until=end, limit=limit,
        )  # fmt: skip
        if not rows and job is not None:
            ledger.require_job(job)
        rows = expected_rows(ledger.reports, rows, now)
    show(rows, now)


@executions.command()
@failed_argument
@json_option
def show(*, execution_id: int, as_json: bool) -> None:
    """Show one execution: all of its fields except its output."""
    with session() as ledger:
        row, now = ledger.reports.execution(execution_id), ledger.reports.now()
        rows = expected_rows(ledger.reports, [] if row is None else [row], now)
    if not rows:
        raise _unknown(execution_id)
    (row,) = rows
    if as_json:
        print_json(row)
    else:
        print_execution(row, now)


@executions.command()
@failed_argument
@click.option(
    "-f", "--follow", "follows", is_flag=True, help="Print the output as it comes, until the end."
)
@click.option(
    "--attempt", type=click.IntRange(1), metavar="N",
    help="Print the output of an earlier attempt, whose runner died.",
)  # fmt: skip
@json_option
def output(*, execution_id: int, follows: bool, attempt: int | None, as_json: bool) -> None:
    """Print the output of an execution's last attempt, also while it runs.

    If the output is long, its middle or its beginning is left out. With --follow, the exit status
    is 1 unless the execution succeeds.
    """
    if follows and (as_json or attempt is not None):
        raise click.UsageError("--follow prints output as it comes; omit --json and --attempt")
    with session() as ledger:
        if follows:
            row = follow(ledger, execution_id)
        else:
            row = ledger.reports.output(execution_id, attempt)
    if row is None:
        raise _unknown(execution_id)
    if follows:
        if row["status"] != "SUCCESS":
            raise click.exceptions.Exit(Exit.FAILED)
    elif as_json:
        print_json(row)
    elif row["output"] is None:
        click.echo(f"execution {execution_id} ({row['status']}) has no stored output", err=True)
    else:
        print_output(row["output"], nl=not row["output"].endswith("\n"))


@executions.command()
@failed_arguments
@click.option("--force", is_flag=True, help="Retry even if the end of the last attempt is unknown.")
@reason_option
@json_option
def retry(
    *, execution_ids: tuple[int, ...], force: bool, reason: str | None, as_json: bool
) -> None:
    """Retry FAILED or CANCELLED executions now, with one more attempt.

    A SUCCESS is refused. An execution of a non-reentrant job is also refused if the end of its last
    attempt is unknown. Make sure that the attempt has ended and may be repeated, then use --force
    with its ID alone.

    Several executions are one action of the audit trail. Those that would be refused alone are left
    as they are. Exit status: 1 if any was left as it is.
    """
    if len(execution_ids) > 1 or reason is not None:
        if force:
            raise click.UsageError(
                "--force needs exactly one ID and no --reason; decide each alone"
            )
        _act_on_many(calls.retry_many(execution_ids, reason), as_json)
        return
    (execution_id,) = execution_ids
    with session() as ledger:
        result = ledger.call("retry", execution_id=execution_id, force=force)
    fields = {"execution_id": execution_id, "result": result}
    print_result(fields, f"{execution_id}: {result.replace('_', ' ')}", as_json)


@executions.command()
@running_arguments
@reason_option
@json_option
def cancel(*, execution_ids: tuple[int, ...], reason: str | None, as_json: bool) -> None:
    """Cancel executions: at once if they wait, otherwise by a request to their replicas.

    Several executions are one action of the audit trail. Those that have ended, or whose rows are
    locked at this moment, are left as they are.

    Exit status: 1 if the row of the only execution is locked (try again), or if any of several
    executions was left as it is.
    """
    if len(execution_ids) > 1 or reason is not None:
        _act_on_many(calls.cancel_many(execution_ids, reason), as_json)
        return
    (execution_id,) = execution_ids
    with session() as ledger:
        result = ledger.call("cancel", execution_id=execution_id)
    fields = {"execution_id": execution_id, "result": result}
    print_result(fields, f"{execution_id}: {result.replace('_', ' ')}", as_json)
    if result == "busy":
        raise click.exceptions.Exit(Exit.FAILED)


@executions.command()
@click.argument("execution_ids", metavar="ID...", type=ID, nargs=-1, required=True)
@reason_option
@json_option
def redact(*, execution_ids: tuple[int, ...], reason: str | None, as_json: bool) -> None:
    """Remove the data of executions that may be personal.

    The payload, the result, the output, the key and the messages of errors are removed, also from
    the alerts about the executions. The plan_times, statuses and times stay, and `verify` still
    accounts for them. An execution that has not ended is refused, and then the executions after it
    are not changed. A redacted execution cannot be retried.
    """
    with session() as ledger:
        done = [
            {
                "execution_id": one,
                "redacted": ledger.call("redact", execution_id=one, reason=reason),
            }
            for one in execution_ids
        ]
    if as_json:
        print_json(done)
        return
    for row in done:
        echo(f"{row['execution_id']}: {'redacted' if row['redacted'] else 'was redacted before'}")


def _act_on_many(call: calls.Call[list[ManyResult]], as_json: bool) -> None:
    with session() as ledger:
        done = ledger.send(call)
    if as_json:
        print_json([asdict(one) for one in done])
    for one in () if as_json else done:
        detail = f": {one.detail}" if one.detail else ""
        echo(f"{one.execution_id}: {one.result.replace('_', ' ')}{detail}")
    if not all(one.changed for one in done):
        raise click.exceptions.Exit(Exit.FAILED)


def _unknown(execution_id: int) -> click.UsageError:
    return click.UsageError(
        f"execution {execution_id} does not exist, or was removed after its retention; "
        "`cronledger executions list` lists the executions"
    )
