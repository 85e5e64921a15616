-- Executions made or started since an instant, counted by job and status. Reads the partitions from
-- the longest catch_up_window before it on, a day at least: what is older and started since is a retry of
-- long ago, and not counted. No lock. Zero rows: nothing happened.
SELECT e.job_name, e.status, count(*) AS count, sum(e.attempt)::bigint AS attempts
FROM {schema}.execution_status e
WHERE e.plan_time >= %(since)s::timestamptz - (
          SELECT greatest(interval '1 day', max(j.catch_up_window)) FROM {schema}.job_details j)
  AND (e.created_at >= %(since)s::timestamptz OR e.started_at >= %(since)s::timestamptz)
GROUP BY e.job_name, e.status
