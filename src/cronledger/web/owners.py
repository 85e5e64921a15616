"""The filters by owner and label, which several pages have."""

from typing import Any

from starlette.requests import Request

from cronledger.web import queries
from cronledger.web.reading import Reading
from cronledger.web.site import site_of

FIELDS = ("owner", "label")
MOST_SOURCES = 200
SOURCES_SECONDS = 10.0


def chosen(request: Request) -> dict[str, Any]:
    """Return what the address selects: `owner`, and `label`. Raises HTTPException."""
    return {name: queries.text(request, name) for name in FIELDS}


async def sources(request: Request) -> Reading:
    """Return the queues, the sources and the owners of jobs, which filters offer."""
    return await site_of(request).reader.read(
        "list_filters", fresh=SOURCES_SECONDS, max_rows=MOST_SOURCES
    )


def distinct(reading: Reading, column: str) -> list[str]:
    """Return the values of a column of `sources`, in order."""
    return sorted({row[column] for row in reading.known if row[column] is not None})
