"""The addresses to which programs report the runs of observed jobs, as to Healthchecks.

A token in the path takes the place of a sign-in. A token must not be logged, so nothing here raises
an exception that contains the address of the request.
"""

import asyncio
import re
import uuid
from dataclasses import replace

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from cronledger.rules.remedies import Surface, remedy
from cronledger.web.gate import REPORT
from cronledger.web.links import path_of
from cronledger.web.run_reports import (
    FAILED,
    DatabaseAwayError,
    Receipt,
    Report,
    RunReports,
    TooManyLookupsError,
)
from cronledger.web.site import Site, frame_of

MOST_BYTES = 100_000
"""The largest body. The ledger keeps the last 65,536 characters of it."""
BODY_SECONDS = 10.0
"""The longest time in which a body has to arrive."""
RETRY_SECONDS = 10
METHODS = ("GET", "HEAD", "POST")
_ADDRESS = re.compile(r"([A-Za-z0-9_-]{43})(?:/(start|fail|[0-9]{1,3}))?")
_UNKNOWN = (404, "There is no such address.")
_BUSY = (429, "Too many reports arrive at this moment. Send it again.", 1)


class _Endpoint:
    """Handles requests of all methods, so that no other page responds to these addresses."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response = await _received(request)
        await response(scope, receive, send)


async def _received(request: Request) -> Response:
    site = frame_of(request)
    address = _ADDRESS.fullmatch(path_of(request).removeprefix(REPORT))
    if address is None or not isinstance(site, Site) or int_of(address[2]) > 255:
        return _plain(*_UNKNOWN)
    if request.method not in METHODS:
        response = _plain(405, "Use GET, HEAD or POST.")
        response.headers["Allow"] = ", ".join(METHODS)
        return response
    try:
        return await _admitted(request, site.run_reports, *address.groups())
    except TooManyLookupsError:
        return _plain(*_BUSY)
    except DatabaseAwayError:
        return _plain(503, "The database did not confirm the report. Send it again.", RETRY_SECONDS)


async def _admitted(
    request: Request, reports: RunReports, token: str, event: str | None
) -> Response:
    job = await reports.job_of(token)
    if job is None:
        return _plain(*_UNKNOWN)
    with reports.place(job) as has_place:
        if not has_place:
            return _plain(*_BUSY)
        return await _recorded(request, reports, job, token, event)


async def _recorded(
    request: Request, reports: RunReports, job: str, token: str, event: str | None
) -> Response:
    body = None
    try:
        report = _report(event, request.query_params.get("rid"))
        async with asyncio.timeout(BODY_SECONDS):
            body = await _body(request)
    except ValueError:
        return _plain(400, "rid is not a UUID.")
    except TimeoutError:
        return _plain(408, f"The body did not arrive within {BODY_SECONDS:.0f} s.")
    except ClientDisconnect:
        return Response(status_code=400)  # nobody receives it
    finally:
        if body is None:  # the ledger does not check the token of this request again
            reports.forget(token)
    if body is None:
        return _plain(413, f"The body is larger than {MOST_BYTES:,} bytes.")
    return _response(await reports.record(job, token, replace(report, output=_text(body))))


def _report(event: str | None, rid: str | None) -> Report:
    """Return the report without its output. Raises ValueError if `rid` is not a UUID."""
    run_key = None if rid is None else str(uuid.UUID(rid))
    match event:
        case "start":
            return Report(False, run_key)
        case "fail":
            return Report(True, run_key, error=FAILED)
        case _:
            return Report(True, run_key, exit_status=int_of(event))


def int_of(event: str | None) -> int:
    """Return the exit status of an event. A success has the exit status 0."""
    return int(event) if event is not None and event.isdigit() else 0


async def _body(request: Request) -> bytes | None:
    """Return the body, or None if it is too large. Raises ClientDisconnect."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            return None
    return bytes(body)


def _text(body: bytes) -> str | None:
    """Return the output in a body. PostgreSQL stores no NUL."""
    return body.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}") or None


def _response(receipt: Receipt) -> Response:
    match receipt.outcome:
        case "accepted":
            return _plain(200, "OK")
        case "limited":
            return _plain(
                429, "The token has sent too many reports. Send it again.", receipt.retry_after
            )
        case "refused":
            advice = remedy(receipt.remedy or "", Surface.PAGE)
            return _plain(409, f"The ledger refused the report: {receipt.problem}\n{advice}")
        case _:
            return _plain(*_UNKNOWN)


def _plain(status: int, text: str, retry_after: int | None = None) -> Response:
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return PlainTextResponse(f"{text}\n", status, headers)


ROUTES = [Route(f"{REPORT}{{report:path}}", _Endpoint())]
