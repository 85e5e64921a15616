"""`cronledger enqueue`: enqueue work for a job."""

from uuid import UUID

import click
from psycopg.types.json import Jsonb

from cronledger.cli import complete
from cronledger.cli.parameters import BIGINT, moment_option, payload_option, scope_options
from cronledger.cli.session import session
from cronledger.cli.show import echo, json_option, print_json, read_moment


@click.command()
@click.argument("name", metavar="JOB", shell_complete=complete.jobs)
@scope_options
@payload_option
@click.option(
    "--watermark", type=BIGINT, help="Position that the input has reached; it only grows."
)
@click.option("--key", help="Merge into the PENDING execution with this key.")
@moment_option("--due-at", help="Time at which the work is due [default: now].")
@click.option(
    "--group", type=click.UUID, metavar="UUID", help="Group to which the execution belongs."
)
@json_option
def enqueue(
    *,
    name: str,
    scope: str | None,
    scope_kind: str | None,
    payload: Jsonb | None,
    watermark: int | None,
    key: str | None,
    due_at: str | None,
    group: UUID | None,
    as_json: bool,
) -> None:
    """Enqueue work for a job, and print the id of the execution that will do it.

    With --key, the work merges into the PENDING execution with that key, which takes the newest
    payload and the greatest watermark. With --watermark and without --key, no id is printed if an
    execution has already processed the input up to that position. With --due-at, the work waits
    until that time; --due-at excludes --key and --watermark. Work for a paused job waits until the
    job is resumed.
    """
    with session() as ledger:
        scope_key = ledger.scope(name, scope_kind, scope)
        due = read_moment(due_at, "--due-at", ledger.reports.now(), ahead=True) if due_at else None
        made: int | None = ledger.call(
            "enqueue",
            job=name,
            scope_id=scope_key.scope_id,
            scope_kind=scope_key.scope_kind,
            watermark=watermark,
            payload=payload,
            key=key,
            due_at=due,
            group_id=group,
        )
        row = None if made is None else ledger.reports.execution(made)
    if as_json:
        print_json(row)
    elif made is None:
        echo(f"{name}: the input is already processed up to this watermark", err=True)
    else:
        echo(str(made))
