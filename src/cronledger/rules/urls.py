"""URLs of requests that replicas send."""

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, WithJsonSchema

from cronledger.rules.problems import RefusedError

URL_PATTERN = r"https?://[^\s/]\S*"


def http_url(url: str) -> str:
    """Return `url` if a request can be sent there. Raises RefusedError."""
    try:
        split = urlsplit(url)
        host, _ = split.hostname, split.port  # raises ValueError if one of them is invalid
    except ValueError:
        host = None
    if not host or not re.fullmatch(URL_PATTERN, url):
        raise RefusedError(
            "must begin with http:// or https:// and have a host, and a port of at most 65535",
            "write it like https://example.org/path",
        )
    return url


HttpUrl = Annotated[
    str,
    AfterValidator(http_url),
    WithJsonSchema({"type": "string", "pattern": f"^{URL_PATTERN}$"}),
]
