"""`cronledger enqueue`: enqueue work for a job."""

from uuid import UUID

import click

from cronledger.cli.parameters import BIGINT
from cronledger.cli.show import echo, json_option, print_json


@click.command()
@click.argument("name", metavar="JOB")
@click.option("--scope", metavar="ID", help="Scope of the work [default: the job's only scope].")
@click.option("--scope-kind", metavar="KIND", help="Kind of the scope [default: that of the job].")
@click.option(
    "--payload", metavar="JSON", help="Payload of the execution [default: that of the job]."
)
@click.option(
    "--watermark", type=BIGINT, help="Position that the input has reached; it only grows."
)
@click.option("--key", help="Merge into the PENDING execution with this key.")
@click.option(
    "--group", type=click.UUID, metavar="UUID", help="Group to which the execution belongs."
)
@json_option
def enqueue(
    *,
    name: str,
    scope: str | None,
    scope_kind: str | None,
    payload: str | None,
    watermark: int | None,
    key: str | None,
    group: UUID | None,
    as_json: bool,
) -> None:
    """Enqueue work for a job, and print the id of the execution that will do it.

    With --key, the work merges into the PENDING execution with that key, which takes the newest
    payload and the greatest watermark. With only --watermark, no id is printed if an execution has
    already processed the input up to that position. Work for a paused job waits until the job is
    resumed.
    """
    from psycopg.types.json import Jsonb

    from cronledger.cli.session import requester, session
    from cronledger.cli.trigger import read_payload, scope_of

    given = None if payload is None else Jsonb(read_payload(payload))
    with session() as ledger:
        kind, scope_id = scope_of(ledger, name, scope_kind, scope)
        made: int | None = ledger.call(
            "enqueue",
            job=name,
            scope_id=scope_id,
            scope_kind=kind,
            watermark=watermark,
            payload=given,
            key=key,
            group_id=group,
            requested_by=requester(),
        )
        row = None if made is None else ledger.reports.execution(made)
    if as_json:
        print_json(row)
    elif made is None:
        echo(f"{name}: the input is already processed up to this watermark", err=True)
    else:
        echo(str(made))
