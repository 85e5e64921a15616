-- Retires the jobs of a source that this runner does not declare any more, except those whose function
-- another live runner still has. One row for each: its name. After lock_source, in a statement of its own,
-- so that of two runners that give up the same jobs the second one sees the change of the first.
-- Lock: jobs by name, waiting, then by trigger their schedules and waiting executions.
WITH held AS MATERIALIZED (
    SELECT j.name FROM {schema}.jobs j
    WHERE j.source = %(source)s AND j.retired_at IS NULL AND j.name = ANY (%(jobs)s::text[])
      AND NOT EXISTS (
          SELECT FROM {schema}.runners r
          WHERE r.id <> %(runner)s AND r.state = 'running' AND r.stale_after > {schema}.db_now()
            AND j.target ->> 'python' = ANY (r.handlers))
    ORDER BY j.name FOR NO KEY UPDATE
)
UPDATE {schema}.jobs j SET retired_at = {schema}.db_clock(), edited_by = %(requested_by)s
FROM held h WHERE j.name = h.name
RETURNING j.name
