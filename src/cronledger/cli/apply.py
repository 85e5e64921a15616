"""`cronledger jobs apply` and `cronledger jobs diff`: a source into the ledger, and what that would
do."""

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
            help=f"Compare the occurrences of that many days [default: {DAYS}].",
        ),
        click.option(
            "--source", "name", metavar="NAME", help="Name of the source [default: FILE or APP]."
        ),
        click.option("--force", is_flag=True, help="Even if a newer deploy was applied."),
        click.option("--deploy", type=BIGINT, help="Ordered version; an older one does not apply."),
        click.argument("source", metavar="FILE|APP"),
    ):
        command = option(command)
    return command


@click.command()
@click.option("--dry-run", is_flag=True, help="Only say what it would do, as `jobs diff` does.")
@_source_options
def apply(*, source: str, dry_run: bool, **given: Any) -> None:
    """Make the jobs of the ledger those of a file (….toml) or an App (package.module:app).

    Jobs that this source had before and has no longer retire. All or nothing: one bad job, and none
    is applied. A path is taken from / on, so name the source when its place changes.

    Exit status: 1 when a newer deploy was applied before.
    """
    if dry_run:
        _compare(source, **given)
    elif given.pop("days") is not None:
        raise click.UsageError("--days goes with --dry-run")
    else:
        _apply(source, **given)


@click.command()
@_source_options
def diff(*, source: str, **given: Any) -> None:
    """Show what `jobs apply` would do: jobs added, changed and retired, and which occurrences of
    the next days appear and disappear. Writes nothing.

    Occurrences are those of a job's first scope; a pause is heeded.

    Exit status: 1 when a newer deploy was applied before.
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
        echo(f"Error: it would not be applied: {found.refused}", err=True)
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
        # A new job differs from nothing in all it has.
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
        echo(f"Error: nothing was applied: {applied.refused}", err=True)
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
