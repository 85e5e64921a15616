-- Stale leases of reentrant jobs that may be stolen, with their schedule rows locked.
-- Lock: schedules FOR NO KEY UPDATE, SKIP LOCKED. Reads every RUNNING row: run it when one is known
-- to be stale, not in every claim. trusted_since: since when this runner trusts its view of the
-- database (connected, no leap of its clock); a lease is only stale after one stale_timeout of that.
-- Zero rows: nothing to steal.
SELECT s.job_name, s.scope_kind, s.scope_id, e.plan_time, e.id, e.status, e.queue
FROM {schema}.executions e
JOIN {schema}.jobs j ON j.name = e.job_name
JOIN {schema}.schedules s
    ON (s.job_name, s.scope_kind, s.scope_id) = (e.job_name, e.scope_kind, e.scope_id)
WHERE e.status = 'RUNNING' AND e.stale_after < {schema}.db_now()
  AND {schema}.db_now() - j.stale_timeout >= %(trusted_since)s
  AND j.allow_stale_reentry AND j.retired_at IS NULL AND j.paused_at IS NULL
  AND e.cancel_requested_at IS NULL
  AND e.attempt < greatest(e.max_attempts, %(max_steals)s)
  AND e.queue = ANY (%(queues)s::text[])
  AND NOT EXISTS (SELECT FROM {schema}.queues p WHERE p.name = e.queue AND p.paused_at IS NOT NULL)
  AND j.name <> ALL (%(not_here)s::text[])
ORDER BY e.stale_after
LIMIT %(max_rows)s
FOR NO KEY UPDATE OF s SKIP LOCKED
