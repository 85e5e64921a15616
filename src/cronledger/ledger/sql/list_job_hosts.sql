-- Lists the hosts on which a job runs, without retired ones. No lock. Zero rows: its scopes are not hosts, or no host
-- has its labels yet.
SELECT s.scope_id AS name
FROM {schema}.verify_schedules s JOIN {schema}.job_details j ON j.name = s.job_name
WHERE s.job_name = %(job)s::text AND j.scope_kind = 'host' AND s.scope_kind = 'host'
  AND (s.retired_at IS NULL OR s.returned_at IS NOT NULL)
ORDER BY s.scope_id
