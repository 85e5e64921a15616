"""`cronledger run`: a replica until it is told to stop."""

import re
from datetime import timedelta
from typing import Any

import click

from cronledger.cli.parameters import BIGINT, Duration


@click.command()
@click.argument("source", metavar="[APP|FILE]", required=False)
@click.option("--queue", "queues", multiple=True, metavar="NAME", help="Take work from this queue.")
@click.option("--slots", type=click.IntRange(1, 10_000), help="Executions to run at once.")
@click.option("--summary", is_flag=True, help="Print at the end what the ledger says of this run.")
@click.option("--no-migrate", is_flag=True, help="Leave the schema as it is; exit 4 if it lacks.")
@click.option("--deploy", type=BIGINT, help="Ordered version; an older one changes no jobs.")
@click.option("--force", is_flag=True, help="Apply the jobs even if a newer deploy was applied.")
@click.option("--source", "name", metavar="NAME", help="Name of the source [default: FILE or APP].")
@click.option(
    "--wait",
    "patience",
    type=Duration(),
    metavar="DURATION",
    default="60s",
    show_default=True,
    help="How long to wait for a database that does not answer at the start.",
)
def run(
    *,
    source: str | None,
    queues: tuple[str, ...],
    slots: int | None,
    summary: bool,
    no_migrate: bool,
    deploy: int | None,
    force: bool,
    name: str | None,
    patience: timedelta,
) -> None:
    """Run a replica until it is told to stop.

    FILE ends with .toml, APP is package.module:app. Its jobs are checked, then applied to the
    ledger, then run with all others that this replica can run. Without an argument:
    ./cronledger.toml if it is there, else what the ledger has.

    SIGTERM or Ctrl-C lets running work finish; a second one stops it, a third ends the process.
    """
    from cronledger.cli.session import denials, requester, settings_here
    from cronledger.cli.source import find_source

    found = find_source(source, name=name)
    settings = found.settings if found is not None else settings_here()
    over: dict[str, Any] = {}
    if queues:
        over["queues"] = _names(queues)
    if slots is not None:
        over["slots"] = slots
    url = settings.require_database()

    from cronledger.process.daemon import DaemonOptions

    declared: dict[str, Any] = {}
    if found is not None:
        declared = {
            "jobs": found.jobs,
            "source": found.name,
            "warnings": found.warnings,
            "apps": found.apps,
            "functions": found.functions,
        }
    given = deploy if deploy is not None else (found.deploy if found else None)
    daemon = DaemonOptions(
        settings=settings.model_copy(update=over),
        deploy=given,
        force=force,
        migrate=not no_migrate,
        summary=summary,
        patience=patience,
        by=requester(),
        **declared,
    )
    with denials(settings, url):
        code = daemon.run()
    raise click.exceptions.Exit(code)


def _names(queues: tuple[str, ...]) -> tuple[str, ...]:
    from cronledger.rules.model import NAME_PATTERN

    for queue in queues:
        if not re.fullmatch(NAME_PATTERN, queue):
            raise click.BadParameter(
                f"{queue!r} is no name of a queue; write 1 to 200 characters",
                param_hint="--queue",
            )
    return queues
