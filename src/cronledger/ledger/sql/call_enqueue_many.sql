-- Enqueues many items of one job, and returns an id for each of them, in their order. The payloads are JSON as
-- text. Locks: those of the function. Always one row.
SELECT {schema}.enqueue_many(
    %(job)s::text, payloads => %(payloads)s::text[]::jsonb[], keys => %(keys)s::text[],
    watermarks => %(watermarks)s::bigint[], scope_ids => %(scopes)s::text[],
    scope_kind => %(scope_kind)s::text, group_id => %(group_id)s::uuid,
    traceparent => %(traceparent)s::text) AS value
