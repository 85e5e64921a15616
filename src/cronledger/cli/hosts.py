"""`cronledger hosts`: list, retire."""

import click

from cronledger.cli.listing import Listing, Printer, listed
from cronledger.cli.session import session
from cronledger.cli.show import json_option, print_result

LISTING = Listing(
    {
        "name": "HOST",
        "state": "STATE",
        "labels": "LABELS",
        "runners": "RUNNERS",
        "jobs": "JOBS",
        "present_from": "SINCE",
        "present_through": "PRESENT UNTIL",
        "retired_at": "RETIRED",
        "retired_by": "BY",
    },
    drop=("present_from", "retired_by", "retired_at", "labels"),
    none="there are no hosts, because no replica has run",
)


@click.group()
def hosts() -> None:
    """List and retire hosts."""


@hosts.command("list")
@listed(LISTING)
def list_hosts(*, show: Printer) -> None:
    """List the hosts on which replicas have run, or that a job lists.

    A `present` host has checked in lately, an `absent` one has not. JOBS counts the jobs that run
    on the host as one of several.
    """
    with session() as ledger:
        rows, now = ledger.reports.hosts(), ledger.reports.now()
    show(rows, now)


@hosts.command()
@click.argument("name", metavar="HOST")
@json_option
def retire(*, name: str, as_json: bool) -> None:
    """Retire a host that is gone, so that jobs with `every` no longer run on it.

    Hosts that have not checked in for `hosts_retire_after` retire by themselves. A check-in brings
    a host back.
    """
    with session() as ledger:
        fresh = ledger.call("retire_host", host=name)
    text = "is retired" if fresh else "was retired already"
    print_result({"host": name, "retired": fresh}, f"{name} {text}", as_json)
