"""A page with several ledgers: an overview at `/`, and the page of each ledger below `/l/NAME/`.

They share the sign-in, and nothing else: each ledger has connections of its own, so that a database
that is away delays no other ledger.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from cronledger.settings import Settings
from cronledger.web.access.choice import access_of
from cronledger.web.access.sessions import Sessions
from cronledger.web.application import acting_access, application, make_site, scheme_of
from cronledger.web.links import LEDGERS, TOP
from cronledger.web.overview import Overview, Watch
from cronledger.web.pages import events, overview, report, sign_in, times
from cronledger.web.refresh import Refresh
from cronledger.web.site import Frame, Site, Switcher

PAGES = (events, overview, report, sign_in, times)


def make_sites(settings: Settings, ledgers: Mapping[str, Settings]) -> tuple[Frame, list[Site]]:
    """Return what the requests share: those to the overview, and those to each ledger.

    `settings`: those of the process. `ledgers`: those of each ledger by name. Raises
    ConfigurationError.
    """
    scheme = scheme_of(settings)
    sessions = Sessions([(acting_access(one, None), one.schema_name) for one in ledgers.values()])
    access = access_of(settings, sessions, scheme)
    names = tuple(ledgers)
    sites = [
        make_site(one, None, access=access, switcher=Switcher(names, name))
        for name, one in ledgers.items()
    ]
    watches = [Watch(name, site.reader) for name, site in zip(names, sites, strict=True)]
    frame = Overview(
        watches, access=access, scheme=scheme, refresh=Refresh(None, settings.schema_name),
        switcher=Switcher(names),
    )  # fmt: skip
    return frame, sites


def several(settings: Settings, ledgers: Mapping[str, Settings]) -> Starlette:
    """Return the page over these ledgers, as `make_sites` reads them. Raises ConfigurationError."""
    frame, sites = make_sites(settings, ledgers)
    first = application(lambda: frame, PAGES)
    pages = [application(lambda site=site: site) for site in sites]  # type: ignore[misc]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for page in (*pages, first):
                await stack.enter_async_context(page.router.lifespan_context(page))
            yield

    app = Starlette(
        routes=[
            *(Mount(f"{LEDGERS}/{n}", p) for n, p in zip(ledgers, pages, strict=True)),
            Mount("", first),
        ],
        middleware=[Middleware(_Top)],
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    return app


class _Top:
    """Notes the prefix of the whole page, below which each ledger has its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, TOP: scope.get("root_path", "")}, receive, send)
