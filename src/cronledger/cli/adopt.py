"""`cronledger adopt`: move an observed job to replicas at one instant, or back."""

import click

from cronledger.cli import complete
from cronledger.cli.session import session
from cronledger.cli.show import echo, json_option, print_result, read_instant, unknown_job
from cronledger.explain.adopting import switch
from cronledger.rules import zones
from cronledger.rules.cron import CronError
from cronledger.rules.instants import iso


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
    entries of the other scheduler may stay. Without an offset, TIME is read in the time zone of the
    job. With --back, the other scheduler fires the plan_times from TIME on again; before the
    adoption, --back withdraws it.
    """
    with session() as ledger:
        row = ledger.reports.job(name)
        if row is None:
            raise unknown_job(name, ledger.reports)
        try:
            at = read_instant(time, "--at", zones.named(row["timezone"]))
            found = switch(ledger.reports, row, at)
        except (CronError, ValueError) as error:
            raise click.UsageError(f"job {name!r}: {error}") from None
        if found is None:
            raise click.UsageError(
                f"job {name!r}: it has no plan_time from {iso(at)} on; use an earlier --at"
            )
        now = ledger.reports.now()
        revision = None
        if not dry_run:
            revision = ledger.call("adopt", job=name, at=found.at, back=back, reason=reason)
    old, new = ("replicas", "the other scheduler")[:: 1 if back else -1]
    last = None if found.last is None or found.last <= now else found.last
    if last is None:
        echo(
            f"Warning: no plan_time lies before {iso(found.first)}, so the wrappers of the other "
            "scheduler learn of the switch only then",
            err=True,
        )
    text = f"{name}: {new} fire{'s' * back} it from {iso(found.first)} on"
    text += "" if last is None else f"; its last plan_time of {old} is {iso(last)}"
    result = {"job": name, "revision": revision, "back": back, "last": last, "first": found.first}
    print_result({**result, "at": found.at}, text, as_json)
