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
    def sync() -> None:
        log.info("sync")

    async def asynchronous() -> None:
        log.info("async")
        async with asyncio.TaskGroup() as group:
            group.create_task(in_a_task())
        await asyncio.to_thread(log.info, "thread")

    async def in_a_task() -> None:
        log.info("task")

    jobs = [whole.job(sync), whole.job(asynchronous)]
    log.info("before")
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
    wanted = {
        "before": {}, "sync": expected[0], "async": expected[1], "task": expected[1],
        "thread": expected[1], "beside": {},
    }  # fmt: skip
    assert {text: lines.fields[text] for text in wanted} == wanted
    assert tuple(expected[0]) == FIELDS
    # The replica's own lines.
    started = [line for text, line in lines.fields.items() if "execution_started" in text]
    assert [(line["job"], line["execution_id"], line["attempt"]) for line in started] == [
        (row["job_name"], row["id"], 1) for row in rows
    ]


async def test_structlog_and_values_of_the_line_itself(whole: Whole, lines: Lines) -> None:
    events: list[dict[str, Any]] = []

    def keep(_: object, __: str, event: Any) -> Any:
        events.append(dict(event))
        raise structlog.DropEvent

    own = structlog.wrap_logger(None, processors=[add_execution, keep])

    def handler() -> None:
        own.info("event", job="another")
        log.info("line", extra={"attempt": "first"})

    own.info("outside")
    job = whole.job(handler)
    async with whole.replica():
        row = await whole.run(job)
    outside, inside = events
    assert outside == {"event": "outside"}
    found = (inside["event"], inside["job"], inside["execution_id"])
    assert found == ("event", "another", row["id"])
    assert lines.fields["line"]["attempt"] == "first"
