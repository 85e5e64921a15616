"""The bench of the web page: the shape of its ledger, and its verdict; without measuring."""

from typing import Any

import pytest

from tests.bench.web.__main__ import (
    COLD_JOBS,
    COLD_MS,
    FULL,
    LIMIT_MS,
    MEMORY_MB,
    SHORT,
    TRAFFIC_KB,
    VIEWERS,
    faults,
)
from tests.bench.web.dataset import PERIODS, WEEKS, Size

pytestmark = pytest.mark.tools


def web_report(
    p95: float = 20.0, grown: float = 5.0, kb: float = 9.0, cold: float = 700.0
) -> dict[str, Any]:
    def watched(end: float) -> dict[str, float]:
        return {"half": 80.0, "end": end, "kb_a_minute": kb}

    return {
        "schedules": 1_000, "executions": 50_000, "bytes": 2**30, "seconds_to_fill": 9,
        "pages": {"Now": {"p50": 10.0, "p95": p95, "max": 300.0, "cpu": 9.0}},
        "open_pages": {"1": watched(81.0), str(VIEWERS): watched(81.0 + grown)},
        "cold": {"/forecast": cold}, "jobs": COLD_JOBS,
    }  # fmt: skip


@pytest.mark.parametrize(
    "size",
    [
        SHORT, FULL, Size(10_000, 1_000_000), Size(100_000, 10_000_000),
        Size(1_000_000, 12_000_000, 100),
    ],
)  # fmt: skip
def test_a_ledger_has_about_as_many_rows_as_were_asked_for(size: Size) -> None:
    schedules = size.single + size.scoped * size.scopes
    assert 0.99 * size.schedules <= schedules <= size.schedules
    daily = size.scoped * size.scopes + size.single * 1440 // size.period
    assert 0.5 * size.executions <= size.seconds + size.days * daily <= 1.1 * size.executions
    assert size.period in PERIODS and 2 <= size.days <= 7 * WEEKS


def test_a_slow_page_and_growing_memory_are_faults() -> None:
    assert faults(web_report()) == []
    assert faults(web_report(p95=LIMIT_MS + 0.1)) == ["Now: the p95 of 150.1 ms exceeds 150 ms"]
    (fault,) = faults(web_report(grown=MEMORY_MB + 1))
    assert fault == "200 open pages take 51 MB more than one, which is more than 50 MB"
    (fault,) = faults(web_report(kb=TRAFFIC_KB + 1))
    assert fault == "an open page receives 101 kB a minute, which is more than 100 kB"
    (fault,) = faults(web_report(cold=COLD_MS + 1))
    assert fault == "the first request of /forecast takes 1001 ms, which is more than 1000 ms"
