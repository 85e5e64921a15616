"""The group role that each command needs, and the message when the database denies a command."""

import click
from psycopg import errors

from cronledger.ledger.access import Access

VIEWER, OPERATOR, RUNNER = "cronledger_viewer", "cronledger_operator", "cronledger_runner"

NEEDS = {
    "run": RUNNER,
    "progress": RUNNER,
    "jobs apply": RUNNER,
    "jobs diff": RUNNER,
    "jobs pause": OPERATOR,
    "jobs resume": OPERATOR,
    "jobs remove": OPERATOR,
    "skip": OPERATOR,
    "adopt": OPERATOR,
    "pauses plan": OPERATOR,
    "pauses change": OPERATOR,
    "pauses end": OPERATOR,
    "jobs redact": OPERATOR,
    "trigger": OPERATOR,
    "enqueue": OPERATOR,
    "backfill": OPERATOR,
    "executions retry": OPERATOR,
    "executions cancel": OPERATOR,
    "executions redact": OPERATOR,
    "channels pause": OPERATOR,
    "channels resume": OPERATOR,
    "channels retry": OPERATOR,
    "channels test": OPERATOR,
    "queues pause": OPERATOR,
    "queues resume": OPERATOR,
    "queues limit": OPERATOR,
    "hosts retire": OPERATOR,
    "report-tokens create": OPERATOR,
    "report-tokens revoke": OPERATOR,
    "sources rename": OPERATOR,
    "retention set": OPERATOR,
    "verify --accept": OPERATOR,
    "accept-database": OPERATOR,
    "refuse-database": OPERATOR,
}
"""Commands that do more than read. All others need VIEWER; `migrate` needs the schema's owner."""

_MEMBERSHIP = """
SELECT quote_ident(current_user), r.oid IS NOT NULL, coalesce(pg_has_role(r.oid, 'MEMBER'), false),
       coalesce(pg_has_role(r.oid, 'USAGE'), false),
       format('GRANT %%I TO %%I', g.name, current_user)
FROM (VALUES (%s)) g(name) LEFT JOIN pg_roles r ON r.rolname = g.name
"""


class DeniedError(RuntimeError):
    """The database denied a command. The message names the role and the missing membership."""


def denied(error: errors.InsufficientPrivilege, access: Access) -> DeniedError:
    """Return `error` as one line about the current command. Raises psycopg.Error."""
    command = _command()
    said = error.diag.message_primary or "permission denied"
    group = NEEDS.get(command, VIEWER)
    with access.connect("cronledger cli") as connection:
        row = connection.execute(_MEMBERSHIP, [group]).fetchone()
    assert row is not None
    role, exists, member, inherits, grant = row
    if command == "migrate":
        remedy = "run it as the owner of the schema"
    elif not exists:
        remedy = f"run `CREATE ROLE {group} NOLOGIN` and `cronledger migrate`, then `{grant}`"
    elif not member:
        remedy = f"run `{grant}`"
    elif not inherits:
        remedy = (
            f"the role does not inherit the rights of {group}; add options=-crole={group} to the "
            "connection string"
        )
    else:
        remedy = (
            f"{group} itself does not have this right; run `cronledger migrate` as the owner of "
            "the schema"
        )
    return DeniedError(f"role {role} may not run `cronledger {command}`: {said}; {remedy}")


def _command() -> str:
    """Return the names of the current command, with the options that need a further right."""
    context = click.get_current_context()
    names = ["--accept"] if context.params.get("accept") is not None else []
    while context.parent is not None:
        names.insert(0, str(context.info_name))
        context = context.parent
    return " ".join(names)
