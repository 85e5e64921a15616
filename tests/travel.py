"""Time travel: a test's database gets a clock that can be set, for every process that uses it."""

from datetime import datetime, timedelta

import psycopg
from psycopg import sql

_INSTALL = """
CREATE TABLE {schema}.time_travel (ahead interval NOT NULL);
INSERT INTO {schema}.time_travel VALUES ('0');
GRANT SELECT ON {schema}.time_travel TO PUBLIC;
CREATE OR REPLACE FUNCTION {schema}.db_now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
    AS 'SELECT statement_timestamp() + (SELECT t.ahead FROM {schema}.time_travel t)';
CREATE OR REPLACE FUNCTION {schema}.db_clock() RETURNS timestamptz
    LANGUAGE sql VOLATILE PARALLEL SAFE
    AS 'SELECT clock_timestamp() + (SELECT t.ahead FROM {schema}.time_travel t)';
"""


class Travel:
    """The clock of one database. It goes on by itself; `travel` sets it.

    Installs shifted versions of the schema's two clocks; nothing else of the schema changes.
    """

    def __init__(self, url: str, schema: str = "cronledger") -> None:
        self._schema = sql.Identifier(schema)
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute(sql.SQL(_INSTALL).format(schema=self._schema))

    def now(self) -> datetime:
        """Answer the database's time."""
        row = self._connection.execute(
            sql.SQL("SELECT {}.db_clock()").format(self._schema)
        ).fetchone()
        assert row is not None
        instant: datetime = row[0]
        return instant

    def travel(self, *, by: timedelta | None = None, to: datetime | None = None) -> datetime:
        """Move the clock `by` so much, or `to` an instant, also back; answers what it says now."""
        if (by is None) == (to is None):
            raise ValueError("travel either by=timedelta or to=datetime")
        shift = sql.SQL("UPDATE {schema}.time_travel SET ahead = {ahead}")
        ahead = (
            sql.SQL("ahead + {}").format(sql.Literal(by))
            if to is None
            else sql.SQL("{}::timestamptz - clock_timestamp()").format(sql.Literal(to))
        )
        self._connection.execute(shift.format(schema=self._schema, ahead=ahead))
        return self.now()

    def close(self) -> None:
        self._connection.close()
