"""`cronledger migrate`: apply pending migrations, check for them, or print their SQL."""

from collections.abc import Sequence

import click
import psycopg

from cronledger.cli.session import database, settings_here
from cronledger.cli.show import echo, json_option, print_json
from cronledger.ledger import migrate as migrations
from cronledger.ledger.access import Access
from cronledger.ledger.database_errors import is_unreachable, refused_connection_remedy
from cronledger.ledger.identity import ACCEPT, OtherDatabaseError, other_database
from cronledger.ledger.migrate import Phase, SchemaState
from cronledger.rules.problems import Exit
from cronledger.settings import Settings


@click.command()
@click.option("--check", is_flag=True, help="Change nothing, and exit 4 if a migration is pending.")
@click.option(
    "--sql",
    "as_sql",
    is_flag=True,
    help="Print the pending SQL, for `psql -1`, instead of applying it.",
)
@click.option(
    "--pre", is_flag=True, help="Apply only migrations that are compatible with older code."
)
@json_option
def migrate(*, check: bool, as_sql: bool, pre: bool, as_json: bool) -> None:
    """Apply pending migrations, and grant the group roles their rights.

    The group roles are cronledger_viewer, cronledger_operator and cronledger_runner. They may be
    created before or after the schema, because each call grants the rights that are missing.
    Several processes may migrate at the same time.

    With --pre, migrations that remove objects which older code uses stay pending. Apply them with a
    later call, when no older code runs.

    With --sql, the pending statements are printed and nothing is changed. If no database is set, or
    if it is unreachable, the statements for an empty database are printed.
    """
    if as_sql and (check or as_json):
        other_option = "--check" if check else "--json"
        raise click.UsageError(f"--sql and {other_option} exclude each other; use one of them")
    settings = settings_here()
    schema = settings.schema_name
    phases: tuple[Phase, ...] = ("pre", "repeated") if pre else migrations.PHASES
    if as_sql:
        click.echo(migrations.script(schema, _state_here(settings), phases=phases), nl=False)
        return
    with database(settings) as url:
        applied = [] if check else migrations.migrate(url, schema, phases=phases)
        state = migrations.check(url, schema)
        migrations.require_usable(state)
        pending = _pending(state, phases) if check else []
        other = None if pending else _other_database(settings, url)
    if not check:
        _warn(state)
    if as_json:
        print_json({"schema": schema, "applied": applied, "pending": pending})
    else:
        _print(applied, pending)
    _require_current(state, pending)
    click.echo(f"schema {schema} is up to date", err=True)
    if other is not None:
        click.echo(other, err=True)


def _pending(state: SchemaState, phases: Sequence[Phase]) -> list[str]:
    names = [migration.name for migration in state.pending if migration.phase in phases]
    return [*names, *state.ungranted]


def _other_database(settings: Settings, url: str) -> str | None:
    """Return the warning about a restored or cloned database, or None if it is the own one."""
    with Access.from_settings(settings, url).connect("cronledger migrate") as connection:
        why = other_database(connection, settings.schema_name)
    return None if why is None else f"Warning: {OtherDatabaseError(why)}\nHint: {ACCEPT}"


def _print(applied: list[str], pending: list[str]) -> None:
    for name in applied:
        click.echo(f"applied {name}")
    for name in pending:
        click.echo(f"pending {name}")


def _state_here(settings: Settings) -> SchemaState | None:
    """Return the state of the schema; None, with a note, if no database can be read."""
    if settings.database_url is None:
        _note("no database is set")
        return None
    try:
        with database(settings) as url:
            state = migrations.check(url, settings.schema_name)
    except psycopg.Error as error:
        if not is_unreachable(error) or refused_connection_remedy(error) is not None:
            raise
        _note("the database is unreachable")
        return None
    migrations.require_usable(state)
    return state


def _note(reason: str) -> None:
    click.echo(f"Note: {reason}; these are the statements for an empty database", err=True)


def _warn(state: SchemaState) -> None:
    for role in state.absent:
        echo(
            f"Warning: the role {role} does not exist, and the current role may not create it\n"
            f"Hint: run `CREATE ROLE {role} NOLOGIN` as a role that may create roles, then "
            "`cronledger migrate`",
            err=True,
        )
    if state.ungranted:
        echo(
            f"Warning: {len(state.ungranted)} rights of the group roles are missing; the first is "
            f"`{state.ungranted[0]}`\nHint: run `cronledger migrate` as the owner of the schema",
            err=True,
        )


def _require_current(state: SchemaState, pending: list[str]) -> None:
    """Exit unless the schema is up to date and complete."""
    for name in state.unknown:
        echo(f"{name} was applied by a newer cronledger", err=True)
    if state.lost:
        echo(
            f"Error: the schema is damaged: {', '.join(map(str, state.lost))} was dropped\n"
            "Hint: restore it from a backup, because a numbered migration is applied only once",
            err=True,
        )
    if pending:
        echo("the schema is out of date; run `cronledger migrate`", err=True)
    if pending or state.lost:
        raise click.exceptions.Exit(Exit.SCHEMA)
