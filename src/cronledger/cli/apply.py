"""`cronledger jobs apply` and `cronledger jobs diff`: apply a source, or show what that changes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from cronledger.cli import complete
from cronledger.cli.parameters import BIGINT
from cronledger.cli.session import database, requester
from cronledger.cli.show import cell, echo, json_option, print_json
from cronledger.cli.source import load_source
from cronledger.rules.problems import Exit
from cronledger.sources import apply as applying
from cronledger.sources import diff as comparing


def _source_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        json_option,
        click.option(
            "--source", "name", metavar="NAME", help="Name of the source [default: path or APP]."
        ),
        click.option(
            "--force", is_flag=True, help="Apply even if a newer deploy was applied before."
        ),
        click.option(
            "--deploy", type=BIGINT, help="Version of the deployment; an older version is refused."
        ),
        click.argument("source", metavar="FILE|APP", shell_complete=complete.sources),
    ):
        command = option(command)
    return command


@click.command()
@_source_options
@click.option("--dry-run", is_flag=True, help="Do what `jobs diff` does.")
@click.pass_context
def apply(
    context: click.Context, *, source: str, deploy: int | None, force: bool, name: str | None,
    as_json: bool, dry_run: bool,
) -> None:  # fmt: skip
    """Apply the jobs of a file (….toml) or an App (package.module:app) to the ledger.

    Jobs that this source declared before and no longer declares are retired. If one job is invalid,
    none is applied. `cronledger jobs diff` shows the changes without applying them.

    The name of a source is the absolute path of its file. Two hosts with different files at the
    same path therefore retire each other's jobs; give each file its own name with --source. Also
    set a name if the path changes with each deployment.

    Exit status: 1 if a newer deploy was applied before.
    """
    if dry_run:
        context.invoke(diff, source=source, deploy=deploy, force=force, name=name, as_json=as_json)
        return

    with _loaded(source, name, deploy) as arguments:
        applied = applying.apply(**arguments, force=force, by=requester())
    if as_json:
        print_json(asdict(applied))
    elif applied.refused is None:
        for word in ("added", "changed", "retired"):
            for job in getattr(applied, word):
                echo(f"{word} {_named(job, job in applied.channels)}")
        echo(f"unchanged: {applied.unchanged}")
    if applied.refused is not None:
        echo(f"Error: the source was not applied: {applied.refused}", err=True)
        raise click.exceptions.Exit(Exit.FAILED)


@click.command()
@_source_options
@click.option(
    "--days",
    type=click.IntRange(1, 366),
    default=7,
    show_default=True,
    help="Compare the plan_times of this many days.",
)
def diff(
    *, source: str, deploy: int | None, force: bool, name: str | None, days: int, as_json: bool
) -> None:
    """Show what `jobs apply` would change, without applying it.

    The output lists the jobs that are added, changed and retired, and the plan_times of the next
    days that appear (+) and disappear (-). The plan_times are those of the first scope of the job.
    Plan_times during a pause are left out.

    Exit status: 1 if a newer deploy was applied before.
    """
    with _loaded(source, name, deploy) as arguments:
        found = comparing.diff(**arguments, force=force, days=days)
    changes = [asdict(change) for change in found.changes]
    if as_json:
        print_json({
            "after": found.after, "through": found.through, "jobs": changes,
            "unchanged": found.unchanged, "refused": found.refused,
        })  # fmt: skip
    else:
        for change in changes:
            _print_change(change, days)
        echo(f"unchanged: {found.unchanged}")
    if found.refused is not None:
        echo(f"Error: the source would not be applied: {found.refused}", err=True)
        raise click.exceptions.Exit(Exit.FAILED)


@contextmanager
def _loaded(source: str, name: str | None, deploy: int | None) -> Iterator[dict[str, Any]]:
    """Load a source, and print its warnings. Yield the arguments that `apply` and `diff` share."""
    loaded = load_source(source, name=name, deploy=deploy)
    for warning in loaded.warnings:
        echo(f"Warning: {warning}", err=True)
    with database(loaded.settings) as url:
        yield {
            "url": url, "schema": loaded.settings.schema_name, "source": loaded.name,
            "jobs": loaded.jobs, "deploy": loaded.deploy,
        }  # fmt: skip


def _named(job: str, is_channel: bool) -> str:
    return f"channel {job.removeprefix('alerts.')}" if is_channel else job


def _print_change(change: dict[str, Any], days: int) -> None:
    echo(f"{change['change']} {_named(change['job'], change['channel'] is not None)}")
    for name, (before, after) in change["fields"].items():
        # All fields of a new job differ, and are in its source.
        if change["change"] == "changed":
            echo(f"    {name}: {cell(before) or 'none'} -> {cell(after) or 'none'}")
    for sign, side in (("-", "disappear"), ("+", "appear")):
        count, first = change[side]["count"], change[side]["first"]
        if count:
            some = ", ".join(cell(instant) for instant in first[:3])
            more = ", …" if count > len(first[:3]) else ""
            echo(f"    {sign} {count} in {days} d: {some}{more}")
