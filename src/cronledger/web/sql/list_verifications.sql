-- Lists the recorded runs of verify before the run `before`, the newest first. No lock. Zero rows: none is recorded.
SELECT v.id, v.job_name, v.from_plan_time, v.to_plan_time, v.requested_by, v.version, v.started_at, v.finished_at,
       v.outcome, v.error, v.checked_after, v.checked_through, v.schedules, v.plan_times, v.executions, v.skips,
       v.behind, v.violations, v.accepted, v.kinds
FROM {schema}.verifications v
WHERE v.id < %(before)s::bigint
ORDER BY v.id DESC
LIMIT %(max_rows)s
