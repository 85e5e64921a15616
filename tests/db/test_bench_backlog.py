"""A figure of `make bench` counts only if `verify` is clean: it has to see what the run wrote."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.bench.backlog import Backlog, create_backlog
from tests.bench.ledger import Ledger
from tests.bench.product import OURS, NotCleanError

pytestmark = pytest.mark.tools

BACKLOG = Backlog(scopes=3, each=20)


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    with psycopg.connect(database_url, autocommit=True, row_factory=dict_row) as c:
        yield Ledger(database_url, c, OURS)


def test_verify_misses_each_plan_time_of_a_backlog_that_did_not_run(ledger: Ledger) -> None:
    create_backlog(ledger, "backlog", BACKLOG)
    OURS.verify(ledger.dsn)  # nothing is planned yet, so nothing is missing
    ledger.connection.execute(
        "UPDATE cronledger.schedules s SET planned_through = j.ends_at, parked = 'ended',"
        " next_due_at = NULL, woken = false FROM cronledger.jobs j"
    )
    with pytest.raises(NotCleanError, match="missing") as found:
        OURS.verify(ledger.dsn, ["backlog"])
    assert str(BACKLOG.rows) in str(found.value)
