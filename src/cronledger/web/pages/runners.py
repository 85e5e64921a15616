"""Runners and queues: who works, on what, and the pauses and limits of queues."""

import asyncio

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cronledger.ledger import calls
from cronledger.web.forms import form_of
from cronledger.web.site import Entry, identity_of, site_of

MOST = 200
"""Rows of one panel."""
LARGEST = 2**31 - 1
PATH = "/runners"

ENTRY = Entry("Runners and queues", PATH)


async def show(request: Request) -> Response:
    """Return the page."""
    site = site_of(request)
    runners, queues = await asyncio.gather(
        site.reader.read("list_runners", with_former=False, max_rows=MOST + 1),
        site.reader.read("list_queues", max_rows=MOST + 1),
    )
    return await site.page(request, "runners.html", runners=runners, queues=queues, most=MOST)


async def _act(request: Request, function: str, **arguments: object) -> object:
    """Call an operator function, and return its value."""
    call = calls.value_of(function, **arguments)
    value: object = await site_of(request).actor.call(call, identity_of(request))
    return value


async def pause(request: Request) -> Response:
    """Pause a queue."""
    form = await form_of(request)
    queue, reason = form.text("queue"), form.text("reason").strip() or None
    fresh = await _act(request, "pause_queue", queue=queue, reason=reason)
    text = "is paused" if fresh else "was paused already, and has the new reason"
    return site_of(request).done(request, f"Queue {queue} {text}.", PATH)


async def resume(request: Request) -> Response:
    """Resume a queue."""
    queue = (await form_of(request)).text("queue")
    resumed = await _act(request, "resume_queue", queue=queue)
    text = "is resumed" if resumed else "was not paused"
    return site_of(request).done(request, f"Queue {queue} {text}.", PATH)


async def limit(request: Request) -> Response:
    """Set the limit of a queue, or remove it if the field is empty."""
    form = await form_of(request)
    queue = form.text("queue")
    number = form.whole("limit") if form.text("limit").strip() else None
    if number is not None and not 1 <= number <= LARGEST:
        raise HTTPException(
            400, f"limit is {number}; write 1 to {LARGEST}, or leave the field empty for no limit."
        )
    before = await _act(request, "limit_queue", queue=queue, max_running=number)
    now, was = ("none" if value is None else value for value in (number, before))
    return site_of(request).done(request, f"Queue {queue}: limit {now} (before: {was}).", PATH)


async def pause_all(request: Request) -> Response:
    """Pause every queue in use."""
    reason = (await form_of(request)).text("reason").strip() or None
    count = await _act(request, "pause_all", reason=reason)
    return site_of(request).done(request, f"Queues that are paused now: {count}.", PATH)


async def resume_all(request: Request) -> Response:
    """Resume every paused queue."""
    count = await _act(request, "resume_all")
    return site_of(request).done(request, f"Queues that are resumed: {count}.", PATH)


ROUTES = [
    Route(PATH, show, methods=["GET"]),
    Route("/queues/pause", pause, methods=["POST"]),
    Route("/queues/resume", resume, methods=["POST"]),
    Route("/queues/limit", limit, methods=["POST"]),
    Route("/queues/pause-all", pause_all, methods=["POST"]),
    Route("/queues/resume-all", resume_all, methods=["POST"]),
]
