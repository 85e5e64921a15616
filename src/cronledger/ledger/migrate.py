"""Migrations: numbered plain SQL, one transaction each, under a lock on schema_migrations.

`NNNN_pre_*.sql` only adds, so older code can continue. Functions, triggers and views are applied
next, as a whole, in the order of `order.txt`, whenever their text has changed. `NNNN_post_*.sql`
removes what older code, functions and views use. It is applied when no such code runs; older code
that finds it reports that and stops. Every migration ends by granting the rights of the group
roles, because the roles may be created after the schema.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import psycopg
from psycopg import sql

from cronledger.ledger import objects, server_settings
from cronledger.ledger.access import connect
from cronledger.ledger.database_errors import is_unreachable, refused_connection_remedy
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
    applied_by text NOT NULL DEFAULT session_user,
    objects    text[] NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE {schema}.schema_migrations IS 'Migrations that were applied.';
COMMENT ON COLUMN {schema}.schema_migrations.name IS 'File name without .sql.';
COMMENT ON COLUMN {schema}.schema_migrations.phase IS
    'pre: only adds; post: takes away what older code uses; repeated: functions and views.';
COMMENT ON COLUMN {schema}.schema_migrations.checksum IS 'SHA-256 of the text.';
COMMENT ON COLUMN {schema}.schema_migrations.version IS 'cronledger that applied it.';
COMMENT ON COLUMN {schema}.schema_migrations.applied_at IS 'When it was applied.';
COMMENT ON COLUMN {schema}.schema_migrations.applied_by IS 'Role that applied it.';
COMMENT ON COLUMN {schema}.schema_migrations.objects IS
    'Objects that it created, without those that a later migration has dropped.';
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
    `damaged`: dropped objects of functions and views, which are pending again unless something is
    lost.
    `ungranted`: the statements that grant the missing rights of the group roles. `absent`: group
    roles that do not exist. The last two are known only if functions and views are up to date.
    """

    pending: tuple[Migration, ...]
    unknown: tuple[str, ...]
    ungranted: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()

    @property
    def unusable(self) -> tuple[str, ...]:
        """Applied migrations that removed what this code uses."""
        return tuple(name for name in self.unknown if "_post_" in name)


_ANY_ORDER = "SET LOCAL check_function_bodies = off;  -- a function may call one of a later file"

NUMBERED = "[0-9][0-9][0-9][0-9]_*.sql"
ORDER = "order.txt"


def directory() -> Path:
    """Return the directory of the scripts: in the wheel, or at the top level of a checkout."""
    inside = Path(__file__).resolve().parent.parent / "migrations"
    return inside if inside.is_dir() else inside.parents[2] / "migrations"


def migrations(schema: str = "cronledger") -> tuple[Migration, ...]:
    """Return all scripts in the order in which they are applied.

    The order is that of a rolling upgrade: a post migration may remove what former functions and
    views use.
    """
    where = directory()
    numbered = tuple(_numbered(where, schema))
    repeated = "\n".join([_ANY_ORDER, *(path.read_text("utf-8") for path in _repeated(where))])
    return (
        *(migration for migration in numbered if migration.phase == "pre"),
        Migration(REPEATED, "repeated", repeated.replace("{schema}", schema)),
        *(migration for migration in numbered if migration.phase == "post"),
    )


def newest_migration() -> str:
    """Return the number of the newest migration of this program, such as `0026`."""
    return max(path.name for path in directory().glob(NUMBERED))[:4]


def _repeated(where: Path) -> Sequence[Path]:
    """Return the scripts of functions and views in the order of `order.txt`.

    A line names a script, or a folder whose other scripts are applied by name. An empty line and a
    line that begins with # mean nothing.
    """
    lines = (where / ORDER).read_text("utf-8").splitlines()
    entries = [where / line for line in lines if line and not line.startswith("#")]
    for entry in entries:
        if not entry.exists():
            named = entry.relative_to(where)
            raise MigrationError(f"{ORDER} names {named}, which does not exist; correct the line")
    alone = [entry for entry in entries if entry.suffix]
    found: list[Path] = []
    for entry in entries:
        inside = [entry] if entry in alone else sorted(entry.rglob("*.sql"))
        found += [path for path in inside if path == entry or path not in alone]
    for path in sorted(set(where.rglob("*.sql")) - set(where.glob(NUMBERED)) - set(found)):
        raise MigrationError(f"{path.relative_to(where)} is not in {ORDER}; add it, or its folder")
    return found


def _numbered(where: Path, schema: str) -> Iterator[Migration]:
    for path in sorted(where.glob(NUMBERED)):
        phase = path.stem.split("_")[1]
        if phase not in ("pre", "post"):
            raise MigrationError(f"{path.name}: neither NNNN_pre_ nor NNNN_post_")
        text = path.read_text("utf-8").replace("{schema}", schema)
        yield Migration(path.stem, "pre" if phase == "pre" else "post", text)


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
        parts.append(f"-- {migration.name}\n{objects.note(schema)}{migration.text}")
        parts.append(_record(migration, schema))
    if any(migration.phase == "repeated" for migration in pending):
        parts.append(f"SELECT * FROM {schema}.maintain_partitions();")
    parts += [f"{statement};" for statement in ungranted]
    return "\n".join(parts) + "\n"


def check(url: str, schema: str = "cronledger") -> SchemaState:
    """Return the state of the schema, and change nothing. Raises psycopg.OperationalError."""
    with connect(url) as connection, transaction(connection):
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
        with transaction(connection):  # which overrides the server's statement_timeout
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
    if have.keys() - {REPEATED} and not have.keys() & names - {REPEATED}:
        raise MigrationError(
            f"the schema {schema} was created by a development version of cronledger, and cannot "
            f"be upgraded; drop the schemas {schema} and {internal(schema)}, or set "
            "CRONLEDGER_SCHEMA to a new name"
        )
    unknown = tuple(sorted(name for name in have if name not in names))
    lost, damaged = _missing_objects(connection, schema)
    if damaged and not lost:
        again = [m for m in known if _is_replaced(m, have.get(m.name))]
        pending = tuple(m for m in known if m in pending or m in again)
    if lost or damaged or any(migration.phase == "repeated" for migration in pending):
        return SchemaState(pending, unknown, lost=lost, damaged=damaged)
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
    checksum, _ = applied
    if migration.phase == "repeated":
        return checksum != migration.checksum and _is_replaced(migration, applied)
    if checksum != migration.checksum:
        raise MigrationError(
            f"{migration.name} was applied with another text; restore the file, and put the change "
            "into a new migration"
        )
    return False


def _is_replaced(migration: Migration, applied: tuple[str, str] | None) -> bool:
    """Return whether this program may apply functions and views over those that are applied.

    An older replica that starts during a rolling deploy must not restore its functions.
    """
    return (
        migration.phase == "repeated" and applied is not None and _version() >= _version(applied[1])
    )


def _missing_objects(
    connection: psycopg.Connection, schema: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the dropped objects of numbered migrations, and those of functions and views."""
    found = connection.execute(objects.lost(schema).encode()).fetchall()
    missing = objects.without_parts(found)
    return (
        tuple(name for phase, name in missing if phase != "repeated"),
        tuple(name for phase, name in missing if phase == "repeated"),
    )


def _version(text: str | None = None) -> tuple[int, ...]:
    text = text or metadata.version("cronledger")
    return tuple(int(part) for part in text.split(".")[:3] if part.isdigit())


def _apply(connection: psycopg.Connection, migration: Migration, schema: str) -> bool:
    """Apply a migration in a transaction. Return False if another process has applied it."""

    def apply() -> bool:
        with transaction(connection):
            return _apply_once(connection, migration, schema)

    try:
        try:
            return apply()
        except psycopg.errors.UniqueViolation as error:
            if error.diag.schema_name != "pg_catalog":
                raise
            return apply()  # another process has created the table to lock meanwhile
    except psycopg.errors.InsufficientPrivilege as error:
        raise MigrationError(
            f"{migration.name}: {error.diag.message_primary}; run `cronledger migrate` with a role "
            "that may create objects in this database"
        ) from error


def _apply_once(connection: psycopg.Connection, migration: Migration, schema: str) -> bool:
    connection.execute(_BOOTSTRAP.replace("{schema}", schema).encode())
    # A lock on a table, because any login may take an advisory lock. Readers do not wait for it.
    lock = "LOCK TABLE {schema}.schema_migrations IN SHARE ROW EXCLUSIVE MODE"
    connection.execute(_composed(lock, schema))
    row = connection.execute(
        _composed(
            "SELECT checksum, version FROM {schema}.schema_migrations WHERE name = %s", schema
        ),
        [migration.name],
    ).fetchone()
    # Another process may have applied it while this one waited for the lock.
    if not _is_pending(migration, row) and not (
        _is_replaced(migration, row) and _missing_objects(connection, schema)[1]
    ):
        return False
    connection.execute(objects.note(schema).encode())
    connection.execute(migration.text.encode())
    if migration.phase == "repeated":
        # Before the COMMIT, because a process that is killed after it would leave an up-to-date
        # schema without partitions.
        connection.execute(_composed("SELECT * FROM {schema}.maintain_partitions()", schema))
    connection.execute(_record(migration, schema).encode())
    return True


def _record(migration: Migration, schema: str) -> str:
    """Return the statements that record a migration as applied, and what it has created."""
    return (
        f"INSERT INTO {schema}.schema_migrations (name, phase, checksum, version)\n"
        f"VALUES ('{migration.name}', '{migration.phase}', '{migration.checksum}', "
        f"'{metadata.version('cronledger')}')\nON CONFLICT (name) DO UPDATE SET "
        "checksum = EXCLUDED.checksum, version = EXCLUDED.version, "
        "applied_at = clock_timestamp(), applied_by = session_user;\n"
        + objects.record(schema, migration.name)
    )
