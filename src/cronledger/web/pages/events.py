"""The stream of events that lets an open page read itself again."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from cronledger.web.refresh import UNBUFFERED
from cronledger.web.site import frame_of


async def events(request: Request) -> Response:
    """Return the stream."""
    refresh = frame_of(request).refresh
    if refresh.is_full:
        raise HTTPException(503, "This process cannot serve more open pages.")
    return StreamingResponse(refresh.stream(), media_type="text/event-stream", headers=UNBUFFERED)


ROUTES = [Route("/events", events, methods=["GET"])]
