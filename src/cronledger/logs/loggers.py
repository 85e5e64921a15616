"""The loggers of this package.

`cronledger run` configures structlog (see `output`). If a host program configures structlog, that
configuration is used. Otherwise the lines go to the standard `logging` under the name of the
module, so that nothing is written unless the program configures it.
"""

import logging
import sys
from typing import Any

import structlog
from structlog.typing import EventDict

from cronledger.logs.fields import FIELDS, add_replica_fields, replica_fields
from cronledger.logs.output import as_text, renderer_of, scrub, steady
from cronledger.settings import Settings

ROOT = "cronledger"
"""The parent of all loggers of this package. Its level, if set, applies in every program."""

_LEVELS = logging.getLevelNamesMapping() | {"EXCEPTION": logging.ERROR}


class Line:
    """The message of a record: text for foreign handlers, values for the handler of `follow`."""

    def __init__(self, event: EventDict) -> None:
        self.event = event

    def __str__(self) -> str:
        return as_text(self.event)


class Logger:
    """The logger of one module, with the interface of structlog."""

    def __init__(self, name: str) -> None:
        self._structured = structlog.get_logger(name)
        self._standard = structlog.wrap_logger(
            logging.getLogger(name),
            processors=[
                structlog.stdlib.filter_by_level,
                structlog.contextvars.merge_contextvars,
                add_replica_fields,
                scrub,
                _record,
            ],
            wrapper_class=structlog.stdlib.BoundLogger,
            cache_logger_on_first_use=True,
        )

    def __getattr__(self, method: str) -> Any:
        if not structlog.is_configured():
            return getattr(self._standard, method)
        level = _LEVELS.get(method.upper(), 0)
        if level < _root.level:
            return _silent
        logger = self._structured.bind()
        if getattr(logger, "is_enabled_for", _any_level)(level):
            logger = logger.bind(**replica_fields())
        return getattr(logger, method)


def get_logger(name: str) -> Any:
    """Return the logger of the module `name`."""
    return Logger(name)


def follow(settings: Settings) -> None:
    """Apply `log_level` and `log_format` in a host program, if they are set.

    A format needs a handler of its own, which writes to standard error. It replaces the handlers of
    the host for the lines of this package. If the host configured structlog, the format is ignored.
    """
    given = settings.model_fields_set
    if "log_level" in given:
        _root.setLevel(settings.log_level.upper())
    if "log_format" not in given or structlog.is_configured():
        return
    handler = logging.StreamHandler(steady(sys.stderr))
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                _values,
                structlog.stdlib.add_log_level,
                structlog.stdlib.add_logger_name,
                structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            ],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                scrub,
                renderer_of(settings.log_format, sys.stderr),
            ],
            pass_foreign_args=True,
        )
    )
    _root.handlers[:] = [handler]
    _root.propagate = False
    if _root.level == logging.NOTSET:
        _root.setLevel(settings.log_level.upper())


_root = logging.getLogger(ROOT)
# Without a handler, `logging` would print warnings in a program that configures nothing.
_root.addHandler(logging.NullHandler())


def _any_level(_: int) -> bool:
    return True


def _silent(*_: object, **__: object) -> None:
    return


def _record(_: object, __: str, event: EventDict) -> tuple[tuple[Line], dict[str, Any]]:
    """Return the arguments of the standard logger's method. The fields become attributes."""
    error = event.pop("exc_info", None)
    fields = {name: event[name] for name in FIELDS if name in event}
    return (Line(event),), {"exc_info": error, "extra": fields}


def _values(_: object, __: str, event: EventDict) -> EventDict:
    """Replace the text of a line of this package by its values."""
    line = event["_record"].msg
    return {**event, **line.event} if isinstance(line, Line) else event
