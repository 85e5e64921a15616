-- Creates and retries the executions of a backfill, and counts them. Locks: those of the function. Always one row.
SELECT b.made, b.retried, b.left_alone
FROM {schema}.backfill(
    %(job)s::text, %(plan_times)s::timestamptz[], scope_kind => %(scope_kind)s::text,
    scope_id => %(scope_id)s::text, reprocess => %(reprocess)s::text,
    ended_before => %(ended_before)s::timestamptz, retention => %(retention)s::interval,
    requested_by => %(requested_by)s::text) b
