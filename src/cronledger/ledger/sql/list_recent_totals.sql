-- Counts executions that were created or started since an instant, by job and status. Reads partitions
-- from the longest catch_up_window before it on, at least a day. What is older and started since is a late
-- retry, and is not counted. No lock. Zero rows: there are none.
SELECT e.job_name, e.status, count(*) AS count, sum(e.attempt)::bigint AS attempts
FROM {schema}.execution_status e
WHERE e.plan_time >= %(since)s::timestamptz - (
          SELECT greatest(interval '1 day', max(j.catch_up_window)) FROM {schema}.job_details j)
  AND (e.created_at >= %(since)s::timestamptz OR e.started_at >= %(since)s::timestamptz)
GROUP BY e.job_name, e.status
