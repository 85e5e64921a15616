"""`cronledger sources`: list, rename."""

import click

from cronledger.cli.listing import Listing, Printer, listed
from cronledger.cli.session import session
from cronledger.cli.show import counted, json_option, print_result

LISTING = Listing(
    {
        "source": "SOURCE",
        "deploy": "DEPLOY",
        "jobs": "JOBS",
        "host": "HOST",
        "applied_at": "APPLIED",
        "applied_by": "BY",
    },
    drop=("applied_by",),
    none="there are no sources; `cronledger jobs apply` or `cronledger run` applies one",
)


@click.group()
def sources() -> None:
    """List the files and Apps that were applied; rename one that has moved."""


@sources.command("list")
@listed(LISTING)
def list_sources(*, show: Printer) -> None:
    """List the sources of jobs, with the deploy that was applied last."""
    with session() as ledger:
        rows, now = ledger.reports.sources(), ledger.reports.now()
    show(rows, now)


@sources.command()
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@json_option
def rename(*, old: str, new: str, as_json: bool) -> None:
    """Give the source OLD the name NEW, after its file or App has moved.

    Its jobs stay as they are, and the next `jobs apply` or `run` under the name NEW continues with
    them. The name of a file is its absolute path. A source that has jobs cannot be replaced.
    """
    with session() as ledger:
        moved = ledger.call("rename_source", old=old, new=new)
    text = f"{old} is renamed to {new}: {counted(moved, 'job')}"
    print_result({"old": old, "new": new, "jobs": moved}, text, as_json)
