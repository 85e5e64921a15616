-- Lists jobs that cannot run: their definition cannot be planned, or no live runner has their queue, their
-- labels and their function (for external jobs: no worker claims from their queue). No lock. Zero rows: all can run.
WITH alive AS MATERIALIZED (
    SELECT r.queues, r.handlers, r.labels FROM {schema}.runner_status r
    WHERE r.state IN ('alive', 'refused', 'failing')
)
SELECT j.name, j.spec_error, a.able, j.queue, j.handler, j.function, j.on, a.live
FROM {schema}.job_details j
CROSS JOIN LATERAL (
    SELECT coalesce(bool_or(j.on IS NULL OR j.on <@ r.labels), false) AS able,
           string_agg(DISTINCT array_to_string(r.labels, ','), '; ') AS live
    FROM alive r
    WHERE CASE j.handler
              WHEN 'external' THEN 'external:' || j.queue = ANY (r.handlers)
              WHEN 'python' THEN j.queue = ANY (r.queues) AND j.function = ANY (r.handlers)
              ELSE j.queue = ANY (r.queues) END) a
WHERE j.retired_at IS NULL AND (j.spec_error IS NOT NULL OR (j.paused_at IS NULL AND NOT a.able))
ORDER BY j.name
