"""What Python handlers print and log: it goes where it went before, and to their output as well.

A context variable names the output. Threads and pools that a handler starts get its value.
"""

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from cronledger.logs.loggers import ROOT
from cronledger.rules.outcome import Outcome


class Printed(Protocol):
    """The output of one attempt. Every thread may `write`. `over`: nothing is added any more."""

    over: bool

    def write(self, text: str) -> None: ...

    def end(self, ended: Outcome) -> Outcome:
        """Return the outcome with the output, to which nothing is added any more."""
        ...


_PRINTED: ContextVar[Printed | None] = ContextVar("cronledger_printed", default=None)
_FORMAT = logging.Formatter("%(levelname)s %(name)s: %(message)s")


def begin(printed: Printed) -> None:
    """Capture what this task prints and logs, until the attempt has ended.

    It is faster than `captured`.
    """
    _PRINTED.set(printed)


@contextmanager
def captured(printed: Printed | None) -> Iterator[None]:
    """Capture what is printed and logged inside; None: nothing is captured."""
    before = _PRINTED.set(printed)
    try:
        yield
    finally:
        _PRINTED.reset(before)


class _Stream:
    """A stream that shows its text to the output of the execution that writes it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> Any:
        written = self._stream.write(text)
        if (printed := _PRINTED.get()) is not None:
            printed.write(text)
        return written

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _record(factory: Callable[..., logging.LogRecord]) -> Callable[..., logging.LogRecord]:
    """Return a factory of records that captures them.

    A handler of the root logger would prevent `logging.basicConfig` of the program.
    """

    def make(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = factory(*args, **kwargs)
        printed = _PRINTED.get()
        if printed is not None and not _is_seen(record):
            printed.write(_line(record) + "\n")
        return record

    return make


def _line(record: logging.LogRecord) -> str:
    """Return the line of a record; the message as it is, if its arguments do not fit."""
    try:
        return _FORMAT.format(record)
    except Exception:  # noqa: BLE001 - of the program; logging does not raise it either
        return f"{record.levelname} {record.name}: {record.msg!r}"


def _is_seen(record: logging.LogRecord) -> bool:
    """Return whether the record is not of the handler, or is written to a captured stream."""
    # `logging.makeLogRecord` sets the name of a copy later; the formatter of structlog calls it.
    if not record.name:
        return True
    if record.name == ROOT or record.name.startswith(f"{ROOT}."):
        return True
    logger: logging.Logger | None = logging.getLogger(record.name)
    handlers: list[logging.Handler] = []
    while logger is not None:
        handlers += logger.handlers
        logger = logger.parent if logger.propagate else None
    if not handlers and logging.lastResort is not None:
        handlers = [logging.lastResort]
    return any(
        record.levelno >= one.level and isinstance(getattr(one, "stream", None), _Stream)
        for one in handlers
    )


def _start(start: Callable[..., None]) -> Callable[..., None]:
    def started(thread: threading.Thread) -> None:
        if (printed := _PRINTED.get()) is not None:
            run = thread.run

            def captured_run() -> None:
                with captured(printed):
                    run()

            thread.run = captured_run  # type: ignore[method-assign]
        start(thread)

    return started


def _submit(submit: Callable[..., Any]) -> Callable[..., Any]:
    # Otherwise a pool would keep the output of the handler that started its threads.
    def submitted(pool: ThreadPoolExecutor, work: Any, /, *args: Any, **kwargs: Any) -> Any:
        printed = _PRINTED.get()

        def captured_work() -> Any:
            with captured(printed):
                return work(*args, **kwargs)

        return submit(pool, captured_work)

    return submitted


_replaced: dict[str, tuple[Any, Any]] = {}
_users = 0


def install() -> None:
    """Capture in this process, until each call is undone by `uninstall`.

    A stream that the program has replaced since an earlier call is captured from now on.
    """
    global _users  # noqa: PLW0603 - the streams are global, too
    _users += 1
    for name in ("stdout", "stderr"):
        if not isinstance(getattr(sys, name), _Stream):
            _replace(name, sys, name, _Stream)
    if _users > 1:
        return
    _replace("start", threading.Thread, "start", _start)
    _replace("submit", ThreadPoolExecutor, "submit", _submit)
    before = logging.getLogRecordFactory()
    _replaced["record"] = before, _record(before)
    logging.setLogRecordFactory(_replaced["record"][1])


def _replace(key: str, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    before = getattr(owner, name)
    if before is not None:  # a program without a console has no streams
        _replaced[key] = before, wrap(before)
        setattr(owner, name, _replaced[key][1])


def uninstall() -> None:
    """Undo one `install`, except where the program has replaced what it replaced."""
    global _users  # noqa: PLW0603
    _users -= 1
    if _users:
        return
    places = {"stdout": sys, "stderr": sys, "start": threading.Thread, "submit": ThreadPoolExecutor}
    for key, owner in places.items():
        if key in _replaced and getattr(owner, key) is _replaced[key][1]:
            setattr(owner, key, _replaced[key][0])
    if logging.getLogRecordFactory() is _replaced["record"][1]:
        logging.setLogRecordFactory(_replaced["record"][0])
    _replaced.clear()
