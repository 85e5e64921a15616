"""A replica as a process of its own: `python -m tests.cluster.support.runner DSN APP [SETTINGS]`.

APP: `module:name` of an App; SETTINGS: JSON, with `grace` for that of the executor. Logs are JSON
lines on stdout. The first SIGTERM drains, the second aborts.
"""

import asyncio
import importlib
import json
import signal
import sys
from typing import Any

import structlog

from cronledger.declaring.app import App
from cronledger.engine.running.executor import Executor
from cronledger.ledger.migrate import migrate
from cronledger.replica import Replica
from cronledger.settings import Settings
from cronledger.sources.apply import apply


async def serve(url: str, app: App, settings: dict[str, Any]) -> None:
    loop = asyncio.get_running_loop()
    replica = Replica(app, url=url, settings=Settings(**settings), applied=True)
    signals: asyncio.Queue[int] = asyncio.Queue()
    loop.add_signal_handler(signal.SIGTERM, signals.put_nowait, 1)
    await replica.start()
    await signals.get()
    drain = asyncio.ensure_future(replica.drain())
    again = asyncio.ensure_future(signals.get())
    await asyncio.wait([drain, again], return_when=asyncio.FIRST_COMPLETED)
    if not again.cancel():
        await replica.abort()
    await drain


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
    Executor.GRACE = given.pop("grace", Executor.GRACE)
    if given.pop("migrate", False):
        applied = migrate(url)
        structlog.get_logger().info("migrated", applied=applied)
    if given.pop("apply", True):
        commands = importlib.import_module(module).COMMANDS.get(name, ())
        source = given.pop("source", reference)
        deploy = given.get("deploy")
        became = apply(url, [*app.jobs.values(), *commands], source=source, deploy=deploy)
        if became.refused is not None:
            structlog.get_logger().warning("source_refused", why=became.refused)
    asyncio.run(serve(url, app, given))
    structlog.get_logger().info("ended")


if __name__ == "__main__":
    main(*sys.argv[1:])
