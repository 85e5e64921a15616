-- Traces: the span that enqueued an execution, and the trace of its last attempt.
-- No CHECK: it would be compared with every row that exists, under a lock. enqueue and trigger refuse other values.
ALTER TABLE {schema}.executions ADD COLUMN traceparent text COLLATE "C";
ALTER TABLE {schema}.executions ADD COLUMN trace_id text COLLATE "C";
COMMENT ON COLUMN {schema}.executions.traceparent IS 'Span that enqueued or triggered this execution, in the format of the W3C header traceparent; NULL: none was given. Each attempt has a trace of its own, which links to this span.';
COMMENT ON COLUMN {schema}.executions.trace_id IS 'Trace of the attempt that ended last, 32 hexadecimal digits; NULL: it was not traced, or a later attempt is RUNNING. Not the trace in traceparent.';
