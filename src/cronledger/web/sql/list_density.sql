-- Counts the executions whose last attempt started in [since, until), by lane (runner or queue), bucket (from 1 on) and
-- status, of those with a plan_time in [planned_from, until). Lanes after the first `lanes` by their number of
-- executions are one with the name NULL; `merged` is their number. A NULL job does not restrict; one job
-- is read by the key of the ledger. No lock. Zero rows: none.
WITH counted AS MATERIALIZED (
    SELECT coalesce(CASE %(by)s::text WHEN 'queue' THEN s.queue ELSE s.runner_id END, '') AS lane,
           width_bucket(date_part('epoch', s.started_at), date_part('epoch', %(since)s::timestamptz),
                        date_part('epoch', %(until)s::timestamptz), %(buckets)s::integer) AS bucket,
           CASE WHEN s.error_code = 'stale_timeout' THEN 'CRASHED'
                WHEN s.status = 'CANCELLED' AND s.attempts -> -1 ->> 'attempt' = s.attempt::text THEN 'RELEASED'
                ELSE s.status END AS status, count(*) AS count
    FROM {schema}.execution_status s
    WHERE s.plan_time >= %(planned_from)s::timestamptz AND s.plan_time < %(until)s::timestamptz
      AND (%(job)s::text IS NULL OR s.job_name = %(job)s::text)
      AND s.started_at >= %(since)s::timestamptz AND s.started_at < %(until)s::timestamptz
    GROUP BY 1, 2, 3
), ranked AS (
    SELECT c.lane, row_number() OVER (ORDER BY sum(c.count) DESC, c.lane) <= %(lanes)s::integer AS is_shown,
           greatest(count(*) OVER () - %(lanes)s::integer, 0) AS merged
    FROM counted c
    GROUP BY c.lane
)
SELECT CASE WHEN r.is_shown THEN r.lane END AS lane, r.merged, c.bucket, c.status, sum(c.count)::bigint AS count
FROM counted c
JOIN ranked r ON r.lane = c.lane
GROUP BY 1, 2, 3, 4
ORDER BY 1 NULLS LAST, 3, 4
LIMIT %(max_rows)s
