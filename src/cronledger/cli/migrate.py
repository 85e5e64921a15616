"""`cronledger migrate`: bring the schema up to date, say whether it is, or print the SQL."""

from typing import TYPE_CHECKING

import click

from cronledger.cli.show import json_option, print_json

if TYPE_CHECKING:
    from cronledger.ledger.migrate import Phase, SchemaState
    from cronledger.settings import Settings


@click.command()
@click.option("--check", is_flag=True, help="Change nothing; exit 4 when something is pending.")
@click.option("--sql", "as_sql", is_flag=True, help="Print the pending statements, for `psql -1`.")
@click.option("--pre", is_flag=True, help="Only what adds: code that does not know it goes on.")
@json_option
def migrate(*, check: bool, as_sql: bool, pre: bool, as_json: bool) -> None:
    """Bring the schema up to date, and grant the group roles their rights in it.

    The roles cronledger_viewer, cronledger_operator and cronledger_runner may be created before or
    after: each call grants what is missing. Any number of processes may migrate at once.

    With --pre, what takes away what older code uses is left for a later call, once no such code
    runs.

    --sql changes nothing and prints the statements that are still to be applied to this database.
    If no database is set, or it does not answer, it prints all of them, for a database without the
    schema.
    """
    from cronledger.cli.session import access, database, settings_here
    from cronledger.ledger import migrate as migrations
    from cronledger.ledger.identity import ACCEPT, OtherDatabaseError, other_database

    if as_sql and (check or as_json):
        other_option = "--check" if check else "--json"
        raise click.UsageError(f"--sql and {other_option} cannot be used together; choose one")
    settings = settings_here()
    schema = settings.schema_name
    phases: tuple[Phase, ...] = ("pre", "repeated") if pre else ("pre", "post", "repeated")
    if as_sql:
        script = migrations.script(schema, _state_here(settings), phases=phases)
        click.echo(script, nl=False)
        return
    applied: list[str] = []
    pending: list[str] = []
    with database(settings) as url:
        if check:
            state = migrations.check(url, schema)
            migrations.require_usable(state)
            pending = [found.name for found in state.pending if found.phase in phases]
            pending += state.ungranted
        else:
            applied = migrations.migrate(url, schema, phases=phases)
            state = migrations.check(url, schema)
            _warn(state)
        other = None
        if not pending:
            with access(settings, url).connect("cronledger migrate") as connection:
                other = other_database(connection, schema)
    if as_json:
        print_json({"schema": schema, "applied": applied, "pending": pending})
    else:
        for word, names in (("applied", applied), ("pending", pending)):
            for name in names:
                click.echo(f"{word} {name}")
    for name in state.unknown:
        click.echo(f"{name} is of a newer cronledger", err=True)
    _require_current(state, pending)
    click.echo(f"schema {schema} is up to date", err=True)
    if other is not None:
        click.echo(f"Warning: {OtherDatabaseError(other)}\nHint: {ACCEPT}", err=True)


def _state_here(settings: "Settings") -> "SchemaState | None":
    """Return the state of the schema; None, with a note, where no database says it."""
    import psycopg

    from cronledger.cli.session import database
    from cronledger.ledger import migrate as migrations
    from cronledger.ledger.database import is_unreachable, refusal

    if settings.database_url is None:
        _note("no database is set")
        return None
    try:
        with database(settings) as url:
            state = migrations.check(url, settings.schema_name)
    except psycopg.Error as error:
        if not is_unreachable(error) or refusal(error) is not None:
            raise
        _note("the database does not answer")
        return None
    migrations.require_usable(state)
    return state


def _note(reason: str) -> None:
    click.echo(
        f"Note: {reason}; these are the statements for a database without the schema", err=True
    )


def _warn(state: "SchemaState") -> None:
    for role in state.absent:
        click.echo(
            f"Warning: the role {role} does not exist, and this role may not create it\n"
            f"Hint: run `CREATE ROLE {role} NOLOGIN` as a role that may create roles, then "
            "`cronledger migrate`",
            err=True,
        )
    if state.ungranted:
        click.echo(
            f"Warning: {len(state.ungranted)} rights of the group roles are missing; the first is "
            f"`{state.ungranted[0]}`\nHint: run `cronledger migrate` as the owner of the schema",
            err=True,
        )


def _require_current(state: "SchemaState", pending: list[str]) -> None:
    """Exit unless the schema is up to date and whole."""
    from cronledger.rules.problems import Exit

    if state.lost:
        click.echo(
            f"Error: the schema has lost {', '.join(map(str, state.lost))}\n"
            "Hint: restore it from a backup; a numbered migration is applied only once",
            err=True,
        )
    if pending:
        click.echo("the schema is out of date; run `cronledger migrate`", err=True)
    if pending or state.lost:
        raise click.exceptions.Exit(Exit.SCHEMA)
