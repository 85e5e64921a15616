-- Returns how far the partitions of executions reach ahead without a hole, the partitions that should have
-- been dropped two days ago, and the holes. A hole in the past may have held executions; it counts only
-- after the creation of the first job, and after what was pruned. Also the retention, and the jobs that run
-- plan_times which were missed for longer.
-- No lock. One row. NULL: there are none.
WITH parts AS (
    SELECT q.name, q.from_plan_time, q.before_plan_time,
           lag(q.before_plan_time) OVER (ORDER BY q.from_plan_time) AS previous
    FROM {schema}.partitions() q
), kept AS (
    SELECT greatest(coalesce(min(h.effective_from), {schema}.db_now()),
                    {schema}.pruned_through() + interval '1 microsecond') AS since
    FROM {schema}.job_history h
), holes AS (
    SELECT greatest(p.previous, k.since) AS from_, p.from_plan_time AS before_,
           p.from_plan_time <= {schema}.db_now() AS past
    FROM parts p CROSS JOIN kept k
    WHERE greatest(p.previous, k.since) < p.from_plan_time
)
SELECT coalesce((SELECT min(h.from_) FROM holes h WHERE NOT h.past),
                (SELECT max(p.before_plan_time) FROM parts p)) - {schema}.db_now() AS ahead,
       (SELECT count(*) FROM parts) AS partitions,
       (SELECT array_agg(p.name ORDER BY p.from_plan_time) FROM parts p
        WHERE p.before_plan_time < {schema}.db_now() - r.keep - interval '2 days') AS kept,
       -- Work that is enqueued for later than the 28 days made ahead has partitions of its own.
       (SELECT array_agg(h.from_ ORDER BY h.from_) FROM holes h
        WHERE h.from_ < {schema}.db_now() + interval '28 days') AS holes_from,
       (SELECT array_agg(h.before_ ORDER BY h.from_) FROM holes h
        WHERE h.from_ < {schema}.db_now() + interval '28 days') AS holes_before,
       (SELECT array_agg(d.name ORDER BY d.name) FROM {schema}.job_details d
        WHERE d.catch_up_window > r.keep AND d.catch_up <> 'skip' AND d.retired_at IS NULL) AS forgetful,
       r.keep AS retention, {schema}.db_now() AS now
FROM {schema}.retention_status r
