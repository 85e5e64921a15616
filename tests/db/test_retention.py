"""The retention of the ledger: one value for all replicas, set by an operator."""

import pytest
from psycopg import errors

from tests.db.support.engine import DAY
from tests.db.support.rows import Db, value

KEEP = "SELECT keep FROM cronledger.retention"


def test_a_change_returns_the_retention_before(db: Db) -> None:
    set_ = "SELECT cronledger.set_retention(%s, 'disk', 'ann')"
    assert value(db, set_, "30 days") == 90 * DAY
    assert value(db, set_, "30 days") == 30 * DAY
    assert value(db, KEEP) == 30 * DAY
    assert value(db, "SELECT set_by FROM cronledger.retention_status") == "ann"


def test_a_retention_of_less_than_a_day_or_of_too_many_is_refused(db: Db) -> None:
    for keep in ("23 hours", "-1 day", "36526 days", None):
        with pytest.raises(errors.InvalidParameterValue, match="not from 1 day to 36525 days"):
            db.execute("SELECT cronledger.set_retention(%s)", [keep])
        assert value(db, KEEP) == 90 * DAY
