"""`cronledger progress`: report the progress of the execution whose command calls it."""

import os
import re
from uuid import UUID

import click

from cronledger.rules import progress as rules
from cronledger.rules.problems import Exit

_TOKEN = re.compile(r"[0-9a-fA-F-]{32,36}")
NUMBER = click.IntRange(0, rules.MOST)


@click.command()
@click.argument("done", type=NUMBER)
@click.argument("total", type=NUMBER, required=False)
@click.argument("text", required=False)
def progress(*, done: int, total: int | None, text: str | None) -> None:
    """Report that DONE of TOTAL units of work are done. TEXT describes what the command is doing.

    Call this in the command of a job. Without the setting database_url, as in a command that a
    replica runs, it prints a line that the replica reads from the output of the command:

      ::cronledger progress 40/100 text

    A script may print this line itself. In both cases, the output must reach the replica. With
    database_url, as for a worker, it calls the SQL function progress() with
    CRONLEDGER_EXECUTION_ID and CRONLEDGER_LEASE_TOKEN instead. Replicas do not pass on
    CRONLEDGER_DATABASE_URL.

    A DONE above TOTAL counts as TOTAL. TEXT is cut after 200 characters.

    Exit status: 1 if the lease is lost, and 2 outside of an execution.
    """
    names = ("CRONLEDGER_EXECUTION_ID", "CRONLEDGER_LEASE_TOKEN")
    execution, token = (os.environ.get(name, "") for name in names)
    if not execution.isdecimal() or not _TOKEN.fullmatch(token):
        raise click.UsageError(
            f"{' or '.join(names)} is not set or not valid, so no execution runs this command; call"
            " it in the command of a job, or set both variables to the values of a claim"
        )
    found = rules.checked(done, total, text)
    from cronledger.cli.session import session, settings_here
    from cronledger.ledger import calls

    if settings_here().database_url is None:
        click.echo(_line(found))
        return
    with session() as ledger:
        result = ledger.send(calls.progress(int(execution), UUID(token), found))
    if result == "lost":
        click.echo(f"Error: the lease of execution {execution} is lost; stop the work", err=True)
        raise click.exceptions.Exit(Exit.FAILED)


def _line(found: rules.Progress) -> str:
    total = "" if found.total is None else f"/{found.total}"
    text = re.sub(r"\s+", " ", found.text or "").strip()
    return f"::cronledger progress {found.done}{total} {text}".rstrip()
