-- Creates one execution of a job, due now, and returns its id. A scope_kind of NULL is that of the job.
-- Locks: those of the function. Always one row.
SELECT {schema}.trigger(
    %(job)s::text, scope_id => %(scope)s::text, payload => %(payload)s::text::jsonb,
    scope_kind => coalesce(
        %(scope_kind)s::text,
        (SELECT j.scope_kind FROM {schema}.job_details j WHERE j.name = %(job)s::text), 'global'),
    force => %(force)s::boolean, requested_by => %(requested_by)s::text, require_runner => %(require_runner)s::boolean,
    traceparent => %(traceparent)s::text) AS value
