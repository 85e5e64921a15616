"""`cronledger import pg_cron`: convert the jobs of pg_cron to a `cronledger.toml`."""

import click

from cronledger.cli.importing import finish, observe_option, output_options, valid_zone
from cronledger.settings import OfflineSettings


@click.command("pg_cron")
@click.option(
    "--from", "url", metavar="URL", required=True,
    help="Connection string of the database that has pg_cron.",
)  # fmt: skip
@output_options
@observe_option
@click.option(
    "--timezone", metavar="ZONE",
    help="Time zone of the schedules [default: cron.timezone of the server].",
)  # fmt: skip
@click.option(
    "--database", metavar="NAME", help="Database of the ledger [default: that of --from]."
)
@click.option("--as-user", is_flag=True, help="Run the SQL of each job as its role.")
def import_pg_cron(
    *,
    url: str,
    output: str | None,
    force: bool,
    observe: bool,
    timezone: str | None,
    database: str | None,
    as_user: bool,
) -> None:
    """Convert the jobs of pg_cron to a cronledger.toml.

    It reads the table cron.job, and writes nothing to the database. A role that is not a superuser
    sees only its own jobs. Only the current user can read the file of --output.

    With --observe, pg_cron keeps its jobs, and their commands report the runs. The output contains
    observed jobs, and the comment of each job has the SQL that changes its command.

    Exit status: 0 if every job has an equivalent, 1 if a part of one has none, 2 for a usage error,
    3 if the database cannot be reached.
    """
    import psycopg

    from cronledger.sources.pg_cron import ROWS, ZONE, Options, Row, convert

    try:
        with psycopg.connect(url, client_encoding="UTF8") as connection:
            connection.read_only = True
            zone, here = connection.execute(ZONE).fetchall()[0]
            rows = [Row(*row) for row in connection.execute(ROWS)]
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        raise click.UsageError(
            "--from: the database has no table cron.job; name the database that "
            "cron.database_name names"
        ) from None
    except psycopg.ProgrammingError as error:
        raise click.UsageError(f"--from: {str(error).strip()}") from None
    settings = OfflineSettings.load()
    options = Options(
        database or here, valid_zone(timezone or zone), as_user, settings.web_redact, observe,
        settings.schema_name,
    )  # fmt: skip
    found = convert(rows, options, source=f"cron.job of {here}")
    finish(found, output, force=force, observe=observe)
