"""`cronledger jobs apply` and `cronledger jobs diff`: apply a source, or show what that changes."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from cronledger.cli.parameters import BIGINT
from cronledger.cli.show import cell, echo, json_option, print_json, without_secrets
from cronledger.rules.problems import Exit

if TYPE_CHECKING:
    from cronledger.cli.source import Source
    from cronledger.sources.apply import Applied
    from cronledger.sources.diff import Change

DAYS = 7


def _source_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        json_option,
        click.option(
            "--days",
            type=click.IntRange(1, 366),
            help=f"Compare the plan_times of this many days [default: {DAYS}].",
        ),
        click.option(
            "--source", "name", metavar="NAME", help="Name of the source [default: path or APP]."
        ),
        click.option(
            "--force", is_flag=True, help="Apply even if a newer deploy was applied before."
        ),
        click.option(
            "--deploy", type=BIGINT, help="Version of the deployment; an older version is refused."
        ),
        click.argument("source", metavar="FILE|APP"),
    ):
        command = option(command)
    return command


@click.command()
@click.option(
    "--dry-run", is_flag=True, help="Show the changes without applying them, as `jobs diff` does."
)
@_source_options
def apply(*, source: str, dry_run: bool, **given: Any) -> None:
    """Apply the jobs of a file (….toml) or an App (package.module:app) to the ledger.

    Jobs that this source declared before and no longer declares are retired. If one job is invalid,
    none is applied.

    The name of a source is the absolute path of its file. Two hosts with different files at the
    same path therefore retire each other's jobs; give each file its own name with --source. Also
    set a name if the path changes with each deployment.

    Exit status: 1 if a newer deploy was applied before.
    """
    if dry_run:
        _compare(source, **given)
    elif given.pop("days") is not None:
        raise click.UsageError("--days needs --dry-run; add --dry-run, or omit --days")
    else:
        _apply(source, **given)


@click.command()
@_source_options
def diff(*, source: str, **given: Any) -> None:
    """Show what `jobs apply` would change, without applying it.

    The output lists the jobs that are added, changed and retired, and the plan_times of the next
    days that appear (+) and disappear (-). They are those of the job's first scope, without those
    during a pause.

    Exit status: 1 if a newer deploy was applied before.
    """
    _compare(source, **given)


def _compare(
    source: str,
    *,
    deploy: int | None,
    force: bool,
    name: str | None,
    days: int | None,
    as_json: bool,
) -> None:
    from cronledger.cli.session import database
    from cronledger.cli.source import load_source
    from cronledger.sources import diff as sources

    loaded = load_source(source, name=name)
    _warn(loaded)
    with database(loaded.settings) as url:
        found = sources.diff(
            url,
            loaded.jobs,
            source=loaded.name,
            days=days or DAYS,
            schema=loaded.settings.schema_name,
            deploy=deploy if deploy is not None else loaded.deploy,
            force=force,
        )
    changes = [_shown(change) for change in found.changes]
    if as_json:
        print_json({
            "after": found.after, "through": found.through, "jobs": changes,
            "unchanged": found.unchanged, "refused": found.refused,
        })  # fmt: skip
    else:
        for change in changes:
            _print_change(change, days or DAYS)
        echo(f"unchanged: {found.unchanged}")
    if found.refused is not None:
        echo(f"Error: the source would not be applied: {found.refused}", err=True)
        raise click.exceptions.Exit(Exit.FAILED)


def _shown(change: "Change") -> dict[str, Any]:
    fields = {
        name: [without_secrets(value) if name == "target" and value else value for value in pair]
        for name, pair in change.fields.items()
    }
    return {
        "job": change.job,
        "change": change.what,
        "fields": fields,
        "appear": {"count": change.appear.count, "first": list(change.appear.first)},
        "disappear": {"count": change.disappear.count, "first": list(change.disappear.first)},
    }


def _print_change(change: dict[str, Any], days: int) -> None:
    echo(f"{change['change']} {change['job']}")
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


def _warn(loaded: "Source") -> None:
    for warning in loaded.warnings:
        echo(f"Warning: {warning}", err=True)


def _apply(
    source: str, *, deploy: int | None, force: bool, name: str | None, as_json: bool
) -> None:
    from cronledger.cli.session import database, requester
    from cronledger.cli.source import load_source
    from cronledger.sources import apply as sources

    loaded = load_source(source, name=name)
    _warn(loaded)
    with database(loaded.settings) as url:
        applied = sources.apply(
            url,
            loaded.jobs,
            source=loaded.name,
            schema=loaded.settings.schema_name,
            deploy=deploy if deploy is not None else loaded.deploy,
            force=force,
            by=requester(),
        )
    _report(applied, as_json)
    if applied.refused is not None:
        raise click.exceptions.Exit(Exit.FAILED)


def _report(applied: "Applied", as_json: bool) -> None:
    if applied.refused is not None:
        echo(f"Error: the source was not applied: {applied.refused}", err=True)
    if as_json:
        print_json(
            {
                "added": list(applied.added),
                "changed": list(applied.changed),
                "retired": list(applied.retired),
                "unchanged": applied.unchanged,
                "refused": applied.refused,
            }
        )
    elif applied.refused is None:
        for word in ("added", "changed", "retired"):
            for job in getattr(applied, word):
                echo(f"{word} {job}")
        echo(f"unchanged: {applied.unchanged}")
