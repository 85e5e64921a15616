"""cronledger: cron for teams on PostgreSQL. `from cronledger import App, Context, Result`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cronledger.client import AsyncClient, Client
    from cronledger.declaring.app import App, Cancelled, CancelToken, Context
    from cronledger.declaring.middleware import Middleware
    from cronledger.replica import Replica
    from cronledger.rules.calendar_spec import CalendarSpec
    from cronledger.rules.model import Window
    from cronledger.rules.notify import Notify
    from cronledger.rules.outcome import Discard, LeaseLost, NotReady, Result, Retry
    from cronledger.rules.requirements import Requirement

    __version__: str

__all__ = [
    "App",
    "AsyncClient",
    "CalendarSpec",
    "CancelToken",
    "Cancelled",
    "Client",
    "Context",
    "Discard",
    "LeaseLost",
    "Middleware",
    "NotReady",
    "Notify",
    "Replica",
    "Requirement",
    "Result",
    "Retry",
    "Window",
    "__version__",
]

_HOMES = {
    "App": "cronledger.declaring.app",
    "AsyncClient": "cronledger.client",
    "CalendarSpec": "cronledger.rules.calendar_spec",
    "CancelToken": "cronledger.declaring.app",
    "Cancelled": "cronledger.declaring.app",
    "Client": "cronledger.client",
    "Context": "cronledger.declaring.app",
    "Discard": "cronledger.rules.outcome",
    "LeaseLost": "cronledger.rules.outcome",
    "Middleware": "cronledger.declaring.middleware",
    "NotReady": "cronledger.rules.outcome",
    "Notify": "cronledger.rules.notify",
    "Replica": "cronledger.replica",
    "Requirement": "cronledger.rules.requirements",
    "Result": "cronledger.rules.outcome",
    "Retry": "cronledger.rules.outcome",
    "Window": "cronledger.rules.model",
}


def __getattr__(name: str) -> object:
    """Import a name when it is first used, so that the import of the package is cheap."""
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415

        value: object = version("cronledger")
    elif name in _HOMES:
        from importlib import import_module  # noqa: PLC0415

        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
