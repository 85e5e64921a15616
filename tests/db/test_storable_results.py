"""Whatever a handler returns or raises: what becomes of it is text and jsonb to PostgreSQL."""

import json
from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cronledger.rules import outcome
from cronledger.rules.outcome import Outcome
from tests.unit.test_outcome import any_text, anything, errors

outcomes = st.builds(outcome.success, anything, st.none() | any_text) | st.builds(
    outcome.failure, errors, st.none() | any_text
)


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_url, autocommit=True) as made:
        yield made


@settings(
    max_examples=100, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(ended=outcomes)
def test_every_outcome_is_stored_as_it_is(connection: psycopg.Connection, ended: Outcome) -> None:
    texts = [ended.result_json, ended.output, ended.error_code, ended.error_msg]
    row = connection.execute(
        "SELECT %s::jsonb::text, %s::text, %s::text, %s::text, %s::bigint, %s::bigint",
        [*texts, ended.rows_affected, ended.watermark],
    ).fetchone()
    assert row is not None
    assert row[1:] == (*texts[1:], ended.rows_affected, ended.watermark)
    if ended.result_json is None:
        assert row[0] is None
    else:
        stored, made = (json.loads(x, parse_int=float) for x in (row[0], ended.result_json))
        assert stored == made  # jsonb has one kind of number
