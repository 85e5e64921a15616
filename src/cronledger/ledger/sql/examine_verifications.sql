-- Finds the last run of verify that checked all jobs to its end. No lock. Zero rows: none is recorded.
SELECT v.id, v.requested_by, {schema}.db_now() - v.finished_at AS age, v.violations, v.accepted, v.kinds
FROM {schema}.verifications v
WHERE v.job_name IS NULL AND v.outcome = 'finished'
ORDER BY v.id DESC
LIMIT 1
