-- Retires the jobs of a source that are not in it any more. One row for each: its name and queue.
-- Lock: jobs by name, waiting, then by trigger their schedules and waiting executions.
WITH held AS MATERIALIZED (
    SELECT j.name FROM {schema}.jobs j
    WHERE j.source = %(source)s AND j.retired_at IS NULL AND j.name NOT IN (SELECT n.name FROM unnest(%(jobs)s::text[]) n(name))
    ORDER BY j.name FOR NO KEY UPDATE
)
UPDATE {schema}.jobs j SET retired_at = {schema}.db_clock(), edited_by = %(requested_by)s
FROM held h WHERE j.name = h.name
RETURNING j.name, j.queue
