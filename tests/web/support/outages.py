"""A database that is away."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo


@contextmanager
def away(database_url: str) -> Iterator[None]:
    """End all connections to the database, and accept none until the end."""
    name = str(conninfo_to_dict(database_url)["dbname"])
    allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS ").format(sql.Identifier(name))
    with psycopg.connect(make_conninfo(database_url, dbname="postgres"), autocommit=True) as c:
        c.execute(allow + sql.SQL("false"))
        c.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
        )
        try:
            yield
        finally:
            c.execute(allow + sql.SQL("true"))
