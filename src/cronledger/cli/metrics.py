"""`cronledger metrics`: print or serve the metrics of the whole ledger."""

import click


@click.command()
@click.option(
    "--listen", metavar="HOST:PORT",
    help="Serve /metrics on HOST:PORT or [IPv6]:PORT until a stop signal. Port 0: any free port.",
)  # fmt: skip
@click.option(
    "--jobs", "job_limit", type=click.IntRange(1, 100_000), metavar="N",
    help="Maximum number of jobs with series of their own. Default: the setting metrics_jobs.",
)  # fmt: skip
def metrics(*, listen: str | None, job_limit: int | None) -> None:
    """Print the metrics of the ledger once, in the text format of Prometheus, or serve them.

    The metrics describe the whole ledger, so each ledger needs only one source of them: this
    command, or /metrics of `cronledger web`. Membership in cronledger_viewer is enough.

    With --listen, the first line on standard error is the address, and values are at most 15 s
    old. While the database is away, the command serves only `cronledger_up 0` and the version.
    Anyone who can reach the address can read the names, schedules and owners of the jobs.

    Exit codes: 0 after a stop signal, or after the metrics were printed; 1 if the address is in
    use; 2 if the database refuses the connection; 3 if the database cannot be reached, without
    --listen; 4 if the schema is out of date. The command needs the extra `cronledger[metrics]`.
    """
    from cronledger.extras import require_library

    require_library("prometheus_client", "metrics", "cronledger metrics")
    import asyncio

    from cronledger.cli.session import database, settings_here
    from cronledger.cli.show import echo
    from cronledger.ledger.access import Access
    from cronledger.ledger.migrate import check_for_reader
    from cronledger.logs.output import configure
    from cronledger.metrics import ledger_server

    address = None if listen is None else _address(listen)
    settings = settings_here()
    limit = settings.metrics_jobs if job_limit is None else job_limit
    name = settings.ledger_name
    with database(settings) as url:
        access, schema = Access.from_settings(settings, url), settings.schema_name
        if address is None:
            text = asyncio.run(
                ledger_server.read_once(access, schema, job_limit=limit, ledger=name)
            )
            click.echo(text, nl=False)
            return
        configure(settings.log_format, settings.log_level)
        check_for_reader(url, schema)
        host, port = address
        asyncio.run(
            ledger_server.serve(
                access, schema, job_limit=limit, ledger=name, host=host, port=port,
                started=lambda shown: echo(f"cronledger metrics: {shown}", err=True),
            )
        )  # fmt: skip


def _address(listen: str) -> tuple[str, int]:
    """Return host and port. Raises BadParameter for an address of another form."""
    from cronledger.rules.problems import RefusedError
    from cronledger.settings import check_listen

    try:
        host, _, port = check_listen(listen).rpartition(":")
        if host == "unix":
            raise RefusedError("is a path", "use HOST:PORT or [IPv6]:PORT")
    except RefusedError as error:
        text = f"{listen!r} {error.problem}; {error.remedy}"
        raise click.BadParameter(text, param_hint="--listen") from None
    return host.removeprefix("[").removesuffix("]"), int(port)
