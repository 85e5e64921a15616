"""F16: payloads are validated by the handler's parameter; a bad one fails its own execution."""

from datetime import date

import pytest
from pydantic import BaseModel, ConfigDict

from tests.db.support.whole_replica import Whole

pytestmark = pytest.mark.long


class Order(BaseModel):
    model_config = ConfigDict(strict=True)
    number: int
    on: date


async def test_a_bad_payload_fails_its_own_execution_for_good(whole: Whole) -> None:
    called = []

    def order(payload: Order) -> None:
        called.append(payload.number)

    name = whole.job(order, max_attempts=5, retry_backoff=["0s"], overlap="wait")
    bad, good = {"number": "seven", "on": "31.1.", "secret": "x"}, {"number": 1, "on": "2026-01-01"}
    async with whole.replica(slots=1):
        # The bad one first: it must not hold up those behind it.
        first, second = await whole.trigger(name, bad), await whole.trigger(name, good)
        assert (await whole.end(second))["status"] == "SUCCESS"
        failed = await whole.end(first)
        assert (failed["status"], failed["attempt"]) == ("FAILED", 1)
        assert failed["error_code"] == "payload_invalid"
        assert "payload.number: Input should be a valid integer" in failed["error_msg"]
        assert "payload.on" in failed["error_msg"]
        assert "seven" not in failed["error_msg"]
        missing = await whole.run(name)
        assert (missing["status"], missing["error_code"]) == ("FAILED", "payload_invalid")
    assert called == [1]
