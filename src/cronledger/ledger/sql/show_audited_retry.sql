-- Returns whether an operator has retried an execution. No lock. Always one row.
SELECT EXISTS (
    SELECT FROM {schema}.audit a
    WHERE a.job_name = %(job)s AND a.verb IN ('retry', 'retry_many', 'backfill') AND a.outcome <> 'refused'
      AND a.execution_ids @> ARRAY[%(id)s::bigint])
    OR EXISTS (  -- retry_many of several jobs
    SELECT FROM {schema}.audit a
    WHERE a.job_name IS NULL AND a.verb = 'retry_many' AND a.outcome <> 'refused'
      AND a.execution_ids @> ARRAY[%(id)s::bigint]) AS retried
