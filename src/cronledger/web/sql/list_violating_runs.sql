-- Lists the runs of verify that found violations, the newest first, unless a later run checked their plan_times again:
-- one to its end, of the same job or of all, from at least as early on and as far. No lock. Zero rows: there are none.
SELECT v.id, v.job_name, v.outcome, v.finished_at, v.checked_after, v.checked_through, v.violations, v.kinds
FROM {schema}.verifications v
WHERE v.violations > 0
  AND NOT EXISTS (
    SELECT FROM {schema}.verifications l
    WHERE l.id > v.id AND l.outcome = 'finished' AND (l.job_name IS NULL OR l.job_name = v.job_name)
      AND (l.from_plan_time IS NULL OR l.from_plan_time <= v.from_plan_time OR l.checked_after <= v.checked_after)
      AND (l.to_plan_time IS NULL OR l.to_plan_time >= v.to_plan_time OR l.checked_through >= v.checked_through))
ORDER BY v.id DESC
LIMIT %(max_rows)s
