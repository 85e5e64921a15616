"""The product of a server, and its settings that our own transactions cannot override.

Everything else that a promise needs is set in our own transactions: by session_settings.py, and by
functions/transactions/commit_durably.sql for functions that others call.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from psycopg.rows import class_row

from cronledger.ledger import queries
from cronledger.rules.problems import ConfigurationError, Problem

ENCODING = "UTF8"

OLDEST = 15
"""The oldest major version of PostgreSQL on which the schema can be created."""

UNSUPPORTED = {"CockroachDB": "CockroachDB", "-YB-": "YugabyteDB", "DSQL": "Aurora DSQL"}
"""Texts in `version()` → products that speak the protocol of PostgreSQL, and lack what claims need:
row locks in READ COMMITTED as PostgreSQL has them, LISTEN, triggers or partitions."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """One row of `read_server_settings.sql`. `not_durable`: what is off and should be on."""

    version: str
    version_number: int
    database: str
    encoding: str
    replication_role: str
    not_durable: Sequence[str]

    def require(self) -> None:
        """Raise ConfigurationError, which names the product, or each setting, that does not do."""
        problems = self._of_product()
        if problems:  # its settings mean something else
            raise ConfigurationError(problems)
        if self.encoding != ENCODING:
            problems.append(Problem(
                field="server_encoding", value=self.encoding,
                message=f"the database {self.database} cannot store every text; a ledger needs "
                f"{ENCODING}",
                remedy=f"create a database with ENCODING '{ENCODING}' TEMPLATE template0, and name "
                "that one",
            ))  # fmt: skip
        if self.replication_role == "replica":
            problems.append(Problem(
                field="session_replication_role", value=self.replication_role,
                message="triggers do not fire, and edits of jobs would have no revision",
                remedy="ALTER ROLE … RESET session_replication_role, or the same for the database",
            ))  # fmt: skip
        if problems:
            raise ConfigurationError(problems)

    def _of_product(self) -> list[Problem]:
        remedy = f"use PostgreSQL {OLDEST} or later; docs/backends.md lists what was tested"
        product = next((UNSUPPORTED[text] for text in UNSUPPORTED if text in self.version), None)
        if product is not None:
            message = f"{product} is not PostgreSQL, and cannot hold a ledger"
        elif self.version_number < OLDEST * 10_000:
            message = f"a ledger needs PostgreSQL {OLDEST} or later"
        else:
            return []
        return [Problem(field="version()", value=self.version, message=message, remedy=remedy)]


def read(connection: psycopg.Connection) -> ServerSettings:
    """Return the settings of the server, the database and the role. Raises psycopg.Error."""
    with connection.cursor(row_factory=class_row(ServerSettings)) as cursor:
        # It names no schema, so that any will do.
        row = queries.run(cursor, "read_server_settings", "").fetchone()
    assert row is not None
    return row
