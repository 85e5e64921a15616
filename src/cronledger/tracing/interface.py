"""The interface of tracing for the engine and the clients.

`tracing.spans` implements it with the API of OpenTelemetry. It is imported only if tracing is on.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from cronledger.extras import require_library
from cronledger.settings import PREFIX, Settings

Attributes = Mapping[str, str | int]
LIBRARY = "opentelemetry.trace"


class AttemptSpan(Protocol):
    """The span of one attempt. It is the current one in the task that began it."""

    @property
    def trace_id(self) -> str | None:
        """The id of its trace, 32 hexadecimal digits; None: the program has configured no SDK."""

    def trace_context(self) -> Mapping[str, str]:
        """Return `traceparent`, and `tracestate` if there is one. Empty without a trace."""

    def headers(self) -> Mapping[str, str]:
        """Return the headers of a request that belongs to the attempt."""

    def stop(self) -> None:
        """Note that the attempt ends now."""

    def end(self, attributes: Attributes, error: str | None) -> None:
        """End the span with these attributes, at the time of `stop`. Further calls do nothing.

        `error`: the error if the attempt failed, or None.
        """


class Tracing(Protocol):
    """Makes spans."""

    def begin(self, name: str, attributes: Attributes, enqueued_by: str | None) -> AttemptSpan:
        """Begin the span of an attempt in a new trace, and make it the current one.

        `enqueued_by`: the traceparent of the span to which it links, or None.
        """

    def continuing(self, environment: Mapping[str, str]) -> AbstractContextManager[None]:
        """Return a context manager whose block belongs to the trace of TRACEPARENT.

        Without that variable it has no effect.
        """

    def enqueuing(self, job: str, count: int) -> AbstractContextManager[str | None]:
        """Return a context manager for the span of an enqueuing call.

        The block receives the traceparent of the span, or None without a trace. The span ends with
        the block. If the block raises, its status is error.
        """


def require_extra(settings: Settings) -> None:
    """Raise ConfigurationError if tracing is on and its library is missing."""
    if settings.tracing:
        require_library(LIBRARY, "tracing", PREFIX + "TRACING")


def tracing_of(settings: Settings) -> Tracing | None:
    """Return the tracing of this process, or None if tracing is off.

    Raises ConfigurationError if the library is missing.
    """
    if not settings.tracing:
        return None
    require_extra(settings)
    from cronledger.tracing.spans import OpenTelemetry  # noqa: PLC0415 - of an extra

    return OpenTelemetry()
