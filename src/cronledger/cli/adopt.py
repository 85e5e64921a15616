"""`cronledger adopt`: move an observed job to replicas at one instant, or back."""

from dataclasses import asdict

import click

from cronledger.cli import complete
from cronledger.cli.session import session
from cronledger.cli.show import echo, json_option, print_result, read_instant, unknown_job
from cronledger.explain.adopting import adoption
from cronledger.rules import zones


@click.command()
@click.argument("name", metavar="JOB", shell_complete=complete.jobs)
@click.option(
    "--at", "time", metavar="TIME", required=True,
    help="The first plan_time of the new side, or a time after the last one of the old side.",
)  # fmt: skip
@click.option("--back", is_flag=True, help="Return the job to the other scheduler.")
@click.option("--reason", help="Reason, shown in the history of the job.")
@click.option("--dry-run", is_flag=True, help="Show the switch, and change nothing.")
@json_option
def adopt(
    *, name: str, time: str, back: bool, reason: str | None, dry_run: bool, as_json: bool
) -> None:
    """Move the observed job JOB to replicas: they fire its plan_times from TIME on.

    The job is declared with `observed = true` and a handler. The other scheduler keeps the
    plan_times before TIME. From TIME on, `cronledger observe` does not start the command, so the
    entries of the other scheduler may stay. A time without an offset is read in the time zone of
    the job. With --back, the other scheduler fires the plan_times from TIME on again. To withdraw
    a switch that has not happened yet, request the opposite one with the same TIME or an earlier
    one.
    """
    with session() as ledger:
        row = ledger.reports.job(name)
        if row is None:
            raise unknown_job(name, ledger.reports)
        try:
            at = read_instant(time, "--at", zones.named(row["timezone"]))
            call = adoption(ledger.reports, row, at, back=back, reason=reason, preview=dry_run)
        except ValueError as error:
            raise click.UsageError(f"job {name!r}: {error}") from None
        found = ledger.send(call)
    if found.warning is not None:
        echo(f"Warning: {found.warning}", err=True)
    print_result(asdict(found), str(found), as_json)
