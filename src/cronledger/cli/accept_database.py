"""`cronledger accept-database`: a restored or cloned database becomes the ledger's own."""

from dataclasses import asdict

import click

from cronledger.cli.show import echo, json_option, print_json


@click.command("accept-database")
@click.option("--skip-missed", is_flag=True, help="What was due until now does not run here.")
@click.option("--catch-up", is_flag=True, help="The catch_up of each job decides what still runs.")
@json_option
def accept_database(*, skip_missed: bool, catch_up: bool, as_json: bool) -> None:
    """Let replicas work in a restored or cloned database.

    With --skip-missed, for a copy whose original goes on: plan_times that were due are recorded as
    missed, executions that waited are CANCELLED, and those that were RUNNING end as CANCELLED once
    their leases have run out. With --catch-up, for what takes the place of the original: catch_up
    and the other policies treat the time since as an outage. Jobs that are paused stay so.
    """
    if skip_missed == catch_up:
        raise click.UsageError("say one of --skip-missed and --catch-up")
    from cronledger.cli.session import requester, session
    from cronledger.ledger import identity
    from cronledger.ledger.database import transaction

    with session() as ledger, transaction(ledger.connection, ledger.settings.lock_timeout):
        schema = ledger.settings.schema_name
        done = identity.accept(ledger.connection, schema, skip_missed=skip_missed, by=requester())
    if as_json:
        print_json({"accepted": done.why is not None, **asdict(done)})
    elif done.why is None:
        echo("this is the ledger's own database; nothing was done")
    else:
        echo(f"accepted; it was another database: {done.why}")
    if skip_missed and done.why is not None and not as_json:
        echo(
            f"jobs whose missed plan_times are skipped: {done.jobs}; waiting executions cancelled: "
            f"{done.cancelled}; running ones asked to end: {done.asked_to_end}"
        )
