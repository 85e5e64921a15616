"""Settings of a server that our own transactions cannot override.

Everything else that a promise needs is set in our own transactions: by session_settings.py, and by
functions/14_transactions.sql for functions that others call.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from psycopg.rows import class_row

from cronledger.ledger import queries
from cronledger.rules.problems import ConfigurationError, Problem

ENCODING = "UTF8"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """One row of `read_server_settings.sql`. `not_durable`: what is off and should be on."""

    database: str
    encoding: str
    replication_role: str
    not_durable: Sequence[str]

    def require(self) -> None:
        """Raise ConfigurationError, which names each setting that a ledger cannot work with."""
        found = [*self._encoding(), *self._triggers()]
        if found:
            raise ConfigurationError(found)

    def _encoding(self) -> list[Problem]:
        if self.encoding == ENCODING:
            return []
        message = f"the database {self.database} cannot store every text; a ledger needs {ENCODING}"
        remedy = (
            f"create a database with ENCODING '{ENCODING}' TEMPLATE template0, and name that one"
        )
        return [Problem(None, None, "server_encoding", self.encoding, message, remedy)]

    def _triggers(self) -> list[Problem]:
        if self.replication_role != "replica":
            return []
        message = "triggers do not fire, and edits of jobs would have no revision"
        remedy = "ALTER ROLE … RESET session_replication_role, or the same for the database"
        return [
            Problem(None, None, "session_replication_role", self.replication_role, message, remedy)
        ]


def read(connection: psycopg.Connection) -> ServerSettings:
    """Return the settings of the server, the database and the role. Raises psycopg.Error."""
    with connection.cursor(row_factory=class_row(ServerSettings)) as cursor:
        # It names no schema, so that any will do.
        row = queries.run(cursor, "read_server_settings", "").fetchone()
    assert row is not None
    return row
