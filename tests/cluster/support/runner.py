"""A replica as a process of its own: `python -m tests.cluster.support.runner DSN APP [SETTINGS]`.

APP: `module:name` of an App; SETTINGS: JSON, with `apply` in addition. Logs are JSON lines on
stdout. SIGTERM drains.
"""

import asyncio
import importlib
import json
import signal
import sys
from typing import Any

import structlog

from cronledger.declaring.app import App
from cronledger.replica import Replica
from cronledger.settings import Settings
from cronledger.sources.apply import apply


async def serve(url: str, app: App, settings: dict[str, Any]) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with Replica(app, url=url, settings=Settings(**settings), applied=True):
        await stopped.wait()


def log_json() -> None:
    """Log each event as a line of JSON on standard output.

    A line is one write, because processes that share the output would mix shorter pieces.
    """
    structlog.configure(
        logger_factory=structlog.WriteLoggerFactory(),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
        ],
    )


def main(url: str, reference: str, settings: str = "{}") -> None:
    log_json()
    module, _, name = reference.partition(":")
    app: App = getattr(importlib.import_module(module), name)
    given = json.loads(settings)
    if given.pop("apply", True):
        commands = importlib.import_module(module).COMMANDS.get(name, ())
        apply(url, [*app.jobs.values(), *commands], channels=app.channels, source=reference)
    asyncio.run(serve(url, app, given))
    structlog.get_logger().info("ended")


if __name__ == "__main__":
    main(*sys.argv[1:])
