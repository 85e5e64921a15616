"""`cronledger run`: run a replica until it receives a stop signal."""

import re
from datetime import timedelta
from typing import Any

import click

from cronledger.cli import complete
from cronledger.cli.parameters import BIGINT, Duration
from cronledger.cli.session import denials, requester, settings_here
from cronledger.cli.source import Source, find_source
from cronledger.process.daemon import DaemonOptions
from cronledger.rules.limits import NAME_PATTERN
from cronledger.sources.apply import ApplyRequest


@click.command()
@click.argument("sources", metavar="[APP|FILE]", nargs=-1, shell_complete=complete.sources)
@click.option(
    "--queue", "queues", multiple=True, metavar="NAME", shell_complete=complete.queues,
    help="Queue to take work from; repeatable.",
)  # fmt: skip
@click.option(
    "--slots", type=click.IntRange(1, 10_000), help="Number of executions to run at once."
)
@click.option("--summary", is_flag=True, help="Print a summary of the executions at the end.")
@click.option(
    "--no-migrate", is_flag=True, help="Do not migrate; exit 4 if the schema is out of date."
)
@click.option(
    "--deploy", type=BIGINT, help="Version of the deployment; an older version changes no jobs."
)
@click.option(
    "--force",
    is_flag=True,
    help="Apply the jobs even after a newer deploy, or if the source belongs to another host.",
)
@click.option("--source", "name", metavar="NAME", help="Name of the source [default: path or APP].")
@click.option(
    "--wait",
    "patience",
    type=Duration(),
    metavar="DURATION",
    default="60s",
    show_default=True,
    help="How long to wait at the start for a database that is unreachable.",
)
def run(
    *,
    sources: tuple[str, ...],
    queues: tuple[str, ...],
    slots: int | None,
    summary: bool,
    no_migrate: bool,
    deploy: int | None,
    force: bool,
    name: str | None,
    patience: timedelta,
) -> None:
    """Run a replica until it receives a stop signal.

    FILE ends with .toml, and APP is package.module:app. The replica checks the jobs of this source,
    applies them to the ledger, and runs them and all other jobs of its queues that it can run.
    Without an argument, the source is ./cronledger.toml. If that file does not exist, the replica
    runs the jobs that are in the ledger.

    Give the source a name with --source. Hosts that share a file use one name for it, and
    files that differ have different names. Without a name, the source is the path of the file, or
    package.module:app, and only the host that applied it first may change its jobs.

    The first SIGTERM or Ctrl-C stops claiming and waits for running work. The second stops the
    running work, and the third ends the process.
    """
    if len(sources) > 1:
        raise click.UsageError(
            f"a replica has one source, and {len(sources)} are given ({', '.join(sources)}); start "
            "a replica for each of them, or apply files whose jobs are commands, SQL or HTTP with "
            "`cronledger jobs apply FILE`: each replica runs them"
        )
    found = find_source(next(iter(sources), None), name=name, deploy=deploy)
    settings = found.settings if found is not None else settings_here()
    settings = settings.model_copy(update=_overrides(queues, slots))
    url = settings.require_database()

    daemon = DaemonOptions(
        settings=settings,
        migrate=not no_migrate,
        summary=summary,
        patience=patience,
        **({} if found is None else _declared(found, force=force, by=requester())),
    )
    with denials(settings, url):
        code = daemon.run()
    raise click.exceptions.Exit(code)


def _overrides(queues: tuple[str, ...], slots: int | None) -> dict[str, Any]:
    """Return the settings that the options override."""
    given = {"queues": _names(queues) or None, "slots": slots}
    return {name: value for name, value in given.items() if value is not None}


def _declared(source: Source, *, force: bool, by: str) -> dict[str, Any]:
    """Return the options of a daemon that come from its source."""
    return {
        "request": ApplyRequest(
            jobs=source.jobs,
            channels=source.channels,
            source=source.name,
            deploy=source.deploy,
            force=force,
            by=by,
            calendars=source.calendars,
            host=source.host,
        ),
        "warnings": source.warnings,
        "apps": source.apps,
        "functions": source.functions,
    }


def _names(queues: tuple[str, ...]) -> tuple[str, ...]:
    for queue in queues:
        if not re.fullmatch(NAME_PATTERN, queue):
            raise click.BadParameter(
                f"invalid queue name {queue!r}; use 1 to 200 characters without control characters",
                param_hint="--queue",
            )
    return queues
