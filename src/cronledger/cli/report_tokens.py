"""`cronledger report-tokens`: create, list and revoke tokens for reports over HTTP."""

from hashlib import sha256
from secrets import token_urlsafe

import click

from cronledger.cli import complete
from cronledger.cli.listing import Listing, Printer, listed
from cronledger.cli.parameters import ID, job_option, limit_option, scope_options
from cronledger.cli.session import session
from cronledger.cli.show import echo, json_option, print_json, print_result

LISTING = Listing(
    {
        "id": "TOKEN",
        "job_name": "JOB",
        "scope_kind": "KIND",
        "scope_id": "SCOPE",
        "host": "HOST",
        "created_at": "CREATED",
        "created_by": "BY",
        "last_used_at": "LAST USED",
        "revoked_at": "REVOKED",
        "revoked_by": "REVOKED BY",
    },
    drop=("revoked_by", "created_by", "scope_kind", "revoked_at", "created_at", "host"),
    none="there are no such tokens; `cronledger report-tokens create` creates one",
)


@click.group("report-tokens")
def report_tokens() -> None:
    """Create, list and revoke tokens for reports over HTTP."""


@report_tokens.command()
@click.argument("job", shell_complete=complete.jobs)
@scope_options
@click.option("--host", metavar="NAME", help="Host to record with each report.")
@json_option
def create(
    *, job: str, scope_kind: str | None, scope: str | None, host: str | None, as_json: bool
) -> None:
    """Create a token with which a program reports the runs of the observed job JOB.

    The program sends requests to /report/TOKEN of the web page. The token is printed only once,
    because the ledger stores only its SHA-256.
    """
    token = token_urlsafe(32)
    with session() as ledger:
        key = ledger.scope(job, scope_kind, scope)
        made = ledger.call(
            "create_report_token", token_hash=sha256(token.encode()).hexdigest(), job=job,
            scope_kind=key.scope_kind, scope_id=key.scope_id, host=host,
        )  # fmt: skip
    if as_json:
        print_json({"id": made, "token": token, "path": f"/report/{token}"})
        return
    echo(f"report token {made} of {job}; it is not shown again:", err=True)
    echo(token)


@report_tokens.command("list")
@job_option("tokens of")
@click.option("--all", "revoked", is_flag=True, help="Also list revoked tokens.")
@limit_option("tokens")
@listed(LISTING)
def list_tokens(*, job: str | None, revoked: bool, limit: int, show: Printer) -> None:
    """List the report tokens by number. The ledger does not store the tokens themselves."""
    with session() as ledger:
        if job is not None:
            ledger.require_job(job)
        rows = ledger.reports.report_tokens(job=job, revoked=revoked, limit=limit)
        now = ledger.reports.now()
    show(rows, now)


@report_tokens.command()
@click.argument("token", metavar="TOKEN", type=ID)
@json_option
def revoke(*, token: int, as_json: bool) -> None:
    """Revoke a token by its number, which `report-tokens list` shows.

    From then on, the page refuses reports with this token, with the status 404. A revoked token
    stays in the ledger.
    """
    with session() as ledger:
        fresh = ledger.call("revoke_report_token", token_id=token)
    text = f"report token {token}: {'revoked' if fresh else 'was revoked already'}"
    print_result({"id": token, "revoked": fresh}, text, as_json)
