"""What every page uses: the pools, the templates, links below a prefix, and messages."""

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, unquote

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context, select_autoescape
from jinja2.runtime import Context
from markupsafe import Markup
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from cronledger.explain import quotes
from cronledger.rules.instants import iso
from cronledger.web import formats, parts, prose
from cronledger.web.access.identity import Access, Identity
from cronledger.web.access.scheme import Scheme
from cronledger.web.acting import Actor
from cronledger.web.examining import Examiner
from cronledger.web.expected import Expectations
from cronledger.web.following import Followers
from cronledger.web.forecasting import Forecasts
from cronledger.web.links import Links, local_address, path_of, root_of
from cronledger.web.reading import Reader, Reading
from cronledger.web.redaction import Redaction
from cronledger.web.refresh import Refresh
from cronledger.web.run_reports import RunReports
from cronledger.web.verifying import Verifier

if TYPE_CHECKING:
    from cronledger.metrics.ledger_metrics import LedgerMetrics

IDENTITY = "cronledger_identity"
"""The name of the identity in the state of a request, which the embedding program uses as well."""

MESSAGE = "cronledger_message"
"""The cookie with the message of an action, for the page that follows it."""

ZONE = "cronledger_times"
"""The cookie with the zone in which a browser shows times; without it, each job's own."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the navigation: its title, and the path of its page."""

    title: str
    path: str


class _Page(Protocol):
    """A page of the navigation."""

    ENTRY: Entry


@dataclass(frozen=True, slots=True)
class Group:
    """A group of the navigation. `steps`: with what the paths of its pages begin."""

    title: str
    entries: tuple[Entry, ...]
    steps: frozenset[str]

    @classmethod
    def of(cls, title: str, *pages: _Page, further: Iterable[str] = ()) -> "Group":
        """Return the group of these pages, and of `further` ones that they lead to."""
        entries = tuple(page.ENTRY for page in pages)
        return cls(title, entries, frozenset([*(_step(one.path) for one in entries), *further]))

    def has(self, path: str) -> bool:
        """Return whether the page of this path belongs to the group."""
        return _step(path) in self.steps


def _step(path: str) -> str:
    """Return the first word of a path: `job` of `/job/NAME` and of `/job-run`."""
    return re.split(r"[/-]", path.removeprefix("/"))[0]


@dataclass(frozen=True, slots=True)
class Switcher:
    """The ledgers of a page that has several. `own`: the one of this page; None: all of them."""

    names: tuple[str, ...]
    own: str | None = None


@cache
def _templates() -> Environment:
    """Return the templates of all pages, each of which is compiled once in a process."""
    made = Environment(
        loader=PackageLoader("cronledger.web"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        finalize=formats.finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "instant": _instant, "age": _age, "ago": formats.ago, "span": formats.span,
        "number": formats.number, "code": formats.code, "iso": iso, "part": parts.part,
        "known_zone": formats.known_zone, "wall_time": formats.wall_time,
        "pieces": prose.pieces, "quoted_in": quotes.of_alert,
    }  # fmt: skip
    made.globals["version"] = metadata.version("cronledger")
    return made


class Frame:
    """What the pages of a ledger have in common with a page over several ledgers."""

    def __init__(
        self, *, access: Access, scheme: Scheme, refresh: Refresh, groups: Sequence[Group] = (),
        ledger_name: str | None = None, switcher: Switcher | None = None,
    ) -> None:  # fmt: skip
        self.access = access
        self.scheme = scheme
        self.refresh = refresh
        self.groups = groups
        self.switcher = switcher
        self._ledger_name = ledger_name

    def live(
        self, request: Request, template: str, now: datetime | None, *, status: int = 200,
        **context: object,
    ) -> Response:  # fmt: skip
        """Return a page that reads itself again while it is open. `now`: the database's time."""
        is_live = request.method == "GET" and status == 200
        made: dict[str, parts.Part] = {}
        context |= {"now": now, "is_live": is_live, "parts": made}
        response = self.plain(request, template, status=status, **context)
        return parts.answer(request, response, made, now) if is_live else response

    def plain(
        self, request: HTTPConnection, template: str, *, status: int = 200, **context: object
    ) -> HTMLResponse:
        """Return a page that reads nothing from the database."""
        identity: Identity | None = request.scope.get("state", {}).get(IDENTITY)
        here = path_of(request)
        entries = {entry.path: entry for group in self.groups for entry in group.entries}
        own_page = next(
            (one for path, one in entries.items() if f"{here}/".startswith(f"{path}/")), None
        )
        message = None if parts.is_again(request) else _message(request)
        common: dict[str, object] = {
            "to": Links(request), "identity": identity, "signs_in": self.access.signs_in,
            "navigation": self.groups if identity else (), "own_page": own_page,
            "own_group": next((one for one in self.groups if one.has(here)), None),
            "message": message, "head": None, "is_live": False, "ledger": self._ledger_name,
            "now": None, "parts": {}, "shown_zone": formats.known_zone(request.cookies.get(ZONE)),
            "own_address": local_address(request), "switcher": self.switcher,
            "shared_page": here if here in entries else "/",
        }  # fmt: skip
        text = _templates().get_template(template).render({**common, **context})
        response = HTMLResponse(text, status)
        if message is not None:
            response.delete_cookie(MESSAGE, path=root_of(request) or "/")
        return response

    async def close(self) -> None:
        """Close what the requests used."""
        await self.access.close()


class Site(Frame):
    """The page of one ledger in a process: what its requests share."""

    def __init__(
        self, *, reader: Reader, operators: Reader, actor: Actor, verifier: Verifier,
        examiner: Examiner, run_reports: RunReports, access: Access, scheme: Scheme,
        redaction: Redaction, refresh: Refresh, metrics: "Callable[[], LedgerMetrics]",
        groups: Sequence[Group], ledger_name: str | None, switcher: Switcher | None = None,
    ) -> None:  # fmt: skip
        """`operators` reads with the acting login what operators alone may see.

        `metrics` needs the extra `metrics`. `ledger_name`: if None, pages show the database's name.
        """
        super().__init__(
            access=access, scheme=scheme, refresh=refresh, groups=groups, ledger_name=ledger_name,
            switcher=switcher,
        )  # fmt: skip
        self.operators = operators
        self.metrics = metrics
        self.followers = Followers()
        self.forecasts = Forecasts()
        self.redaction = redaction
        self.reader = reader
        self.expectations = Expectations(reader)
        self.actor = actor
        self.verifier = verifier
        self.examiner = examiner
        self.run_reports = run_reports

    async def page(
        self, request: Request, template: str, *, status: int = 200, **context: object
    ) -> Response:
        """Return a page with the navigation, and with the database's time as `now`."""
        head = await self.reader.read("read_head")
        context |= {"head": head, "ledger": self._ledger_name or _first(head, "name")}
        return self.live(request, template, head.now, status=status, **context)

    def done(self, request: Request, message: str, path: str, **query: object) -> Response:
        """Return a redirect to a page, which shows `message` once, and reads everything again."""
        self.reader.expire()
        self.operators.expire()
        response = RedirectResponse(Links(request)(path, **query), 303)
        response.set_cookie(
            MESSAGE, quote(json.dumps(message)), max_age=60, path=root_of(request) or "/",
            httponly=True, samesite="strict", secure=self.scheme.is_https(request),
        )  # fmt: skip
        return response

    async def close(self) -> None:
        """End the work of threads, and close the connections."""
        await asyncio.gather(self.verifier.close(), self.examiner.close())
        self.forecasts.close()
        await self.reader.close()
        await self.operators.close()
        await self.actor.close()
        await self.run_reports.close()
        await super().close()


class NotStartedError(RuntimeError):
    """A request reached a page whose lifespan has not started, or has ended."""

    def __init__(self) -> None:
        super().__init__(
            "the lifespan of the cronledger page has not started, or has ended: enter"
            " `page.router.lifespan_context(page)` in the lifespan of the program that mounts it"
        )


def frame_of(request: HTTPConnection) -> Frame:
    """Return what serves this request: the page of a ledger, or that of several.

    Raises NotStartedError.
    """
    frame: Frame | None = getattr(request.app.state, "site", None)
    if frame is None:
        raise NotStartedError
    return frame


def site_of(request: HTTPConnection) -> Site:
    """Return the page of the ledger that serves this request. Raises NotStartedError."""
    site = frame_of(request)
    assert isinstance(site, Site)
    return site


def identity_of(request: Request) -> Identity:
    """Return the sender of this request."""
    identity: Identity = request.scope["state"][IDENTITY]
    return identity


@pass_context
def _instant(
    context: Context, value: datetime | None, zone: str | None = None, now: datetime | None = None,
    *, exact: bool = False,
) -> Markup:  # fmt: skip
    """Write an instant in the zone that the browser chose, otherwise in `zone`."""
    return formats.instant(value, zone, now, context["shown_zone"], exact=exact)


@pass_context
def _age(context: Context, value: datetime | None, *, bare: bool = False) -> Markup:
    """Write the time since an instant or until it; `bare`: without `ago` and `in`."""
    return formats.age(value, context["now"], context["shown_zone"], bare=bare)


def _message(request: HTTPConnection) -> str | None:
    try:
        found = json.loads(unquote(request.cookies.get(MESSAGE, "")))
    except ValueError:
        return None
    return found if isinstance(found, str) else None


def _first(reading: Reading, column: str) -> Any:
    row: Mapping[str, Any] | None = next(iter(reading.known), None)
    return None if row is None else row[column]
