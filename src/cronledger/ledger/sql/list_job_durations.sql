-- Lists the median and the 95th percentile of the durations of these jobs in milliseconds, over all of their scopes,
-- estimated from the newest max_rows counted hours of each job since an instant. No lock. Zero rows for a job: none of
-- these hours has a duration.
SELECT h.job_name,
       greatest(h.least, least(h.greatest, {schema}.estimated_quantile(h.counts, 0.5))) AS p50,
       greatest(h.least, least(h.greatest, {schema}.estimated_quantile(h.counts, 0.95))) AS p95
FROM (
    SELECT b.job_name, array_agg(b.count ORDER BY b.bucket) AS counts, min(b.least) AS least,
           max(b.greatest) AS greatest
    FROM (
        SELECT n.job_name, u.bucket, sum(u.count)::bigint AS count, min(r.duration_ms_min) AS least,
               max(r.duration_ms_max) AS greatest
        FROM unnest(%(names)s::text[]) n(job_name)
        CROSS JOIN LATERAL (
            SELECT x.duration_counts, x.duration_ms_min, x.duration_ms_max FROM {schema}.execution_hours x
            WHERE x.job_name = n.job_name AND x.hour >= %(since)s::timestamptz
            ORDER BY x.hour DESC LIMIT %(max_rows)s
        ) r
        CROSS JOIN LATERAL unnest(r.duration_counts) WITH ORDINALITY u(count, bucket)
        GROUP BY n.job_name, u.bucket
    ) b
    GROUP BY b.job_name
) h
