-- Returns when the newest recorded run of verify ended that checked [start, end) of this job, or that part of it which
-- was over, and found no violation that was not accepted. No lock. Zero rows: there is no such run.
SELECT v.finished_at FROM {schema}.verifications v
WHERE v.outcome = 'finished' AND v.violations = 0
  AND (v.job_name IS NULL OR v.job_name = %(job)s)
  AND (v.from_plan_time IS NULL OR v.checked_after < %(start)s::timestamptz)
  AND v.checked_through >= %(start)s::timestamptz
  AND (v.checked_through >= %(end)s::timestamptz OR v.finished_at < %(end)s::timestamptz)
ORDER BY v.finished_at DESC LIMIT 1
