"""Migrations: numbered plain SQL, one transaction each, under a transaction-level advisory lock.

`NNNN_pre_*.sql` only adds, so older code can continue. `NNNN_post_*.sql` removes what older code
uses. It is applied when no such code runs; older code that finds it reports that and stops.
`functions/` and `views/` are applied as a whole whenever their text has changed. Every migration
ends by granting the rights of the group roles, because the roles may be created after the schema.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import psycopg
from psycopg import sql

from cronledger.ledger import server_settings
from cronledger.ledger.access import connect
from cronledger.ledger.database_errors import is_unreachable, refused_connection_remedy
from cronledger.ledger.inventory import Made, inventory, lost
from cronledger.ledger.schemas import internal
from cronledger.ledger.transactions import transaction

Phase = Literal["pre", "post", "repeated"]
PHASES: tuple[Phase, ...] = ("pre", "post", "repeated")
REPEATED = "functions and views"

_BOOTSTRAP = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE SCHEMA IF NOT EXISTS {schema}_internal;
COMMENT ON SCHEMA {schema}_internal IS 'Functions that only the ledger calls.';
CREATE TABLE IF NOT EXISTS {schema}.schema_migrations (
    name       text COLLATE "C" PRIMARY KEY,
    phase      text NOT NULL CHECK (phase IN ('pre', 'post', 'repeated')),
    checksum   text NOT NULL,
    version    text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    applied_by text NOT NULL DEFAULT session_user
);
COMMENT ON TABLE {schema}.schema_migrations IS 'Migrations that were applied.';
COMMENT ON COLUMN {schema}.schema_migrations.name IS 'File name without .sql.';
COMMENT ON COLUMN {schema}.schema_migrations.phase IS
    'pre: only adds; post: takes away what older code uses; repeated: functions and views.';
COMMENT ON COLUMN {schema}.schema_migrations.checksum IS 'SHA-256 of the text.';
COMMENT ON COLUMN {schema}.schema_migrations.version IS 'cronledger that applied it.';
COMMENT ON COLUMN {schema}.schema_migrations.applied_at IS 'When it was applied.';
COMMENT ON COLUMN {schema}.schema_migrations.applied_by IS 'Role that applied it.';
"""


class MigrationError(RuntimeError):
    """A migration cannot be applied; the message names it and the remedy."""


class SchemaNewerError(RuntimeError):
    """The schema was migrated past what this code can use; the message names the remedy."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One script with `{schema}` filled in."""

    name: str
    phase: Phase
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class SchemaState:
    """The differences between the schema and this code.

    `pending`: migrations that are to be applied. `unknown`: applied migrations that this code does
    not know. `lost`: dropped objects of numbered migrations, which only a backup can restore.
    `damaged`: dropped functions and views, which are pending again unless something is lost.
    `ungranted`: the statements that grant the missing rights of the group roles. `absent`: group
    roles that do not exist. The last two are known only if functions and views are up to date.
    """

    pending: tuple[Migration, ...]
    unknown: tuple[str, ...]
    ungranted: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    lost: tuple[Made, ...] = ()
    damaged: tuple[Made, ...] = ()

    @property
    def unusable(self) -> tuple[str, ...]:
        """Applied migrations that removed what this code uses."""
        return tuple(name for name in self.unknown if "_post_" in name)


NUMBERED = "[0-9][0-9][0-9][0-9]_*.sql"


def directory() -> Path:
    """Return the directory of the scripts: in the wheel, or at the top level of a checkout."""
    inside = Path(__file__).resolve().parent.parent / "migrations"
    return inside if inside.is_dir() else inside.parents[2] / "migrations"


def migrations(schema: str = "cronledger") -> tuple[Migration, ...]:
    """Return all scripts in the order in which they are applied, the repeated one last."""
    where = directory()
    numbered = tuple(_numbered(where, schema))
    repeated = "\n".join(
        path.read_text("utf-8")
        for folder in ("functions", "views")
        for path in sorted((where / folder).glob("*.sql"))
    )
    return (*numbered, Migration(REPEATED, "repeated", repeated.replace("{schema}", schema)))


def newest_migration() -> str:
    """Return the number of the newest migration of this program, such as `0026`."""
    return max(path.name for path in directory().glob(NUMBERED))[:4]


def _numbered(where: Path, schema: str) -> Iterator[Migration]:
    for path in sorted(where.glob(NUMBERED)):
        phase = path.stem.split("_")[1]
        if phase not in ("pre", "post"):
            raise MigrationError(f"{path.name}: neither NNNN_pre_ nor NNNN_post_")
        text = path.read_text("utf-8").replace("{schema}", schema)
        yield Migration(path.stem, "pre" if phase == "pre" else "post", text)


def created(
    schema: str = "cronledger", applied: Sequence[Migration] | None = None
) -> frozenset[Made]:
    """Return the objects that exist once these migrations (None: all) were applied."""
    texts = (m.text for m in (migrations(schema) if applied is None else applied))
    return inventory((_BOOTSTRAP.replace("{schema}", schema), *texts), schema)


def script(
    schema: str = "cronledger",
    state: SchemaState | None = None,
    *,
    phases: Sequence[Phase] = PHASES,
) -> str:
    """Return one SQL text with what `migrate` would do to a schema in this state.

    It can be read, or applied by hand with `psql -1`. `state` None: a database without the schema.
    """
    pending = migrations(schema) if state is None else state.pending
    pending = tuple(migration for migration in pending if migration.phase in phases)
    ungranted = () if state is None else state.ungranted
    if not pending and not ungranted:
        return f"-- the schema {schema} is up to date\n"
    parts = [_BOOTSTRAP.replace("{schema}", schema)] if pending else []
    for migration in pending:
        parts.append(f"-- {migration.name}\n{migration.text}")
        parts.append(_record(migration, schema))
    if any(migration.phase == "repeated" for migration in pending):
        parts.append(f"SELECT * FROM {schema}.maintain_partitions();")
    parts += [f"{statement};" for statement in ungranted]
    return "\n".join(parts) + "\n"


def check(url: str, schema: str = "cronledger") -> SchemaState:
    """Return the state of the schema, and change nothing. Raises psycopg.OperationalError."""
    with connect(url) as connection:
        return state(connection, schema)


def state(connection: psycopg.Connection, schema: str = "cronledger") -> SchemaState:
    """Return the state of the schema, and change nothing. Raises psycopg.Error."""
    return _state(connection, migrations(schema), schema)


def require_usable(state: SchemaState) -> None:
    """Raise SchemaNewerError if a migration removed what this code uses."""
    if state.unusable:
        raise SchemaNewerError(
            f"the schema has {', '.join(state.unusable)}, which this cronledger "
            f"{metadata.version('cronledger')} does not know and cannot run on; "
            "upgrade it to the version that applied the migration"
        )


def require_current(state: SchemaState, schema: str) -> None:
    """Raise SchemaNewerError, or MigrationError if something that this code uses is missing.

    Migrations that only remove what older code uses may be pending.
    """
    require_usable(state)
    missing = [found.name for found in state.pending if found.phase != "post"]
    if len(missing) == sum(found.phase != "post" for found in migrations(schema)):
        raise no_ledger(schema)
    if missing:
        raise MigrationError(
            f"{', '.join(missing)} is not applied to the schema {schema}; run `cronledger migrate`"
        )


def check_for_reader(url: str, schema: str) -> psycopg.Error | None:
    """Check the schema for a server that reads it and waits while its database is away.

    Return the error if the database is away, otherwise None. Raise MigrationError or
    SchemaNewerError if the schema cannot be read, and psycopg.OperationalError if the database
    refuses the connection.
    """
    try:
        require_current(check(url, schema), schema)
    except psycopg.Error as error:
        if refused_connection_remedy(error) is not None or not is_unreachable(error):
            raise
        return error
    return None


def no_ledger(schema: str) -> MigrationError:
    """Return the error for a database that was never migrated."""
    return MigrationError(
        f"the database has no ledger in the schema {schema}; run `cronledger migrate`, call "
        "cronledger.ledger.migrate.migrate(url), or set CRONLEDGER_SCHEMA to the schema of the "
        "ledger"
    )


def migrate(url: str, schema: str = "cronledger", *, phases: Sequence[Phase] = PHASES) -> list[str]:
    """Apply the pending migrations, and return their names and the statements of granted rights.

    The rights of the group roles are granted if this role is the owner of the schema. Several
    processes may migrate at the same time: each script is applied once. Raises
    psycopg.OperationalError if the database is unreachable, ConfigurationError for a setting with
    which a ledger cannot work, MigrationError, SchemaNewerError.
    """
    known = migrations(schema)
    applied = []
    with connect(url) as connection:
        server_settings.read(connection).require()
        state = _state(connection, known, schema)
        require_usable(state)
        for migration in state.pending:
            if migration.phase in phases and _apply(connection, migration, schema):
                applied.append(migration.name)
        if not applied or applied[-1] != REPEATED:  # the repeated script ends with grant_roles()
            applied += _grant(connection, schema)
    return applied


def _grant(connection: psycopg.Connection, schema: str) -> list[str]:
    """Grant the missing rights, unless this role is not the owner. Return the statements."""
    with transaction(connection):
        row = connection.execute(
            "SELECT pg_has_role(n.nspowner, 'USAGE') AND to_regprocedure(%s) IS NOT NULL"
            " FROM pg_namespace n WHERE n.nspname = %s",
            [f"{schema}.grant_roles()", schema],
        ).fetchone()
        if row is None or not row[0]:
            return []
        done = connection.execute(_composed("SELECT {schema}.grant_roles()", schema)).fetchall()
    return [statement for (statement,) in done]


def _composed(text: str, schema: str) -> sql.Composed:
    return sql.SQL(text).format(
        schema=sql.Identifier(schema), internal=sql.Identifier(internal(schema))
    )


def _state(connection: psycopg.Connection, known: Sequence[Migration], schema: str) -> SchemaState:
    found = connection.execute("SELECT to_regclass(%s)", [f"{schema}.schema_migrations"]).fetchone()
    if found is None or found[0] is None:
        return SchemaState(tuple(known), ())
    rows = connection.execute(
        _composed("SELECT name, checksum, version FROM {schema}.schema_migrations", schema)
    ).fetchall()
    have = {name: (checksum, version) for name, checksum, version in rows}
    pending = tuple(m for m in known if _is_pending(m, have.get(m.name)))
    names = {m.name for m in known}
    unknown = tuple(sorted(name for name in have if name not in names))
    applied = [m for m in known if have.get(m.name, ("",))[0] == m.checksum]
    gone = lost(connection, created(schema, applied), schema)
    again = inventory(tuple(m.text for m in applied if m.phase == "repeated"), schema)
    damaged = tuple(one for one in gone if one in again)
    gone = tuple(one for one in gone if one not in again)
    if damaged and not gone:
        pending += tuple(m for m in known if m.phase == "repeated")
    if gone or damaged or any(migration.phase == "repeated" for migration in pending):
        return SchemaState(pending, unknown, lost=gone, damaged=damaged)
    return SchemaState(pending, unknown, *_missing_grants(connection, schema))


def _missing_grants(
    connection: psycopg.Connection, schema: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the statements that grant the missing rights, and the roles that do not exist."""
    rows = connection.execute(
        _composed("SELECT role, statement FROM {internal}.missing_grants()", schema)
    ).fetchall()
    made = "CREATE ROLE "
    return (
        tuple(statement for _, statement in rows if not statement.startswith(made)),
        tuple(role for role, statement in rows if statement.startswith(made)),
    )


def _is_pending(migration: Migration, applied: tuple[str, str] | None) -> bool:
    if applied is None:
        return True
    checksum, version = applied
    if migration.phase == "repeated":
        # An older replica that starts during a rolling deploy must not restore its functions.
        return checksum != migration.checksum and _version() >= _version(version)
    if checksum != migration.checksum:
        raise MigrationError(
            f"{migration.name} was applied with another text; restore the file, and put the change "
            "into a new migration"
        )
    return False


def _is_damaged(
    connection: psycopg.Connection,
    migration: Migration,
    applied: tuple[str, str] | None,
    schema: str,
) -> bool:
    """Return whether functions and views of this text were applied, and some are missing."""
    if migration.phase != "repeated" or applied is None or applied[0] != migration.checksum:
        return False
    return bool(lost(connection, inventory((migration.text,), schema), schema))


def _version(text: str | None = None) -> tuple[int, ...]:
    text = text or metadata.version("cronledger")
    return tuple(int(part) for part in text.split(".")[:3] if part.isdigit())


def _apply(connection: psycopg.Connection, migration: Migration, schema: str) -> bool:
    """Apply a migration in a transaction. Return False if another process has applied it."""
    try:
        with transaction(connection):
            return _apply_once(connection, migration, schema)
    except psycopg.errors.InsufficientPrivilege as error:
        raise MigrationError(
            f"{migration.name}: {error.diag.message_primary}; run `cronledger migrate` with a role "
            "that may create objects in this database"
        ) from error


def _apply_once(connection: psycopg.Connection, migration: Migration, schema: str) -> bool:
    connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"{schema}.migrate"]
    )
    connection.execute(_BOOTSTRAP.replace("{schema}", schema).encode())
    row = connection.execute(
        _composed(
            "SELECT checksum, version FROM {schema}.schema_migrations WHERE name = %s", schema
        ),
        [migration.name],
    ).fetchone()
    # Another process may have applied it while this one waited for the lock.
    if not _is_pending(migration, row) and not _is_damaged(connection, migration, row, schema):
        return False
    connection.execute(migration.text.encode())
    if migration.phase == "repeated":
        # Before the COMMIT, because a process that is killed after it would leave an up-to-date
        # schema without partitions.
        connection.execute(_composed("SELECT * FROM {schema}.maintain_partitions()", schema))
    connection.execute(_record(migration, schema).encode())
    return True


def _record(migration: Migration, schema: str) -> str:
    """Return the statement that records a migration as applied."""
    return (
        f"INSERT INTO {schema}.schema_migrations (name, phase, checksum, version)\n"
        f"VALUES ('{migration.name}', '{migration.phase}', '{migration.checksum}', "
        f"'{metadata.version('cronledger')}')\nON CONFLICT (name) DO UPDATE SET "
        "checksum = EXCLUDED.checksum, version = EXCLUDED.version, "
        "applied_at = clock_timestamp(), applied_by = session_user;"
    )
