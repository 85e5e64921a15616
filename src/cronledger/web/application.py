"""`create_app`: the page as an ASGI application, to be served alone or below any prefix."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from cronledger.ledger import access as database
from cronledger.ledger.access import dsn_of
from cronledger.ledger.database_errors import explained
from cronledger.ledger.refusals import LedgerError, NotFoundError
from cronledger.logs.loggers import get_logger
from cronledger.rules.remedies import Surface
from cronledger.settings import Settings
from cronledger.tracing.interface import tracing_of
from cronledger.web.access.choice import access_of
from cronledger.web.access.embedded import EmbeddedAccess
from cronledger.web.access.headers import HEADERS, Headers
from cronledger.web.access.identity import Access, Identify, RefusedRequestError
from cronledger.web.access.scheme import Scheme
from cronledger.web.access.sessions import Sessions
from cronledger.web.acting import Actor
from cronledger.web.compression import Compression
from cronledger.web.examining import Examiner
from cronledger.web.gate import Gate, refusal
from cronledger.web.pages import (
    audit,
    calendars,
    events,
    execution,
    forecast,
    job,
    job_actions,
    jobs,
    ledger,
    ledger_actions,
    metrics,
    now,
    pauses,
    report,
    runners,
    saved_views,
    search,
    sign_in,
    timeline,
    times,
    verification,
    why,
)
from cronledger.web.reading import Reader
from cronledger.web.redaction import Redaction
from cronledger.web.refresh import Refresh
from cronledger.web.run_reports import RunReports
from cronledger.web.site import Frame, Group, NotStartedError, Site, Switcher, frame_of
from cronledger.web.stop_signals import at_stop_signals
from cronledger.web.verifying import Verifier

if TYPE_CHECKING:
    from cronledger.metrics.ledger_metrics import LedgerMetrics

log = get_logger(__name__)

GROUPS = (
    Group.of("Now", now),
    Group.of("Jobs", jobs, calendars, pauses, further=["job"]),
    Group.of("Runs", ledger, timeline, why, further=["execution"]),
    Group.of("Capacity", runners, forecast, further=["queues"]),
    Group.of("Trust", verification, audit),
)
"""The navigation. Each page of a group has `ENTRY`."""


class Page(Protocol):
    """A module with the routes of a page."""

    ROUTES: list[Route]


PAGES: tuple[Page, ...] = (
    audit, calendars, events, execution, forecast, job, job_actions, jobs, ledger, ledger_actions,
    metrics, now, pauses, report, runners, saved_views, search, sign_in, timeline, times,
    verification, why,
)  # fmt: skip
"""All pages. Each has `ROUTES`."""


def create_app(
    *, identify: Identify | None = None, settings: Settings | None = None, url: str | None = None
) -> Starlette:
    """Return the page, whose lifespan reads the settings and ends its work and its connections.

    A program that mounts the page enters `page.router.lifespan_context(page)` in its own lifespan.
    The page connects to the database at the first request. A stop signal ends its streams, so that
    the server does not wait for them.

    `identify`: returns the `Identity` of a request, or None to refuse it; without it, the setting
    `web_auth` decides. `settings`: by default those of the environment. `url`: takes the place of
    `database_url`.

    The lifespan raises ConfigurationError if a setting is missing or cannot work, which ends the
    startup of the server.
    """
    return application(lambda: make_site(settings or Settings.load(), url, identify))


def make_site(
    settings: Settings, url: str | None, identify: Identify | None = None,
    access: Access | None = None, switcher: Switcher | None = None,
) -> Site:  # fmt: skip
    """Return what the requests share. Raises ConfigurationError.

    `access`: that of a page with several ledgers, of which `switcher` has the names.
    """
    reading = _database(settings, settings.web_read_url, url)
    acting = acting_access(settings, url)
    reader = Reader(reading, settings.schema_name)
    refresh = Refresh(_listen_access(settings, url), settings.schema_name)

    def verified() -> None:
        reader.expire()
        refresh.notify()

    @cache
    def measured() -> "LedgerMetrics":
        # Imported when used, because the extra may be missing.
        from cronledger.metrics.ledger_metrics import LedgerMetrics  # noqa: PLC0415

        limit, name = settings.metrics_jobs, settings.ledger_name
        return LedgerMetrics(reader.lend, settings.schema_name, job_limit=limit, ledger=name)

    scheme = scheme_of(settings)
    if access is None:
        access = (
            EmbeddedAccess(identify)
            if identify
            else access_of(settings, Sessions([(acting, settings.schema_name)]), scheme)
        )
    return Site(
        reader=reader,
        operators=Reader(acting, settings.schema_name),
        actor=Actor(acting, settings.schema_name, tracing_of(settings)),
        verifier=Verifier(acting, settings.schema_name, verified),
        examiner=Examiner(reading, settings),
        run_reports=RunReports(acting, settings.schema_name),
        access=access,
        scheme=scheme,
        redaction=Redaction(settings.web_redact),
        refresh=refresh,
        metrics=measured,
        groups=GROUPS,
        ledger_name=settings.ledger_name,
        switcher=switcher,
    )  # fmt: skip


def scheme_of(settings: Settings) -> Scheme:
    """Return how the page learns whether a browser uses HTTPS."""
    return Scheme(settings.web_proxy_peers, settings.web_public_url)


def acting_access(settings: Settings, url: str | None) -> database.Access:
    """Return how the page reaches the database to act. Raises ConfigurationError."""
    return _database(settings, settings.web_act_url, url)


def application(make: Callable[[], Frame], pages: Sequence[Page] = PAGES) -> Starlette:
    """Return the page, whose lifespan calls `make` for what its requests share."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        site = app.state.site = make()
        try:
            with at_stop_signals(site.refresh.stop):
                yield
        finally:
            del app.state.site
            await site.close()

    app = Starlette(
        routes=[
            *(route for page in pages for route in page.ROUTES),
            Mount("/static", _Static(packages=[("cronledger.web", "static")]), name="static"),
        ],
        middleware=[
            Middleware(Compression),
            Middleware(Headers),
            Middleware(Gate),
        ],
        exception_handlers={
            HTTPException: _http_error,
            ClientDisconnect: _disconnected,
            RefusedRequestError: _refused,
            LedgerError: _ledger_error,
            psycopg.Error: _database_error,
            Exception: _defect,
        },
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # it would redirect to an absolute address
    return app


def read_url(settings: Settings, url: str | None) -> str:
    """Return the DSN with which the page reads. Raises ConfigurationError if there is none."""
    return _database(settings, settings.web_read_url, url).url


def _database(settings: Settings, own: SecretStr | None, url: str | None) -> database.Access:
    """Return how one of the two pools reaches its database. Raises ConfigurationError."""
    if own is not None:
        url = own.get_secret_value()
    found = database.Access.from_settings(settings, dsn_of(settings) if url is None else url)
    found.parameters("")  # refuses a DSN that cannot work
    return found


def _listen_access(settings: Settings, url: str | None) -> database.Access | None:
    """Return how to receive notifications, or None behind a pooler without `listen_url`."""
    if settings.listen_url is None and settings.pgbouncer:
        return None
    return _database(settings, settings.listen_url or settings.web_act_url, url)


class _Static(StaticFiles):
    """The stylesheet and the script. A browser asks whether they have changed."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["Cache-Control"] = "no-cache"
        return response


async def _disconnected(_request: Request, _error: Exception) -> Response:
    """Return what nobody receives: anybody may end a request early, so that is not logged."""
    return Response(status_code=400)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    titles = {404: "Not found", 405: "Not possible", 400: "Not understood", 413: "Too large"}
    text = "There is no such page." if error.detail == "Not Found" else error.detail
    return frame_of(request).plain(
        request, "error.html", status=error.status_code,
        title=titles.get(error.status_code, "Refused"), text=text,
    )  # fmt: skip


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedRequestError)
    return refusal(frame_of(request), request, error)


async def _ledger_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, LedgerError)
    return frame_of(request).plain(
        request, "error.html", status=404 if isinstance(error, NotFoundError) else 409,
        title="The ledger refused this", text=error.message, detail=error.detail,
        remedy=error.remedy,
    )  # fmt: skip


async def _database_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, psycopg.Error)
    log.warning("web_act_failed", path=request.url.path, error=str(error))
    shown = explained(error, Surface.PAGE)
    return frame_of(request).plain(
        request, "error.html", status=503, title="The database did not confirm this",
        text=shown.message, detail="It is not known whether anything was changed.",
        remedy="Open the page again once the database responds, and check its current state.",
    )  # fmt: skip


async def _defect(request: Request, error: Exception) -> Response:
    """Starlette raises the error again, so that the server logs it."""
    if isinstance(error, NotStartedError):
        return PlainTextResponse(f"{error}\n", 500, HEADERS)
    response = frame_of(request).plain(
        request, "error.html", status=500, title="A defect of this page",
        text="The page could not be created. The log of the server contains the reason.",
    )  # fmt: skip
    response.headers.update(HEADERS)  # this response does not pass the middleware
    return response
