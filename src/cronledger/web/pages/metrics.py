"""The metrics of the ledger, for Prometheus. Need the extra `metrics`."""

from importlib.util import find_spec

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cronledger.web.gate import METRICS
from cronledger.web.site import site_of

LIBRARY = "prometheus_client"


async def metrics(request: Request) -> Response:
    """Return the metrics in a format that the request accepts."""
    if find_spec(LIBRARY) is None:
        text = f"{LIBRARY} is not installed; run `pip install 'cronledger[metrics]'`"
        raise HTTPException(404, text)
    measured = site_of(request).metrics()
    body, content_type = await measured.exposition(request.headers.get("accept", ""))
    return Response(body, headers={"Content-Type": content_type})


ROUTES = [Route(METRICS, metrics, methods=["GET"])]
