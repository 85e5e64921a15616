-- Counts the skipped plan_times of the last 24 hours by job and reason. Of a range that began earlier it counts the share that
-- lies in them. No lock. Zero rows: none was skipped.
SELECT s.job_name, s.reason, sum(
           CASE WHEN s.from_plan_time > d.since THEN s.count
                ELSE ceil(s.count * extract(epoch FROM s.through_plan_time - d.since)
                          / extract(epoch FROM s.through_plan_time - s.from_plan_time)) END)::double precision AS count
FROM (SELECT {schema}.db_now() - interval '1 day' AS since) d
JOIN {schema}.verify_skips s ON s.through_plan_time > d.since
GROUP BY s.job_name, s.reason
