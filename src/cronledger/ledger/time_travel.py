"""The clock of a ledger that travels, for tests and for `cronledger dev`."""

from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg import sql

_READABLE = """
SELECT set_config('datestyle', 'ISO', false), set_config('timezone', 'UTC', false),
       set_config('intervalstyle', 'postgres', false)
"""

_INSTALL = """
CREATE TABLE IF NOT EXISTS {schema}.time_travel (ahead interval NOT NULL);
INSERT INTO {schema}.time_travel SELECT '0' WHERE NOT EXISTS (SELECT FROM {schema}.time_travel);
GRANT SELECT ON {schema}.time_travel TO PUBLIC;
CREATE OR REPLACE FUNCTION {schema}.db_now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
    AS 'SELECT statement_timestamp() + (SELECT t.ahead FROM {schema}.time_travel t)';
CREATE OR REPLACE FUNCTION {schema}.db_clock() RETURNS timestamptz
    LANGUAGE sql VOLATILE PARALLEL SAFE
    AS 'SELECT clock_timestamp() + (SELECT t.ahead FROM {schema}.time_travel t)';
"""


def connect_plainly(url: str) -> psycopg.Connection[Any]:
    """Return a connection that parses instants and intervals, whatever the settings of the role."""
    connection = psycopg.connect(url, autocommit=True, client_encoding="UTF8")
    connection.execute(_READABLE)
    return connection


class Travel:
    """The clock of one database, which runs on by itself. `travel` sets it, for every process.

    It replaces the two clocks of the schema, and nothing else. Do not use it with a ledger that
    matters, because it cannot be undone.
    """

    def __init__(self, url: str, schema: str = "cronledger") -> None:
        self._schema = sql.Identifier(schema)
        self._connection = connect_plainly(url)
        self._connection.execute(sql.SQL(_INSTALL).format(schema=self._schema))

    def now(self) -> datetime:
        """Return the time of the database."""
        row = self._connection.execute(
            sql.SQL("SELECT {}.db_clock()").format(self._schema)
        ).fetchone()
        assert row is not None
        instant: datetime = row[0]
        return instant

    def travel(self, *, by: timedelta | None = None, to: datetime | None = None) -> datetime:
        """Move the clock by a length or to an instant, also back. Return its new time."""
        if (by is None) == (to is None):
            raise ValueError(f"by={by!r}, to={to!r}: give exactly one of them")
        if by is not None and not isinstance(by, timedelta):
            raise TypeError(f'by={by!r} is not a length: use timedelta(minutes=1) or "1m"')
        if to is not None and to.utcoffset() is None:
            raise ValueError(f"to={to!r} has no time zone: add tzinfo=UTC")
        shift = sql.SQL("UPDATE {schema}.time_travel SET ahead = {ahead}")
        ahead = (
            sql.SQL("ahead + {}").format(sql.Literal(by))
            if to is None
            else sql.SQL("{}::timestamptz - clock_timestamp()").format(sql.Literal(to))
        )
        self._connection.execute(shift.format(schema=self._schema, ahead=ahead))
        return self.now()

    def close(self) -> None:
        """Close the connection. The clock stays as it is."""
        self._connection.close()
