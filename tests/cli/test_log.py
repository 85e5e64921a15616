"""Logs: the table of events is complete; lines for people and for programs."""

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from cronledger.logs.output import configure
from docs.tools.events import EVENTS, SOURCES, logged

UNNAMED = re.compile(r'\blog\.(?:debug|info|warning|error|exception|critical)\((?!\s*")')


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Closed(io.StringIO):
    tried = 0

    def write(self, text: str) -> int:
        self.tried += 1
        raise BrokenPipeError


@pytest.fixture
def stream() -> io.StringIO:
    """The stream to which JSON lines are logged."""
    stream = io.StringIO()
    configure("json", "info", stream)
    return stream


@pytest.fixture(autouse=True)
def without_colours_and_context(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("NO_COLOR", "1")
    yield
    structlog.contextvars.clear_contextvars()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.long
def test_every_event_is_in_the_table_and_its_name_is_a_constant() -> None:
    assert set(logged()) == set(EVENTS)
    assert all(meaning.endswith(".") for meaning in EVENTS.values())
    for path in SOURCES.rglob("*.py"):
        assert not UNNAMED.search(path.read_text("utf-8")), path


def test_json_lines_bear_what_is_bound() -> None:
    stream = io.StringIO()
    configure("auto", "info", stream)
    with structlog.contextvars.bound_contextvars(job="report", scope="acme", execution_id=7):
        structlog.get_logger().info("runner_started", slots=3)
        logging.getLogger("of.a.handler").warning("rows: %d", 5)
    ours, theirs = lines(stream)
    assert list(ours) == ["time", "level", "event", "job", "scope", "execution_id", "slots"]
    assert ours["time"].endswith("Z")
    assert (ours["level"], ours["event"], ours["slots"]) == ("info", "runner_started", 3)
    assert (theirs["event"], theirs["level"], theirs["logger"]) == (
        "rows: 5", "warning", "of.a.handler",
    )  # fmt: skip
    assert (theirs["job"], theirs["scope"], theirs["execution_id"]) == ("report", "acme", 7)


def test_the_level_holds_for_all(stream: io.StringIO) -> None:
    configure("json", "warning", stream)
    structlog.get_logger().info("runner_started")
    logging.getLogger("x").info("no")
    assert stream.getvalue() == ""
    structlog.get_logger().warning("step_failed")
    assert len(lines(stream)) == 1


def test_exceptions_are_one_json_line(stream: io.StringIO) -> None:
    for logger in (structlog.get_logger(), logging.getLogger("x")):
        try:
            raise ValueError("no such row")
        except ValueError:
            logger.exception("step_failed")
    assert ["ValueError: no such row" in line["exception"] for line in lines(stream)] == [True] * 2


def test_passwords_are_masked(stream: io.StringIO) -> None:
    log = structlog.get_logger()
    log.info("x", url="postgresql://u:hunter2@h/d and http://u:hunter2@h then a@b")
    log.info("password='hunter2' host=h password=hunter2")
    logging.getLogger("x").warning("no %s", "postgres://u:hun@ter2@h")
    try:
        raise ValueError("postgresql://u:hunter2@h/d")
    except ValueError:
        log.exception("x")
        logging.getLogger("x").exception("x")
    assert "ter2" not in stream.getvalue()
    assert stream.getvalue().count("***") == 9
    assert "http://u:***@h then a@b" in stream.getvalue()


def test_rows_that_the_database_quotes_are_masked(stream: io.StringIO) -> None:
    try:
        raise ValueError("no\nDETAIL:  Failing row contains (job, s3cret, {(a)}).\nCONTEXT:  x")
    except ValueError:
        structlog.get_logger().exception("x", error="Failing row contains (s3cret")
    assert "s3cret" not in stream.getvalue()
    assert "Failing row contains (***)" in stream.getvalue()
    assert "CONTEXT:  x" in stream.getvalue()


def test_lines_for_people() -> None:
    stream = Terminal()
    configure("auto", "info", stream)
    log = structlog.get_logger()
    bound = {"job": "report", "plan_time": "2026-03-08T12:00:00+00:00", "execution_id": 123}
    with structlog.contextvars.bound_contextvars(**bound, scope="global", attempt=1):
        log.info("execution_started", how="won", trigger="schedule")
        log.info("execution_succeeded", duration_ms=25)
    with structlog.contextvars.bound_contextvars(**bound, scope="acme", attempt=2):
        log.info("execution_started", how="retried", trigger="manual")
        log.warning("execution_failed", duration_ms=8040, error="exit status 1", retry_after_s=2.0)
        logging.getLogger("x").info("of a handler")
    log.info("runner_started", queues=["a", "b"])
    said = [line[9:] for line in stream.getvalue().splitlines()]
    assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in stream.getvalue().splitlines())
    assert said == [
        "started    report plan 12:00:00Z #123 how=won",
        "succeeded  report plan 12:00:00Z #123 duration_ms=25",
        "started    report [acme] plan 12:00:00Z #123 attempt 2 manual how=retried",
        "[warning] failed     report [acme] plan 12:00:00Z #123 attempt 2 duration_ms=8040"
        " error='exit status 1' retry_after_s=2.0",
        "of a handler report [acme] plan 12:00:00Z #123 attempt 2",
        "runner_started queues=a,b",
    ]


def test_a_handler_may_log_anything() -> None:
    stream = Terminal()
    configure("console", "info", stream)
    odd = {"duration_ms": "long", "retry_after_s": None, "plan_time": 3, "scope": object()}
    structlog.get_logger().info("execution_started", **odd)
    structlog.get_logger().info(None, job=1)
    assert len(stream.getvalue().splitlines()) == 2


def test_colours_only_on_a_terminal_that_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, coloured = io.StringIO(), Terminal()
    configure("console", "info", plain)
    structlog.get_logger().error("step_failed")
    monkeypatch.delenv("NO_COLOR")
    configure("console", "info", coloured)
    structlog.get_logger().error("step_failed")
    assert "\x1b" not in plain.getvalue()
    assert "\x1b[31m" in coloured.getvalue()


def test_a_closed_pipe_does_not_reach_the_engine() -> None:
    closed = Closed()
    configure("json", "info", closed)
    structlog.get_logger().info("runner_started")
    logging.getLogger("x").warning("x")
    assert closed.tried >= 2
