"""The address of every page. Each is below the prefix at which the page is mounted."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from urllib.parse import quote, urlencode

from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from cronledger.rules.instants import iso

IN_PATH = {"/job": ("name",), "/execution": ("id",), "/why": ("job", "time")}
"""The pages whose path names what they show, with the fields that it has: `/job/NAME`.

The first field may contain slashes.
"""
LEDGERS = "/l"
"""The path below which each of several ledgers has its pages: `/l/NAME/`."""
TOP = "cronledger_top"
"""The prefix of a page over several ledgers, in the scope of the requests to each of them."""
_PREFIX = "path_"
"""Before the names of fields in routes, because the program around the page has its own names."""
_NOT_A_STEP = {"", ".", ".."}
"""Browsers and proxies would remove these from a path."""


class Links:
    """Makes the address of a page: `to("/job", name="report")` is `/job/report`."""

    def __init__(self, request: HTTPConnection, ledger: str | None = None) -> None:
        """`ledger`: one of several, whose pages these are; None: that of the request."""
        self._request = request
        self._root = (
            root_of(request) if ledger is None else f"{top_of(request)}{LEDGERS}/{quote(ledger)}"
        )

    def __call__(self, path: str, **query: object) -> str:
        return self._root + address(path, query)

    def of(self, ledger: str) -> "Links":
        """Return the links to the pages of one of several ledgers."""
        return Links(self._request, ledger)

    @property
    def all_ledgers(self) -> str:
        """The address of the page over several ledgers."""
        return top_of(self._request) + "/"

    def below_root(self, address: str) -> str:
        """Return the full address of a path and query below the prefix."""
        return self._root + address

    def revision(self, job: str, revision: int) -> str:
        """Return the address of a revision on the page of its job."""
        return self("/job", name=job, before=revision + 1) + "#revisions"

    def why(self, job: str, scope: str, plan_time: datetime) -> str:
        """Return the address of the explanation of a plan_time."""
        return self("/why", job=job, time=iso(plan_time), scope=scope)


def routes(path: str, show: Callable[[Request], Awaitable[Response]]) -> list[Route]:
    """Return the routes of a page whose path names what it shows.

    A form cannot send such a path, so the fields may be in the query as well. The browser is then
    redirected to the path.
    """
    first, *others = IN_PATH[path]
    pattern = f"{path}/{{{_PREFIX}{first}:path}}" + "".join(
        f"/{{{_PREFIX}{name}}}" for name in others
    )

    async def by_query(request: Request) -> Response:
        found = Links(request)(path, **_query(request))
        is_other = found.split("?")[0] != root_of(request) + path
        return RedirectResponse(found, 308) if is_other else await show(request)

    return [Route(path, by_query, methods=["GET"]), Route(pattern, show, methods=["GET"])]


def field(request: Request, name: str) -> str:
    """Return a field of the address: of its path or of its query. Missing: an empty text."""
    found: str = request.path_params.get(_PREFIX + name) or request.query_params.get(name, "")
    return found


def root_of(request: HTTPConnection) -> str:
    """Return the prefix below which the page is mounted: "" or `/ops/cron`."""
    root: str = request.scope.get("root_path", "")
    return quote(root.rstrip("/"))


def top_of(request: HTTPConnection) -> str:
    """Return the prefix of the whole page: of all its ledgers, if it has several."""
    top: str | None = request.scope.get(TOP)
    return root_of(request) if top is None else quote(top.rstrip("/"))


def path_of(request: HTTPConnection) -> str:
    """Return the path of a request below the prefix."""
    root = request.scope.get("root_path", "").rstrip("/")
    path: str = request.scope["path"]
    return path.removeprefix(root) if path.startswith(f"{root}/") else path


def local_address(request: HTTPConnection) -> str:
    """Return the path and the query of a request below the prefix."""
    query = request.url.query
    return quote(path_of(request)) + (f"?{query}" if query else "")


def local_path(text: str) -> str:
    """Return `text` if it is a path of this page, otherwise the path of the first page."""
    inside = text.startswith("/") and not text.startswith(("//", "/\\"))
    return text if inside and not set(text) & set("\r\n\t\\") else "/"


def _query(request: Request) -> dict[str, object]:
    return {name: request.query_params.getlist(name) for name in request.query_params}


def address(path: str, query: Mapping[str, object]) -> str:
    """Return the address of a page without the prefix at which the page is mounted."""
    given = [
        (name, str(part))
        for name, value in query.items()
        for part in (value if isinstance(value, list | tuple) else [value])
        if part not in (None, "")
    ]
    fields = IN_PATH.get(path)
    if fields:
        given = _without_the_only_scope(given)
        values = [dict(given).get(name, "") for name in fields]
        if _fits(values):
            path = "/".join([path, *(quote(value, safe="/:") for value in values)])
            given = [(name, value) for name, value in given if name not in fields]
    return path + (f"?{urlencode(given)}" if given else "")


def _fits(values: list[str]) -> bool:
    """Return whether a path can have these values."""
    steps = [*values[0].split("/"), *values[1:]]
    return not _NOT_A_STEP & {*steps} and not any("/" in value for value in values[1:])


def _without_the_only_scope(given: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Leave out the scope of a job that has no others, because it is what the page shows anyway."""
    if ("scope", "global") not in given or dict(given).get("scope_kind", "global") != "global":
        return given
    return [(name, value) for name, value in given if name not in ("scope_kind", "scope")]
