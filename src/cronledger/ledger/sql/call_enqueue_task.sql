-- Enqueues a message for a job, and returns its id and the time. Locks: those of the function. Always one row.
SELECT {schema}.enqueue(
    %(job)s::text, payload => %(payload)s::text::jsonb, due_at => %(due_at)s::timestamptz,
    traceparent => %(traceparent)s::text) AS id,
    {schema}.db_now() AS enqueued_at
