"""The choice of a format of Prometheus by the header Accept of a request."""

from collections.abc import Callable

from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector


def format_for(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    """Return the encoder of the format that `accept` prefers, and its content type.

    The format is plain text if `accept` is empty or names a version that is not a number.
    """
    try:
        return choose_encoder(accept)
    except (TypeError, ValueError):
        return choose_encoder("")
