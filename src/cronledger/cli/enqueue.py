"""`cronledger enqueue`: work is pushed at a job."""

from uuid import UUID

import click

from cronledger.cli.parameters import BIGINT
from cronledger.cli.show import echo, json_option, print_json


@click.command()
@click.argument("name", metavar="JOB")
@click.option("--scope", metavar="ID", help="For this scope [default: the job's only one].")
@click.option("--scope-kind", metavar="KIND", help="What the scope is [default: the job's].")
@click.option("--payload", metavar="JSON", help="Instead of the job's payload.")
@click.option("--watermark", type=BIGINT, help="How far the input has come; only grows.")
@click.option("--key", help="Merges with what is PENDING under the same key.")
@click.option("--group", type=click.UUID, metavar="UUID", help="Followed as one with its like.")
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
    """Give a job something to do, and print the id of the execution that will do it.

    With --key it merges into what is PENDING under that key: the newest payload, the greatest
    watermark. A --watermark alone prints no id where the work has come that far already. A pause
    does not refuse it: it waits.
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
        echo(f"{name}: the work has come that far already", err=True)
    else:
        echo(str(made))
