"""`cronledger accept-database`: make a restored or cloned database the one of the ledger."""

from dataclasses import asdict

import click

from cronledger.cli.session import requester, session
from cronledger.cli.show import echo, json_option, named, print_json
from cronledger.ledger import identity
from cronledger.ledger.transactions import transaction


@click.command("accept-database")
@click.option("--skip-missed", is_flag=True, help="Do not run work that was due before now.")
@click.option(
    "--catch-up", is_flag=True, help="Apply each job's catch_up to plan_times before now."
)
@json_option
def accept_database(*, skip_missed: bool, catch_up: bool, as_json: bool) -> None:
    """Allow replicas to work in a restored or cloned database.

    Use --skip-missed for a copy whose original stays in use. Plan_times that were due are recorded
    as missed, and waiting executions are CANCELLED. RUNNING executions end as CANCELLED once their
    leases have expired.

    Use --catch-up for a database that replaces the original. Policies such as catch_up treat the
    time since the copy was made as an outage.

    Paused jobs stay paused in both cases. In the ledger's own database, --catch-up confirms a
    failover, about which `cronledger doctor` warns until then.
    """
    if skip_missed == catch_up:
        raise click.UsageError("use exactly one of --skip-missed and --catch-up")

    with session() as ledger, transaction(ledger.connection, ledger.settings.lock_timeout):
        schema = ledger.settings.schema_name
        done = identity.accept(ledger.connection, schema, skip_missed=skip_missed, by=requester())
    if as_json:
        print_json({"accepted": done.why is not None, **asdict(done)})
    elif done.why is None:
        echo("this is already the database of the ledger; no job was changed")
    else:
        echo(f"accepted; it was a different database: {done.why}")
    if skip_missed and done.why is not None and not as_json:
        echo(
            f"jobs whose missed plan_times are skipped: {done.jobs}; waiting executions cancelled: "
            f"{done.cancelled}; running executions requested to end: {done.asked_to_end}"
        )


@click.command("refuse-database")
@json_option
def refuse_database(*, as_json: bool) -> None:
    """Plan and start nothing in this database until it is accepted.

    Use this in a copy that looks like a failover: one that was promoted, or recovered to a point,
    within ten minutes. RUNNING executions continue. `cronledger accept-database` decides what
    happens then.
    """
    with session() as ledger:
        refused = ledger.call("refuse_database")
    if as_json:
        print_json({"refused": refused})
    elif refused:
        echo(
            named("refused: nothing is planned or started here until `cronledger accept-database`")
        )
    else:
        echo("this database is refused already, or is not the ledger's own; nothing was changed")
