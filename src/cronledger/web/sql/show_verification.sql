-- Returns the last run of verify that checked all jobs to its end. No lock. Zero rows: none is recorded.
SELECT v.id, v.from_plan_time, v.requested_by, v.finished_at, v.checked_after, v.checked_through, v.schedules,
       v.plan_times, v.executions, v.skips, v.behind, v.violations, v.accepted, v.kinds
FROM {schema}.verifications v
WHERE v.job_name IS NULL AND v.outcome = 'finished'
ORDER BY v.id DESC
LIMIT 1
