-- Creates one execution of a scope, due now, and returns its id. payload NULL: that of the job.
-- Locks: those of the function. Always one row.
SELECT {schema}.trigger(
    %(job)s::text, scope_kind => %(scope_kind)s::text, scope_id => %(scope_id)s::text,
    payload => %(payload)s::text::jsonb, force => %(force)s::boolean,
    requested_by => %(requested_by)s::text) AS value
