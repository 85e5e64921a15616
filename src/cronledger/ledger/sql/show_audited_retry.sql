-- Returns whether an operator has retried an execution. No lock. Always one row.
SELECT EXISTS (
    SELECT FROM {schema}.audit a
    WHERE a.job_name = %(job)s AND a.verb IN ('retry', 'backfill') AND a.outcome <> 'refused'
      AND a.execution_ids @> ARRAY[%(id)s::bigint]) AS retried
