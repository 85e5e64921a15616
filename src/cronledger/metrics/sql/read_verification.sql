-- Returns when the last run of verify ended that checked all jobs up to the planning cursor, and the number of
-- violations that it found. No lock. Zero rows: there was none.
SELECT v.finished_at, v.violations
FROM {schema}.verifications v
WHERE v.job_name IS NULL AND v.to_plan_time IS NULL AND v.outcome = 'finished'
ORDER BY v.finished_at DESC
LIMIT 1
