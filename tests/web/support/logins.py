"""The two logins of a page, on the server of the tests: one reads, the other acts."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.database import Databases

PASSWORD = "not-a-secret"
GROUPS = ("viewer", "operator")


@dataclass(frozen=True, slots=True)
class Logins:
    """Members of cronledger_viewer and cronledger_operator, and of nothing else."""

    suffix: str

    def name(self, group: str) -> str:
        return f"cronledger_test_web_{group}_{self.suffix}"

    def url(self, database_url: str, group: str) -> str:
        return make_conninfo(database_url, user=self.name(group), password=PASSWORD)


@contextmanager
def logins(databases: Databases) -> Iterator[Logins]:
    """Create the logins, and drop them at the end. The group roles exist once a ledger does."""
    databases.template()
    database = databases.create()
    made = Logins(database.rpartition("test_")[2])
    with psycopg.connect(databases.url(database), autocommit=True) as c:
        for group in GROUPS:
            name = sql.Identifier(made.name(group))
            c.execute(
                sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(name, sql.Literal(PASSWORD))
            )
            c.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(f"cronledger_{group}"), name))
        yield made
        for group in GROUPS:
            c.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(made.name(group))))
    databases.drop(database)
