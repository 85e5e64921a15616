"""One database of a worker for one test after the other.

CREATE and DROP DATABASE cost more than most tests. So a test returns its database, and the next
one gets it with the rows, sequences, partitions and clocks of a fresh clone. Nothing else can pass
from test to test: a database whose catalog differs from that of a fresh clone in any way is
dropped, and so is one that a session still uses, because its process may connect again.

A test with the marker `own_database` has a clone of its own: for the plans of statements, for
sessions that it counts, and for a database that it copies or renames.
"""

import time
from typing import Any

import psycopg
from psycopg import sql

SESSION = "cronledger tests"
"""The application_name of the one session that is not the test's."""
PAGES = 10
"""A table with more of them is truncated: PostgreSQL plans for at least so many pages as long as a
table was not analyzed, and for more if the dead rows of earlier tests fill them."""
LEAVING_SECONDS = 0.2
"""How long the server may need to end a session that its client has closed."""

_OPTIONS = " ".join(
    f"-c {name}={value}"
    for name, value in {
        "session_replication_role": "replica",  # no triggers: deleted rows leave no trail
        "synchronous_commit": "off",
        "lock_timeout": "5s",
        "timezone": "UTC",
        "search_path": "cronledger",
        "allow_system_table_mods": "on",  # to delete statistics
    }.items()
)
_TABLES = """
SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'cronledger'::regnamespace
AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY c.oid
"""
_ALL_TABLES = """
SELECT c.oid, format('%I.%I', n.nspname, c.relname) FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid >= 16384 AND c.relkind IN ('r', 'p')
"""
_CLOCKS = """
SELECT p.oid, pg_get_functiondef(p.oid), p::text FROM pg_proc p
WHERE p.pronamespace = 'cronledger'::regnamespace AND p.proname IN ('db_now', 'db_clock')
ORDER BY p.oid
"""
_CATALOGS = """
SELECT c.relname FROM pg_class c
WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind = 'r' AND NOT c.relisshared
AND c.relname <> 'pg_statistic' ORDER BY c.relname
"""
_SEQUENCES = """
SELECT 'cronledger.' || quote_ident(s.sequencename), coalesce(s.last_value, s.start_value),
       s.last_value IS NOT NULL
FROM pg_sequences s WHERE s.schemaname = 'cronledger' ORDER BY s.sequencename
"""
_PREPARED = "SELECT FROM pg_prepared_xacts WHERE database = current_database()"
_SESSIONS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
_COUNTED = "SELECT c.oid FROM pg_class c WHERE c.relkind = 'r' AND c.reltuples >= 0"
_WORN = """
SELECT c.oid::regclass::text FROM pg_class c WHERE c.oid >= 16384 AND c.relkind = 'r'
AND (c.reltuples >= 0 AND c.oid <> ALL (%s) OR greatest(pg_relation_size(c.oid),
     pg_relation_size(nullif(c.reltoastrelid, 0))) > %s * current_setting('block_size')::int)
"""
# The relations but for what TRUNCATE changes, and settings and rights of the database.
_RELATIONS = """
SELECT 'relations', md5(string_agg(ROW(
    c.oid, c.relname, c.relnamespace, c.relowner, CASE WHEN c.relkind <> 'i' THEN c.reltuples END,
    c.relhasindex, c.relpersistence, c.relchecks, c.relhasrules, c.relhastriggers,
    c.relrowsecurity, c.relforcerowsecurity, c.relreplident, c.relispartition, c.relacl,
    c.reloptions)::text, ',' ORDER BY c.oid))
FROM pg_class c WHERE c.oid >= 16384
"""
_DATABASE = """
SELECT d.xmin::text, d.datacl::text,
       (SELECT count(*) FROM pg_db_role_setting s WHERE s.setdatabase = d.oid),
       (SELECT count(*) FROM pg_shdepend s WHERE s.dbid = d.oid),
       (SELECT count(*) FROM pg_statistic s WHERE s.starelid >= 16384)
FROM pg_database d WHERE d.datname = current_database()
"""
_ADOPT = """
UPDATE cronledger.identity SET ledger_id = gen_random_uuid(), database_oid =
    (SELECT oid FROM pg_database WHERE datname = current_database())
"""


def adopt(connection: psycopg.Connection[Any]) -> None:
    """Make the ledger of a copied database one of its own."""
    connection.execute(_ADOPT)


class KeptDatabase:
    """A fresh clone of the template, and what `restore` needs to make it one again."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(
            url, autocommit=True, application_name=SESSION, options=_OPTIONS, prepare_threshold=1
        )
        adopt(self._connection)
        tables = [sql.Identifier(name) for (name,) in self._rows(_TABLES)]
        deletions = (
            sql.SQL("{} AS (DELETE FROM {})").format(sql.Identifier(f"d{number}"), table)
            for number, table in enumerate(tables)
        )
        self._delete = self._text(sql.SQL("WITH {} SELECT").format(sql.SQL(", ").join(deletions)))
        self._first_rows = [(table, rows) for table in tables if (rows := self._copy(table))]
        self._first_ids = self._text(
            sql.SQL("SELECT {}").format(
                sql.SQL(", ").join(
                    sql.SQL("setval({}, {}, {})").format(*map(sql.Literal, sequence))
                    for sequence in self._rows(_SEQUENCES)
                )
            )
        )
        self._tables = {oid for oid, _ in self._rows(_ALL_TABLES)}
        self._counted = [oid for (oid,) in self._rows(_COUNTED)]
        self._clocks = self._rows(_CLOCKS)
        self._catalog_query = self._text(self._compose_catalog_query())
        self._catalog = self._read_catalog()

    def is_free(self) -> bool:
        """Return whether nobody else has a session in the database."""
        try:
            return self._rows(_SESSIONS) == [(0,)]
        except psycopg.OperationalError:
            return False

    def restore(self) -> str | None:
        """Make the ledger a fresh one. Return the reason if that is not possible, else None."""
        try:
            return self._restore()
        except psycopg.Error as exc:
            return str(exc)

    def _restore(self) -> str | None:
        deadline = time.monotonic() + LEAVING_SECONDS
        while self._rows(_SESSIONS) != [(0,)]:
            if time.monotonic() > deadline:
                return "a session is left"
            time.sleep(0.002)
        if self._rows(_PREPARED):
            return "a prepared transaction is left"
        new = [name for oid, name in self._rows(_ALL_TABLES) if oid not in self._tables]
        if new:
            self._execute(f"DROP TABLE {', '.join(new)} CASCADE")
        worn = [name for (name,) in self._rows(_WORN, self._counted, PAGES)]
        if worn:
            self._execute(f"TRUNCATE {', '.join(worn)} CASCADE")
            self._execute("DELETE FROM pg_statistic WHERE starelid >= 16384")
        if self._rows(_CLOCKS) != self._clocks:
            for _, definition, _ in self._clocks:
                self._execute(definition)
        self._execute(self._delete)
        for table, rows in self._first_rows:
            with self._connection.cursor().copy(
                sql.SQL("COPY {} FROM STDIN").format(table)
            ) as copy:
                copy.write(rows)
        self._execute(self._first_ids)
        adopt(self._connection)
        self._execute("SELECT pg_stat_force_next_flush()")
        self._execute("SELECT pg_stat_reset()")  # `doctor` would count the dead rows of all tests
        before, now = self._catalog, self._read_catalog()
        return None if before == now else f"differs: {sorted(map(str, set(now) ^ set(before)))}"

    def close(self) -> None:
        """Close the session. The database remains."""
        self._connection.close()

    def _compose_catalog_query(self) -> sql.Composed:
        """Compose the query that counts the rows of each catalog, and those newer than this one.

        It leaves out the rows that `restore` itself writes, of the clocks and relations. Their
        content is compared.
        """
        ((mark,),) = self._rows("SELECT pg_current_xact_id()::xid::text")
        clocks = sql.Literal([oid for oid, _, _ in self._clocks])
        besides = {
            "pg_class": sql.SQL(" WHERE oid < 16384"),
            "pg_proc": sql.SQL(" WHERE oid <> ALL ({}::oid[])").format(clocks),
            "pg_depend": sql.SQL(
                " WHERE classid <> 'pg_proc'::regclass OR objid <> ALL ({}::oid[])"
            ).format(clocks),
        }
        return sql.SQL(" UNION ALL ").join(
            sql.SQL(
                "SELECT {}, count(*), count(*) FILTER (WHERE age(xmin) < age({}::xid))"
                " FROM pg_catalog.{}{}"
            ).format(
                sql.Literal(name), sql.Literal(mark), sql.Identifier(name),
                besides.get(name, sql.SQL("")),
            )
            for (name,) in self._rows(_CATALOGS)
        )  # fmt: skip

    def _read_catalog(self) -> list[tuple[Any, ...]]:
        queries = (self._catalog_query, _RELATIONS, _DATABASE, _CLOCKS)
        return [row for query in queries for row in self._rows(query)]

    def _copy(self, table: sql.Identifier) -> bytes:
        with self._connection.cursor().copy(
            sql.SQL("COPY (SELECT * FROM {}) TO STDOUT").format(table)
        ) as copy:
            return b"".join(bytes(part) for part in copy)

    def _text(self, statement: sql.Composed) -> str:
        """Return the text, because psycopg would compose a statement again for each execution."""
        return statement.as_string(self._connection)

    def _execute(self, statement: Any) -> None:
        self._connection.execute(statement)

    def _rows(self, statement: Any, *values: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, values or None).fetchall()
