"""`cronledger jobs apply` and `cronledger jobs diff`: apply a source, or show what that changes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from cronledger.cli import calendars, complete
from cronledger.cli.parameters import BIGINT
from cronledger.cli.session import database, requester
from cronledger.cli.show import cell, echo, json_option, print_json
from cronledger.cli.source import load_source
from cronledger.rules.calendar_changes import FiringChange, in_words
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
            "--force",
            is_flag=True,
            help="Apply even after a newer deploy, or if the source belongs to another host.",
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
@click.option(
    "--dry-run", is_flag=True, help="Show the changes as `jobs diff` does, and apply nothing."
)
@click.pass_context
def apply(
    context: click.Context, *, source: str, deploy: int | None, force: bool, name: str | None,
    as_json: bool, dry_run: bool,
) -> None:  # fmt: skip
    """Apply the jobs of a file (….toml) or an App (package.module:app) to the ledger.

    Jobs and channels that this source declared before and no longer declares are retired; calendars
    stay. If one job is invalid, none is applied. `cronledger jobs diff` shows the changes without
    applying them.

    Give the source a name with --source. Hosts that share a file use one name for it, and
    files that differ have different names. Without a name, the source is the path of the file, or
    package.module:app, and only the host that applied it first may change its jobs.

    Exit status: 1 if a newer deploy was applied before.
    """
    if dry_run:
        context.invoke(diff, source=source, deploy=deploy, force=force, name=name, as_json=as_json)
        return

    with _loaded(source, name, deploy) as arguments:
        applied = applying.apply(**arguments, force=force, by=requester())
    for warning in applied.warnings:
        echo(f"Warning: {warning}", err=True)
    if as_json:
        print_json({key: x for key, x in asdict(applied).items() if key != "warnings"})
    elif applied.refused is None:
        for calendar in applied.calendars:
            echo(f"set calendar {calendar}")
        for word in ("added", "changed", "retired"):
            for job in getattr(applied, word):
                echo(f"{word} {job}")
        for channel, word in applied.channels.items():
            echo(f"{word} channel {channel}")
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
    Plan_times during a pause are left out, and so are those on dates that a calendar excludes.

    It also lists the calendars that change, with their dates. Each job that uses one, also of
    another source, is listed with the number of its firings of this year and the next that the
    calendar moves or skips.

    Exit status: 1 if a newer deploy was applied before.
    """
    with _loaded(source, name, deploy) as arguments:
        found = comparing.diff(**arguments, force=force, days=days)
    for warning in found.warnings:
        echo(f"Warning: {warning}", err=True)
    changes = [asdict(change) for change in found.changes]
    if as_json:
        print_json({
            "after": found.after, "through": found.through,
            "calendars": [calendars.change(one) for one in found.calendars], "jobs": changes,
            "channels": [asdict(change) for change in found.channels],
            "unchanged": found.unchanged, "refused": found.refused,
        })  # fmt: skip
    else:
        for one in found.calendars:
            calendars.print_change(one)
        for change in changes:
            _print_change(change, days)
        for channel in found.channels:
            echo(f"{channel.change} channel {channel.channel}")
            if channel.change == "changed":
                echo(f"    settings: {cell(channel.before)} -> {cell(channel.after)}")
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
            "jobs": loaded.jobs, "channels": loaded.channels, "deploy": loaded.deploy,
            "calendars": loaded.calendars, "host": loaded.host,
        }  # fmt: skip


def _print_change(change: dict[str, Any], days: int) -> None:
    echo(f"{change['change']} {change['job']}")
    for name, (before, after) in change["fields"].items():
        # All fields of a new job differ, and are in its source.
        if change["change"] == "changed":
            echo(f"    {name}: {cell(before) or 'none'} -> {cell(after) or 'none'}")
    for year in change["calendar_firings"]:
        echo(f"    {in_words(FiringChange(**year), change['on_excluded'])}")
    for sign, side in (("-", "disappear"), ("+", "appear")):
        count, first = change[side]["count"], change[side]["first"]
        if count:
            some = ", ".join(cell(instant) for instant in first[:3])
            more = ", …" if count > len(first[:3]) else ""
            echo(f"    {sign} {count} in {days} d: {some}{more}")
