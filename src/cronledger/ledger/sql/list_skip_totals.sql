-- Counts skipped plan_times by job and reason. Ranges are extended in place, so the plan_times that were
-- skipped since an instant are the difference of two results. No lock.
SELECT k.job_name, k.reason, sum(k.count)::bigint AS count
FROM {schema}.verify_skips k
GROUP BY k.job_name, k.reason
