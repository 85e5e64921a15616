-- Enqueues work for a job, and returns the id of the execution that does it. Locks: those of the function.
-- Always one row. NULL: only a watermark was given, and a success covers it already.
SELECT {schema}.enqueue(
    %(job)s::text, scope_id => %(scope)s::text, watermark => %(watermark)s::bigint,
    payload => %(payload)s::text::jsonb, key => %(key)s::text, scope_kind => %(scope_kind)s::text,
    group_id => %(group_id)s::uuid, due_at => %(due_at)s::timestamptz,
    traceparent => %(traceparent)s::text) AS value
