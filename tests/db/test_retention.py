"""The retention of the ledger: one value for all replicas, set by an operator."""

import pytest
from psycopg import errors

from tests.db.support.engine import DAY, Ledger, runners
from tests.db.support.rows import Db, execution, now, value

KEEP = "SELECT keep FROM cronledger.retention"


async def test_every_replica_keeps_executions_as_long_as_the_ledger_tells(
    ledger: Ledger, db: Db
) -> None:
    for days in (150, 100, 20):
        execution(db, "SUCCESS", plan_time=now(db) - days * DAY)
    ages = "SELECT round(extract(epoch FROM db_now() - plan_time) / 86400) FROM executions"

    async with runners(ledger.url, {}, {}) as (first, second):
        ledger.values("SELECT set_retention('120 days')")
        await first.sweeper._maintain()
        assert sorted(ledger.values(ages)) == [20, 100]
        await second.sweeper._maintain()
        assert sorted(ledger.values(ages)) == [20, 100]
        ledger.values("SELECT set_retention('60 days')")
        await second.sweeper._maintain()
        assert ledger.values(ages) == [20]


def test_a_change_is_recorded(db: Db) -> None:
    set_ = "SELECT cronledger.set_retention(%s, 'disk', 'ann')"
    assert value(db, set_, "30 days") == 90 * DAY
    assert value(db, set_, "30 days") == 30 * DAY
    assert value(db, KEEP) == 30 * DAY
    rows = db.execute(
        "SELECT verb, object_kind, requested_by, outcome, reason, arguments FROM cronledger.audit"
        " ORDER BY id"
    ).fetchall()
    assert [tuple(row.values()) for row in rows] == [
        ("set_retention", "ledger", "ann", outcome, "disk", {"keep": "30 days", "before": before})
        for outcome, before in (("done", "90 days"), ("unchanged", "30 days"))
    ]
    assert value(db, "SELECT set_by FROM cronledger.retention_status") == "ann"


def test_a_retention_of_less_than_a_day_or_of_too_many_is_refused(db: Db) -> None:
    for keep in ("23 hours", "-1 day", "36526 days", None):
        with pytest.raises(errors.InvalidParameterValue, match="not from 1 day to 36525 days"):
            db.execute("SELECT cronledger.set_retention(%s)", [keep])
        assert value(db, KEEP) == 90 * DAY
