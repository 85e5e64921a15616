"""Whatever a handler returns or raises: what becomes of it is text and jsonb to PostgreSQL."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cronledger.rules import outcome
from cronledger.rules.outcome import Outcome
from tests.db.support.engine import Ledger
from tests.unit.test_outcome import any_text, anything, errors

pytestmark = pytest.mark.long

outcomes = st.builds(outcome.success, anything, st.none() | any_text) | st.builds(
    outcome.failure, errors, st.none() | any_text
)


@settings(
    max_examples=100, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(ended=outcomes)
def test_every_outcome_is_stored_as_it_is(ledger: Ledger, ended: Outcome) -> None:
    texts = [ended.output, ended.error_code, ended.error_msg]
    numbers = [ended.rows_affected, ended.watermark]
    result, *others = ledger.one(
        "SELECT %s::jsonb::text, %s::text, %s::text, %s::text, %s::bigint, %s::bigint",
        ended.result_json, *texts, *numbers,
    )  # fmt: skip
    assert others == texts + numbers
    if ended.result_json is None:
        assert result is None
    else:
        stored, made = (json.loads(x, parse_int=float) for x in (result, ended.result_json))
        assert stored == made  # jsonb has one kind of number
