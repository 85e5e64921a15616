"""Fixtures of the tests of the web page: the ledger, its two logins, and the page."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.database import Databases
from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.support.browsing import TOKENS, app, client
from tests.web.support.command import Start, starter
from tests.web.support.logins import Logins
from tests.web.support.logins import logins as created_logins
from tests.web.support.patience import lengthen


@pytest.fixture(autouse=True)
def patient(clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No limit of the page passes only because the machine is busy."""
    lengthen(monkeypatch)


@pytest.fixture(scope="session")
def logins(databases: Databases) -> Iterator[Logins]:
    """The logins of this worker."""
    with created_logins(databases) as made:
        yield made


@pytest.fixture
def at(db: Db) -> datetime:
    """Now, with a runner and two jobs: `report` of the owner `data`, and `tidy` of `platform`.

    Neither is due before the next hour: no replica plans them, and they would soon be overdue.
    """
    rows.runner(db)
    labels = '{"team": "data", "tier": "1"}'
    rows.job(db, "report", owner="data", labels=labels, timezone="Europe/Berlin")
    rows.job(db, "tidy", owner="platform")
    db.execute("UPDATE cronledger.schedules SET next_due_at = next_due_at + interval '1 hour'")
    return rows.now(db).replace(microsecond=0)


@pytest.fixture
def browser(database_url: str, logins: Logins) -> Iterator[TestClient]:
    """Somebody on the page's own machine, without a sign-in."""
    with client(app(database_url, logins)) as made:
        yield made


@pytest.fixture
def by_token(database_url: str, logins: Logins) -> Iterator[TestClient]:
    """Somebody on another machine who has not signed in, at a page with tokens."""
    page = app(database_url, logins, web_auth="token", web_tokens=TOKENS)
    with client(page, "203.0.113.9") as made:
        yield made


@pytest.fixture(scope="module")
def second(databases: Databases) -> Iterator[str]:
    """The DSN of another ledger, with the job `invoices`, which runs and is never due again."""
    name = databases.create(databases.template())
    with rows.connected(databases.url(name)) as db:
        rows.job(db, "invoices", owner="billing", schedule=None)
        lease = rows.now(db) + timedelta(hours=1)
        rows.execution(db, "RUNNING", "invoices", stale_after=lease)
    yield databases.url(name)
    databases.drop(name)


@pytest.fixture
def start(tmp_path: Path, database_url: str) -> Iterator[Start]:
    """Start the command on the database of the test, unless a variable names another one."""
    with starter(tmp_path, database_url) as made:
        yield made
