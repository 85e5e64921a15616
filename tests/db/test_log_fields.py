"""F42: log lines of handlers have the fields of their execution, and no other lines do."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from cronledger.logs import FIELDS, ExecutionFilter, add_execution
from tests.db.support.whole_replica import Whole

log = logging.getLogger("shop")


class Lines(logging.Handler):
    """The fields of each record, by its message."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(ExecutionFilter())
        self.fields: dict[str, dict[str, Any]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        known = {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        self.fields[record.getMessage()] = known


@pytest.fixture
def lines() -> Iterator[Lines]:
    made = Lines()
    loggers = (log, logging.getLogger("cronledger"))
    for logger in loggers:
        logger.addHandler(made)
        logger.setLevel(logging.INFO)
    yield made
    for logger in loggers:
        logger.removeHandler(made)
        logger.setLevel(logging.NOTSET)


async def test_lines_about_an_execution_have_its_fields(whole: Whole, lines: Lines) -> None:
    """Those of logging and of structlog; a value that a line has itself stays."""
    events: list[dict[str, Any]] = []

    def keep(_: object, __: str, event: Any) -> Any:
        events.append(dict(event))
        raise structlog.DropEvent

    own = structlog.wrap_logger(None, processors=[add_execution, keep])

    def sync() -> None:
        log.info("sync")
        log.info("another attempt", extra={"attempt": "first"})
        own.info("event", job="another")

    async def asynchronous() -> None:
        log.info("async")
        await asyncio.to_thread(log.info, "thread")

    jobs = [whole.job(sync), whole.job(asynchronous)]
    own.info("outside")
    async with whole.replica(runner_id="me"):
        rows = [await whole.run(job) for job in jobs]
        log.info("beside")
    expected = [
        {
            "job": row["job_name"], "scope_kind": "global", "scope": "global",
            "execution_id": row["id"], "plan_time": row["plan_time"].isoformat(), "attempt": 1,
            "runner": "me",
        }
        for row in rows
    ]  # fmt: skip
    assert tuple(expected[0]) == FIELDS
    wanted = {"sync": expected[0], "async": expected[1], "thread": expected[1], "beside": {}}
    assert {text: lines.fields[text] for text in wanted} == wanted
    assert lines.fields["another attempt"]["attempt"] == "first"
    outside, inside = events
    assert outside == {"event": "outside"}
    assert (inside["job"], inside["execution_id"]) == ("another", rows[0]["id"])
    # The replica's own lines.
    started = [line for text, line in lines.fields.items() if "execution_started" in text]
    assert [(line["job"], line["execution_id"], line["attempt"]) for line in started] == [
        (row["job_name"], row["id"], 1) for row in rows
    ]
