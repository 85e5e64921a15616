-- plan_times skipped in all, counted by job and reason: ranges are extended in place, so what was
-- skipped since an instant is the difference of two answers. No lock.
SELECT k.job_name, k.reason, sum(k.count)::bigint AS count
FROM {schema}.verify_skips k
GROUP BY k.job_name, k.reason
