-- Lists the recorded runs of verify, the oldest first: those over all jobs that ended, and of the others those whose
-- violations count. `is_violating`: it found violations, and no later run has checked its plan_times again, to its end,
-- of the same job or of all, from at least as early on and as far. No lock. Zero rows: none is recorded.
SELECT r.id, r.job_name, r.requested_by, r.outcome, r.from_plan_time, r.checked_after,
       coalesce(r.checked_through, r.finished_at) AS checked_through, r.finished_at, r.kinds, r.is_violating,
       {schema}.db_now() AS now
FROM (
    SELECT v.*, v.violations > 0 AND NOT EXISTS (
               SELECT FROM {schema}.verifications l
               WHERE l.id > v.id AND l.outcome = 'finished' AND (l.job_name IS NULL OR l.job_name = v.job_name)
                 AND (l.from_plan_time IS NULL OR l.from_plan_time <= v.from_plan_time
                      OR l.checked_after <= v.checked_after)
                 AND (l.to_plan_time IS NULL OR l.to_plan_time >= v.to_plan_time
                      OR l.checked_through >= v.checked_through)) AS is_violating
    FROM {schema}.verifications v
    WHERE v.finished_at IS NOT NULL
) r
WHERE r.is_violating OR (r.job_name IS NULL AND r.outcome = 'finished')
ORDER BY r.id
