"""The metrics of the ledger for Prometheus. They need the extra `metrics`."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cronledger.extras import require_library
from cronledger.rules.problems import ConfigurationError
from cronledger.web.gate import METRICS
from cronledger.web.site import site_of


async def metrics(request: Request) -> Response:
    """Return the metrics in a format that the request accepts."""
    try:
        require_library("prometheus_client", "metrics", METRICS)
    except ConfigurationError as error:
        raise HTTPException(404, f"{error}.") from None
    measured = site_of(request).metrics()
    body, content_type = await measured.exposition(request.headers.get("accept", ""))
    return Response(body, headers={"Content-Type": content_type})


ROUTES = [Route(METRICS, metrics, methods=["GET"])]
