"""Execution: the actions on one execution."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cronledger.web.forms import form_of
from cronledger.web.site import identity_of, site_of

CANCELLED = {
    "cancelled": "Execution {id} was waiting, and is CANCELLED.",
    "requested": "Execution {id} is requested to end. Its runner is notified.",
    "already_finished": "Execution {id} had ended already.",
    "busy": "Execution {id} is being written at this moment. Try again.",
}


async def cancel(request: Request) -> Response:
    """Request that an execution ends."""
    form = await form_of(request)
    execution = form.whole("id")
    (row,) = await site_of(request).actor.call("call_cancel", identity_of(request), id=execution)
    return site_of(request).done(request, CANCELLED[row["value"]].format(id=execution), "/")


ROUTES = [Route("/execution/cancel", cancel, methods=["POST"])]
