-- Lists jobs that cannot run: their definition cannot be planned, or no live runner has their queue, their
-- labels and their function (for external jobs: no worker claims from their queue), or live runners have them, but none
-- on some of the present hosts that have to run the job (`hosts`). No lock. Zero rows: all can run.
WITH alive AS MATERIALIZED (
    SELECT r.queues, r.handlers, r.labels, r.host FROM {schema}.runner_status r
    WHERE r.state IN ('alive', 'refused', 'failing')
), present AS MATERIALIZED (
    SELECT h.name FROM {schema}.host_status h WHERE h.state = 'present'
)
SELECT j.name, j.spec_error, a.able, j.queue, j.handler, j.function, j.on, a.live, h.hosts
FROM {schema}.job_details j
CROSS JOIN LATERAL (
    SELECT coalesce(bool_or(j.on IS NULL OR j.on <@ r.labels), false) AS able,
           string_agg(DISTINCT array_to_string(r.labels, ','), '; ') AS live,
           array_agg(r.host) FILTER (WHERE j.on IS NULL OR j.on <@ r.labels) AS hosts
    FROM alive r
    WHERE CASE j.handler
              WHEN 'external' THEN 'external:' || j.queue = ANY (r.handlers)
              WHEN 'python' THEN j.queue = ANY (r.queues) AND j.function = ANY (r.handlers)
              ELSE j.queue = ANY (r.queues) END) a
CROSS JOIN LATERAL (
    SELECT array_agg(m.host ORDER BY m.host) AS hosts
    FROM (SELECT s.scope_id AS host
          FROM {schema}.verify_schedules s JOIN present p ON p.name = s.scope_id
          WHERE a.able AND j.scope_kind = 'host' AND j.handler NOT IN ('external', 'observed')
            AND s.job_name = j.name AND s.scope_kind = 'host' AND (s.retired_at IS NULL OR s.returned_at IS NOT NULL)
          EXCEPT SELECT unnest(a.hosts)) m) h
WHERE j.retired_at IS NULL
  AND (j.spec_error IS NOT NULL OR (j.paused_at IS NULL AND (NOT a.able OR h.hosts IS NOT NULL)))
ORDER BY j.name
