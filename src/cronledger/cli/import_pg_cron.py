"""`cronledger import pg_cron`: convert the jobs of pg_cron, or report what they did."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import click

from cronledger.cli.importing import finish, observe_option, output_options, valid_zone
from cronledger.cli.ledgers import refuse_choice
from cronledger.cli.show import echo
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
@click.option(
    "--history", is_flag=True, help="Write no file: report the runs of observed jobs to the ledger."
)
@click.option("--source", metavar="NAME", help="With --history: only jobs of this source.")
@click.pass_context
def import_pg_cron(
    context: click.Context,
    *,
    url: str,
    output: str | None,
    force: bool,
    observe: bool,
    timezone: str | None,
    database: str | None,
    as_user: bool,
    history: bool,
    source: str | None,
) -> None:
    """Convert the jobs of pg_cron to a cronledger.toml.

    It reads the table cron.job, and writes nothing to the database. A role that is not a superuser
    sees only its own jobs. Only the current user can read the file of --output.

    With --observe, pg_cron keeps its jobs. The output contains observed jobs. Their runs are
    reported with --history, or by commands that the comments of the jobs contain.

    With --history, it reads the table cron.job_run_details instead, and reports the runs of the
    last 7 days to the ledger, with their times and messages. The jobs are those that are or were
    observed and have the label pg_cron, which contains their jobid. Each run is reported once,
    however often the command is called. `cronledger --ledger NAME import pg_cron --history` reports
    to the ledger NAME of the ledgers file.

    Exit status: 0 if every job has an equivalent, 1 if a part of one has none, or with --history if
    pg_cron does not have the job or the job has scopes, 2 for a usage error, 3 if a database cannot
    be reached.
    """
    if history:
        given = [
            f"--{name.replace('_', '-')}" for name, value in context.params.items()
            if value and name not in ("url", "history", "source")
        ]  # fmt: skip
        if given:
            raise click.UsageError(f"--history writes no file; omit {', '.join(given)}")
        _report_history(url, source)
        return
    if source is not None:
        raise click.UsageError("--source needs --history; add --history, or omit --source")
    refuse_choice("import pg_cron", ", or add --history")
    import psycopg

    from cronledger.sources.pg_cron import ROWS, ZONE, Options, Row, convert

    with _refusing(), psycopg.connect(url, client_encoding="UTF8") as connection:
        connection.read_only = True
        zone, here = connection.execute(ZONE).fetchall()[0]
        rows = [Row(*row) for row in connection.execute(ROWS)]
    settings = OfflineSettings.load()
    options = Options(
        database or here, valid_zone(timezone or zone), as_user, settings.web_redact, observe,
        settings.schema_name,
    )  # fmt: skip
    found = convert(rows, options, source=f"cron.job of {here}")
    finish(found, output, force=force, observe=observe)


def _report_history(url: str, source: str | None) -> None:
    import psycopg

    from cronledger.cli.session import session
    from cronledger.ledger import calls
    from cronledger.sources.pg_cron_history import LABEL, History

    with session() as ledger, ExitStack() as stack:
        found = ledger.reports.pg_cron_jobs(source)
        jobs = [job for job in found if job["has_global"]]
        if not found:
            raise click.UsageError(
                f"no observed job{f' of source {source!r}' if source else ''} has the label "
                f"{LABEL}; apply the file of `cronledger import pg_cron --observe`"
            )
        with _refusing():
            connection = stack.enter_context(psycopg.connect(url, client_encoding="UTF8"))
            connection.read_only = True
            history = History(connection, jobs, ledger.reports.now)
        if not history.is_recorded:
            raise click.UsageError(
                "--from: pg_cron records no runs; set cron.log_run = on, and restart the server"
            )
        reported = 0
        for runs in history.batches():
            columns = zip(*runs, strict=True)
            names = ("jobs", "run_keys", "started", "ended", "errors", "outputs")
            params = {"source": LABEL, **dict(zip(names, map(list, columns), strict=True))}
            reported += ledger.send(calls.report("call_report_runs", params))[0]["reported"]
    echo(f"{len(jobs)} job{'' if len(jobs) == 1 else 's'}, new reports: {reported}")
    for name, jobid in history.unknown.items():
        echo(
            f"job {name!r}: pg_cron has no job {jobid} that this role may see; change the label "
            f"{LABEL}, or remove the job",
            err=True,
        )
    scoped = [job["name"] for job in found if not job["has_global"]]
    for name in scoped:
        echo(
            f"job {name!r}: its runs are not reported, because it has no scope global/global; "
            f"remove its scopes, or its label {LABEL}",
            err=True,
        )
    if history.unknown or scoped:
        sys.exit(1)


@contextmanager
def _refusing() -> Iterator[None]:
    """Raise UsageError for a database without pg_cron, or whose tables the role may not read."""
    import psycopg

    try:
        yield
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
        raise click.UsageError(
            f"--from: {error.diag.message_primary}; use the database that cron.database_name has"
        ) from None
    except psycopg.ProgrammingError as error:
        raise click.UsageError(f"--from: {str(error).strip()}") from None
