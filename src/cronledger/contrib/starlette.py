"""A replica inside Starlette and FastAPI: `FastAPI(lifespan=cronledger_lifespan(app))`.

Each process of the server runs a replica between its startup and its shutdown. The module needs
only the lifespan protocol, so it does not import Starlette.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from cronledger.declaring.app import App
from cronledger.declaring.resources import check_lifespan
from cronledger.engine.apps import source_of
from cronledger.replica import DrainReport, Replica
from cronledger.settings import Settings

STATE = "cronledger"
"""The name of the replica in the state of requests: `request.state.cronledger`."""

Lifespan = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]]
"""A lifespan of Starlette or FastAPI, with or without a state."""


def cronledger_lifespan(
    *apps: App,
    lifespan: Lifespan | None = None,
    url: str | None = None,
    settings: Settings | None = None,
) -> Callable[[Any], AbstractAsyncContextManager[dict[str, Any]]]:
    """Return a lifespan of Starlette or FastAPI that runs a replica with the jobs of `apps`.

    The replica starts at the startup of the server, and drains for `drain_timeout` at its shutdown.
    If the server cancels the lifespan, the replica stops running work at once. It handles no
    signals. `lifespan`: your own, which is entered before the replica starts and left after its
    end; requests receive its state. `request.state.cronledger` is the `Replica`. `url` and
    `settings` are those of `Replica`: by default those of the environment.

    The lifespan raises what `Replica.start` raises, which ends the startup of the server; your own
    lifespan is left then. It raises ValueError if your own yields a state named `cronledger`.

    Raises TypeError for an argument that is not an App of cronledger, and for a `lifespan` that
    cannot be one, and ConfigurationError for an App without a name.
    """
    for app in apps:
        _check(app)
    if lifespan is not None:
        check_lifespan(lifespan)

    @asynccontextmanager
    async def running(server_app: Any) -> AsyncIterator[dict[str, Any]]:
        async with AsyncExitStack() as stack:
            own = await stack.enter_async_context(lifespan(server_app)) if lifespan else None
            state = dict(own or {})
            if STATE in state:
                raise ValueError(
                    f"your lifespan yields a state with the name {STATE!r}, which is that of the "
                    "replica; choose another name"
                )
            state[STATE] = replica = Replica(*apps, url=url, settings=settings)
            await replica.start()
            end: Callable[[], Awaitable[DrainReport]] = replica.drain
            try:
                yield state
            except asyncio.CancelledError:
                end = replica.abort  # the server does not wait for a drain
                raise
            finally:
                await end()

    return running


def _check(app: App) -> None:
    """Raise unless `app` can run in a replica."""
    if not isinstance(app, App):
        raise TypeError(
            f"cronledger_lifespan() received a {type(app).__module__}.{type(app).__name__}, and "
            "needs Apps of cronledger; write `lifespan=cronledger_lifespan(app)`, where `app` "
            "declares jobs with `@app.job`"
        )
    source_of(app)
