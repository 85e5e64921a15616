"""`cronledger skip` and `cronledger planned-skips`: firings that an operator decided not to run."""

from collections.abc import Sequence
from datetime import datetime

import click

from cronledger.cli import complete
from cronledger.cli.listing import Listing, Printer, listed
from cronledger.cli.session import Session, session
from cronledger.cli.show import counted, json_option, print_result, read_instant, unknown_job
from cronledger.explain.skipping import MOST, Skipping, skipping
from cronledger.ledger.reports import Row
from cronledger.rules import zones
from cronledger.rules.cron import CronError
from cronledger.rules.instants import iso

LISTING = Listing(
    {
        "id": "ID",
        "job_name": "JOB",
        "scope": "SCOPE",
        "from_plan_time": "FROM",
        "through_plan_time": "THROUGH",
        "state": "STATE",
        "skipped": "SKIPPED",
        "reason": "REASON",
        "requested_by": "BY",
        "created_at": "PLANNED",
    },
    drop=("created_at", "scope", "requested_by", "skipped"),
    none="no firing is to be skipped; `cronledger skip` skips one, and --all lists former ones",
)


@click.command()
@click.argument("name", metavar="JOB", shell_complete=complete.jobs)
@click.argument("time", metavar="TIME")
@click.option("--through", metavar="ISO", help="Skip all firings from TIME through this one.")
@click.option(
    "--scope", metavar="ID", shell_complete=complete.scopes,
    help="Skip it only in this scope [default: in all].",
)  # fmt: skip
@click.option("--reason", help="Reason, shown by `why` and in listings. Required without --undo.")
@click.option("--undo", is_flag=True, help="Withdraw the planned skip that contains TIME.")
@json_option
def skip(
    *,
    name: str,
    time: str,
    through: str | None,
    scope: str | None,
    reason: str | None,
    undo: bool,
    as_json: bool,
) -> None:
    """Skip a coming firing of a job, in all its scopes or in one.

    TIME is a plan_time of the job, as `cronledger next JOB` prints it. A time without an offset is
    read in the time zone of the job. A firing that planning has reached can no longer be skipped.
    With --undo, the firings run again, except for those that planning has reached.
    """
    if undo and (reason is not None or through is not None):
        raise click.UsageError("--undo needs neither --reason nor --through; omit them")
    if not undo and reason is None:
        raise click.UsageError("--reason is missing; state why the firing is skipped")
    with session() as ledger:
        row = ledger.reports.job(name)
        if row is None:
            raise unknown_job(name, ledger.reports)
        try:
            zone = zones.named(row["timezone"])
        except CronError as error:
            raise click.UsageError(f"job {name!r}: {error}") from None
        first = read_instant(time, "TIME", zone)
        if undo:
            _undo(ledger, row, first, scope, as_json)
            return
        last = first if through is None else read_instant(through, "--through", zone)
        try:
            found = skipping(ledger.reports, row, first, last, scope)
        except CronError as error:
            raise click.UsageError(f"job {name!r}: {error}") from None
        if not found.firings:
            raise click.UsageError(_nothing(name, found, first, last))
        made = ledger.call(
            "skip", job=name, plan_time=first, reason=reason, through=last, scope_kind=None,
            scope_id=scope,
        )  # fmt: skip
    count = len(found.firings)
    number = f"more than {MOST:,} firings" if count > MOST else counted(count, "firing")
    where = "" if scope is None else f" of {scope}"
    text = f"{name}: {number}{where} from {iso(first)} will be skipped (planned skip {made})"
    result = {"job": name, "id": made, "from": first, "through": last, "scope": scope}
    print_result(result, text, as_json)


def _undo(ledger: Session, row: Row, at: datetime, scope: str | None, as_json: bool) -> None:
    name = row["name"]
    found = [
        one for one in ledger.reports.planned_skips(name)
        if one["from_plan_time"] <= at <= one["covered_through"]
        and (scope is None or one["scope_id"] in (None, scope))
    ]  # fmt: skip
    if not found:
        raise click.UsageError(
            f"job {name!r}: no planned skip contains {iso(at)}; `cronledger planned-skips` lists"
            " them"
        )
    if len(found) > 1:
        scopes = ", ".join(str(one["scope_id"]) for one in found[:5])
        raise click.UsageError(
            f"job {name!r}: {iso(at)} is skipped in several scopes ({scopes}); use --scope ID"
        )
    (one,) = found
    outcome = ledger.call("unskip", skip_id=one["id"])
    text = f"{name}: planned skip {one['id']} was {outcome}"
    print_result({"job": name, "id": one["id"], "outcome": outcome}, text, as_json)


def _nothing(name: str, found: Skipping, first: datetime, last: datetime) -> str:
    near = " and ".join(iso(one) for one in found.nearest)
    where = f"{iso(first)} is not a plan_time" if first == last else (
        f"no plan_time lies from {iso(first)} through {iso(last)}"
    )  # fmt: skip
    return f"job {name!r}: {where}; {f'the nearest are {near}' if near else 'it has none'}"


@click.command("planned-skips")
@click.argument("name", metavar="[JOB]", required=False, shell_complete=complete.jobs)
@click.option("--all", "former", is_flag=True, help="List also those that are over or withdrawn.")
@listed(LISTING)
def planned_skips(*, name: str | None, former: bool, show: Printer) -> None:
    """List the firings that operators skip, by their time.

    SKIPPED is the number of firings that were skipped so far.
    """
    with session() as ledger:
        if name is not None:
            ledger.require_job(name)
        rows = ledger.reports.planned_skips(name, with_former=former)
        now = ledger.reports.now()
    show(_with_scope(rows), now)


def _with_scope(rows: Sequence[Row]) -> list[Row]:
    def scope(row: Row) -> str:
        return "all" if row["scope_id"] is None else f"{row['scope_kind']}/{row['scope_id']}"

    return [row | {"scope": scope(row)} for row in rows]
