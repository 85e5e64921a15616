"""`cronledger migrate`: bring the schema up to date, say whether it is, or print the SQL."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from cronledger.ledger.migrate import Phase, SchemaState


@click.command()
@click.option("--check", is_flag=True, help="Change nothing; exit 4 when something is pending.")
@click.option("--sql", "as_sql", is_flag=True, help="Print everything as SQL for `psql -1`.")
@click.option("--pre", is_flag=True, help="Only what adds: code that does not know it goes on.")
def migrate(*, check: bool, as_sql: bool, pre: bool) -> None:
    """Bring the schema up to date, and grant the group roles their rights in it.

    The roles cronledger_viewer, cronledger_operator and cronledger_runner may be created before or
    after: each call grants what is missing. Any number of processes may migrate at once.

    With --pre, what takes away what older code uses is left for a later call, once no such code
    runs. --sql needs no database.
    """
    from cronledger.cli.session import access, database, settings_here
    from cronledger.ledger import migrate as migrations
    from cronledger.ledger.identity import ACCEPT, OtherDatabaseError, other_database
    from cronledger.rules.errors import Exit

    if as_sql and (check or pre):
        raise click.UsageError("--sql goes with neither --check nor --pre; it prints everything")
    settings = settings_here()
    schema = settings.schema_name
    if as_sql:
        click.echo(migrations.script(schema), nl=False)
        return
    phases: tuple[Phase, ...] = ("pre", "repeated") if pre else ("pre", "post", "repeated")
    with database(settings) as url:
        if check:
            state = migrations.check(url, schema)
            migrations.require_usable(state)
            pending = [found.name for found in state.pending if found.phase in phases]
            pending += state.ungranted
        else:
            pending = []
            for name in migrations.migrate(url, schema, phases=phases):
                click.echo(f"applied {name}")
            state = migrations.check(url, schema)
            _warn(state)
        other = None
        if not pending:
            with access(settings, url).connect("cronledger migrate") as connection:
                other = other_database(connection, schema)
    for name in pending:
        click.echo(f"pending {name}")
    for name in state.unknown:
        click.echo(f"{name} is of a newer cronledger", err=True)
    if pending:
        click.echo("the schema is out of date; run `cronledger migrate`", err=True)
        raise click.exceptions.Exit(Exit.SCHEMA)
    click.echo(f"schema {schema} is up to date", err=True)
    if other is not None:
        click.echo(f"Warning: {OtherDatabaseError(other)}\nHint: {ACCEPT}", err=True)


def _warn(state: "SchemaState") -> None:
    for role in state.absent:
        click.echo(
            f"Warning: there is no role {role}, and this role may not create it\n"
            f"Hint: run `CREATE ROLE {role} NOLOGIN` as a role that may, then `cronledger migrate`",
            err=True,
        )
    if state.ungranted:
        click.echo(
            f"Warning: {len(state.ungranted)} rights of the group roles are missing, the first is "
            f"`{state.ungranted[0]}`\nHint: run `cronledger migrate` as the owner of the schema",
            err=True,
        )
