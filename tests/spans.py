"""The spans that a test has made, and what a test asks of one."""

from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, format_span_id, format_trace_id


class Spans:
    """The spans that have ended, in the order of their ends."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter
        self.tracer = trace.get_tracer("tests")

    @property
    def all(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


def context(span: ReadableSpan) -> trace.SpanContext:
    found = span.get_span_context()
    assert found is not None
    return found


def trace_id(span: ReadableSpan) -> str:
    return format_trace_id(context(span).trace_id)


def traceparent(span: ReadableSpan) -> str:
    found = context(span)
    return f"00-{trace_id(span)}-{format_span_id(found.span_id)}-{found.trace_flags:02x}"


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def ends(span: ReadableSpan) -> tuple[Any, Any, StatusCode]:
    found = attributes(span)
    return (
        found["cronledger.outcome"], found.get("cronledger.error_code"), span.status.status_code,
    )  # fmt: skip


def parent_is(child: ReadableSpan, parent: ReadableSpan) -> bool:
    return child.parent is not None and child.parent.span_id == context(parent).span_id
