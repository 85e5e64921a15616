"""Spans of the API of OpenTelemetry. The program configures the SDK and its exporter.

Without an SDK the spans have no trace, and nothing is recorded or propagated.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import time_ns

from opentelemetry import context, propagate, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from cronledger.tracing.interface import Attributes

_TRACE_CONTEXT = TraceContextTextMapPropagator()
TRACEPARENT = "traceparent"
_VARIABLES = ("TRACEPARENT", "TRACESTATE")


class OpenTelemetrySpan:
    """The span of one attempt: see `AttemptSpan`."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        # The context is new, because the attempt must not have the values of the task that called
        # start() of the replica.
        self._context = trace.set_span_in_context(span, context.Context())
        # Never detached, because the context of the task ends with the task.
        context.attach(self._context)
        self._is_ended = False
        self._stopped_ns: int | None = None

    @property
    def trace_id(self) -> str | None:
        found = self._span.get_span_context()
        return trace.format_trace_id(found.trace_id) if found.is_valid else None

    def trace_context(self) -> Mapping[str, str]:
        fields: dict[str, str] = {}
        _TRACE_CONTEXT.inject(fields, self._context)
        return fields

    def headers(self) -> Mapping[str, str]:
        fields: dict[str, str] = {}
        propagate.inject(fields, self._context)
        return fields

    def stop(self) -> None:
        self._stopped_ns = time_ns()  # the clock of the SDK

    def end(self, attributes: Attributes, error: str | None) -> None:
        if self._is_ended:
            return
        self._is_ended = True
        self._span.set_attributes(attributes)
        if error is not None:
            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end(self._stopped_ns)


class OpenTelemetry:
    """Makes spans with the tracer provider of the program: see `Tracing`."""

    def __init__(self) -> None:
        # The tracer uses the provider of the program, even if the program sets it later.
        self._tracer = trace.get_tracer("cronledger")

    def begin(
        self, name: str, attributes: Attributes, enqueued_by: str | None
    ) -> OpenTelemetrySpan:
        return OpenTelemetrySpan(
            self._tracer.start_span(
                name, context.Context(), SpanKind.CONSUMER, attributes, _links(enqueued_by)
            )
        )

    @contextmanager
    def continuing(self, environment: Mapping[str, str]) -> Iterator[None]:
        names = {name.lower(): text for name, text in environment.items() if name in _VARIABLES}
        token = context.attach(_TRACE_CONTEXT.extract(names))
        try:
            yield
        finally:
            context.detach(token)

    @contextmanager
    def enqueuing(self, job: str, count: int) -> Iterator[str | None]:
        attributes: dict[str, str | int] = {"cronledger.job": job}
        if count > 1:
            attributes["cronledger.items"] = count
        with self._tracer.start_as_current_span(
            f"enqueue {job}", kind=SpanKind.PRODUCER, attributes=attributes
        ):
            fields: dict[str, str] = {}
            _TRACE_CONTEXT.inject(fields)
            yield fields.get(TRACEPARENT)


def _links(traceparent: str | None) -> list[Link]:
    if traceparent is None:
        return []
    extracted = _TRACE_CONTEXT.extract({TRACEPARENT: traceparent}, context.Context())
    found = trace.get_current_span(extracted).get_span_context()
    return [Link(found)] if found.is_valid else []
