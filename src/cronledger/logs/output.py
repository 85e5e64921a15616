"""The form of log lines: a short line for people on a terminal, otherwise JSON lines.

One renderer writes the events of structlog and the lines of the standard `logging` (those of
handlers and libraries). During an execution, each line contains job, scope, execution_id, plan_time
and attempt, and trace_id if it is traced. Passwords of connection strings are masked.
"""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal, TextIO

import structlog
from structlog.dev import (
    RESET_ALL,
    Column,
    ColumnFormatter,
    ConsoleRenderer,
    LogLevelColumnFormatter,
)
from structlog.typing import EventDict, Processor

from cronledger.logs.fields import add_replica_fields
from cronledger.rules.masks import scrubbed

Format = Literal["auto", "console", "json"]

_FIRST = ("time", "level", "event", "job", "scope", "execution_id", "plan_time", "attempt")
_WORDS = {
    "execution_started": "started",
    "execution_succeeded": "succeeded",
    "execution_failed": "failed",
    "execution_cancelled": "cancelled",
    "execution_released": "released",
    "execution_swept": "swept",
}


def configure(form: Format, level: str, stream: TextIO | None = None) -> None:
    """Write every log line of this process to `stream` (standard error) in that form."""
    stream = stream or sys.stderr
    threshold = logging.getLevelNamesMapping()[level.upper()]
    before: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        add_replica_fields,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
        scrub,
    ]
    renderer = renderer_of(form, stream)
    written = steady(stream)
    structlog.configure(
        processors=[*before, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.WriteLoggerFactory(written),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(written)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *before[:4]],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                scrub,
                renderer,
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=threshold, force=True)
    logging.getLogger("cronledger").setLevel(threshold)
    # psycopg warns about every broken connection, which `database_unreachable` reports once.
    logging.getLogger("psycopg").setLevel(logging.ERROR)


def renderer_of(form: Format, stream: TextIO) -> Processor:
    """Return a renderer of events, in the form that fits `stream`."""
    on_terminal = stream.isatty()
    if form == "json" or (form == "auto" and not on_terminal):
        return json_line()
    return console_line(colours=on_terminal and not os.environ.get("NO_COLOR"))


def steady(stream: TextIO) -> Any:
    """Return `stream`, wrapped so that a failure to write raises nothing."""
    return _SafeStream(stream)


class _SafeStream:
    """A stream that cannot fail, because a full disk or a closed pipe must not stop the engine."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except (OSError, ValueError):
            return 0
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            return


def scrub(_: object, __: str, event: EventDict) -> EventDict:
    """Mask passwords of connection strings, and rows that PostgreSQL quotes, in every value."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = scrubbed(value)
    return event


def json_line() -> Callable[[Any, str, EventDict], str]:
    """Return a renderer of JSON objects, which begin with the common keys and the execution."""
    render = structlog.processors.JSONRenderer(ensure_ascii=False)

    def line(logger: Any, name: str, event: EventDict) -> str:
        first = {key: event.pop(key) for key in _FIRST if key in event}
        return str(render(logger, name, {**first, **event}))

    return line


def console_line(*, colours: bool) -> Processor:
    """Return a renderer of lines such as `12:00:05 succeeded  report plan 12:00:00Z #123`.

    Times are in UTC. A level is shown unless it is info.
    """
    level = LogLevelColumnFormatter(
        ConsoleRenderer.get_default_level_styles(colours), RESET_ALL if colours else "", width=0
    )
    shown: Mapping[str, Callable[[object], str]] = {
        "time": lambda time: str(time)[11:19],
        "level": lambda name: "" if name == "info" else level("level", name),
        "event": lambda name: f"{_WORDS.get(str(name), str(name)):<10}",
        "job": str,
        "scope": lambda scope: "" if scope == "global" else f"[{scope}]",
        "plan_time": lambda time: f"plan {str(time)[11:19]}Z",
        "execution_id": lambda number: f"#{number}",
        "attempt": lambda attempt: "" if attempt == 1 else f"attempt {attempt}",
        "trigger": lambda trigger: "" if trigger == "schedule" else str(trigger),
        "logger": lambda _: "",
    }
    columns = [Column(key, _formatter(text)) for key, text in shown.items()]
    columns.append(Column("", _pair))
    return ConsoleRenderer(columns=columns, sort_keys=False)


def _formatter(text: Callable[[object], str]) -> ColumnFormatter:
    def formatted(key: str, value: object) -> str:
        return text(value)

    return formatted


def _pair(key: str, value: object) -> str:
    return "" if value is None else f"{key}={_text(value)}"


def as_text(event: EventDict) -> str:
    """Return an event as one line: its name, then its values."""
    values = (f"{key}={_text(x)}" for key, x in event.items() if key != "event" and x is not None)
    return " ".join([str(event.get("event", "")), *values])


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    text = str(value)
    return repr(text) if not text or any(c.isspace() for c in text) else text
