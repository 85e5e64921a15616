"""HTTP handlers: one request, whose response decides the outcome.

Secrets come from the environment when the request is sent. They are never in the ledger, and a
response that echoes them is redacted. Addresses are checked after the name is resolved, and the
socket connects to the address that was checked. So a name cannot change in between.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import parsedate_to_datetime

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from cronledger.declaring.app import Context
from cronledger.engine.addresses import AddressRefusedError, Resolver, check_literal
from cronledger.engine.running.attempt_spans import headers
from cronledger.engine.running.handlers.guard import Guard
from cronledger.engine.running.handlers.variables import secrets, unset
from cronledger.rules import outcome
from cronledger.rules.error_codes import ErrorCode
from cronledger.rules.masks import longest_spelling, redacted, redacted_tail
from cronledger.rules.model import Job
from cronledger.rules.outcome import Outcome, clean_text
from cronledger.rules.retry_filters import one_cause
from cronledger.rules.targets import FromEnvironment, HttpTarget
from cronledger.tracing.interface import AttemptSpan

LONGEST_RETRY_AFTER = timedelta(days=1)
REDIRECTS = (301, 302, 303, 307, 308)
CHUNK = 16 * 1024
SHOWN_LOCATION = 500
OWN_BODY = ("GET", "HEAD")
UPSTREAM_BYTES = 4 * 1024
"""Many servers refuse a longer header."""


@dataclass(frozen=True, slots=True)
class _Request:
    """The request that is sent. `hidden`: the secrets in it, which are masked in all output."""

    method: str
    url: URL
    headers: CIMultiDict[str]
    data: bytes | None
    hidden: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class HttpHandlers:
    """Sends the requests of a runner. `environ` contains the secrets; each request reads it."""

    tail_bytes: int
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    async def run(
        self, job: Job, context: Context, guard: Guard, span: AttemptSpan | None
    ) -> Outcome:
        """Send the request and read the response. A cancellation closes the connection.

        The headers of `span` belong to the request, except those that the job declares.

        An expected status is a SUCCESS, with the tail of the body as output and `{"status": …}` as
        result.
        """
        target = HttpTarget.model_validate(dict(job.target))
        if (refused := unset(target.headers, self.environ, "headers")) is not None:
            return refused
        request = _request(target, context, self.environ)
        for name, value in headers(span).items():
            request.headers.setdefault(name, value)
        connector = aiohttp.TCPConnector(resolver=Resolver(target.allow_private), limit=1)
        # The executor enforces run_timeout by a cancellation.
        timeout = aiohttp.ClientTimeout(total=None)
        try:
            async with aiohttp.ClientSession(
                connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
            ) as session:
                with guard:
                    return await guard.drive(self._send(session, target, request))
        except (AddressRefusedError, aiohttp.ClientConnectorError, aiohttp.InvalidURL) as error:
            return outcome.failed(ErrorCode.NOT_STARTED, _why(error, request.hidden))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return outcome.failed(ErrorCode.HANDLER_ERROR, _why(error, request.hidden))

    async def _send(
        self, session: aiohttp.ClientSession, target: HttpTarget, request: _Request
    ) -> Outcome:
        check_literal(request.url, target.allow_private)
        async with session.request(
            request.method, request.url, headers=request.headers, data=request.data,
            allow_redirects=False,
        ) as response:  # fmt: skip
            return await self._outcome(target, request, response)

    async def _outcome(
        self, target: HttpTarget, request: _Request, response: aiohttp.ClientResponse
    ) -> Outcome:
        tail = await _tail(response, self.tail_bytes, request.hidden) or None
        status = response.status
        if status in target.expect or (not target.expect and 200 <= status <= 299):
            return outcome.success({"status": status}, tail)
        wanted = ", ".join(map(str, target.expect)) or "200 to 299"
        message = f"{request.method} returned {status} {response.reason or ''}".rstrip()
        message += f"; expected {wanted}"
        location = response.headers.get("Location")
        if status in REDIRECTS and location:
            place = redacted(location, request.hidden)[:SHOWN_LOCATION]
            message += f"; the redirect to {place} is not followed"
        message = clean_text(redacted(message, request.hidden))
        wait, causes = retry_after(response.headers), one_cause(str(status))
        return outcome.failed(ErrorCode.HTTP_STATUS, message, tail, wait, causes=causes)


def _request(target: HttpTarget, context: Context, environ: Mapping[str, str]) -> _Request:
    headers: CIMultiDict[str] = CIMultiDict()
    for name, value in target.headers.items():
        if isinstance(value, FromEnvironment):
            headers[name] = value.prefix + environ[value.env].strip()
        else:
            headers[name] = value
    headers.setdefault("Idempotency-Key", f"cronledger-{context.execution_id}")
    headers.setdefault("User-Agent", "cronledger")
    if context.window is not None:
        headers.setdefault("Cronledger-Window-Start", context.window.start.isoformat())
        headers.setdefault("Cronledger-Window-End", context.window.end.isoformat())
    results = context._upstreams.handed_over("Cronledger-Upstream", UPSTREAM_BYTES)
    for name, text in results.items():
        headers.setdefault(name, text)
    body = target.body
    if body is None and target.method not in OWN_BODY:
        body = context.payload
    data = None
    if isinstance(body, str) and target.body is not None:
        data = body.encode()
        headers.setdefault("Content-Type", "text/plain; charset=utf-8")
    elif body is not None:
        data = json.dumps(body).encode()
        headers.setdefault("Content-Type", "application/json")
    hidden = secrets(target.headers, environ)
    return _Request(target.method, URL(target.url), headers, data, hidden)


async def _tail(response: aiohttp.ClientResponse, limit: int, hidden: tuple[str, ...]) -> str:
    """Return the last `limit` bytes of the body as text, with `hidden` redacted.

    More bytes are kept until then, because the tail could begin in the middle of a secret.
    """
    more = longest_spelling(hidden)
    kept, total = b"", 0
    async for chunk in response.content.iter_chunked(CHUNK):
        total += len(chunk)
        kept = (kept + chunk)[-limit - more :] if limit else b""
    try:
        text = kept.decode(response.charset or "utf-8", "replace")
    except LookupError:
        text = kept.decode("utf-8", "replace")
    return redacted_tail(text, hidden, limit, total - len(kept))


def _why(error: Exception, hidden: tuple[str, ...]) -> str:
    own = str(error) if isinstance(error, AddressRefusedError) else None
    return clean_text(redacted(own or f"{type(error).__name__}: {error}", hidden))


def retry_after(headers: Mapping[str, str]) -> timedelta | None:
    """Return the wait that `Retry-After` requests, at most a day, or None without a valid one.

    A date counts from the `Date` of the same response, not from the clock of this machine.
    """
    value = headers.get("Retry-After", "").strip()
    try:
        if value.isdecimal():
            wait = timedelta(seconds=min(int(value), 86_400))
        else:
            wait = parsedate_to_datetime(value) - parsedate_to_datetime(headers.get("Date", ""))
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return min(max(wait, timedelta(0)), LONGEST_RETRY_AFTER)
