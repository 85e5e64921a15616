-- Whole hours that are counted come from the roll-up, and everything else from executions, by the same rules as in
-- roll_up_hours. complete_before is read in the same statement, so an hour is in exactly one of the two.
CREATE OR REPLACE FUNCTION {schema}.execution_sums(
    job text, scope_kind text, scope_id text, from_plan_time timestamptz, before_plan_time timestamptz,
    OUT success bigint, OUT failed bigint, OUT cancelled bigint, OUT retries bigint, OUT durations bigint,
    OUT duration_ms_sum bigint, OUT duration_ms_min bigint, OUT duration_ms_max bigint,
    OUT duration_ms_p50 double precision, OUT duration_ms_p95 double precision, OUT starts bigint,
    OUT late_ms_sum bigint, OUT late_ms_min bigint, OUT late_ms_max bigint, OUT late_ms_p50 double precision,
    OUT late_ms_p95 double precision)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    WITH counted AS MATERIALIZED (  -- the whole hours in [first, last)
        SELECT h.first, greatest(h.first, h.last) AS last
        FROM (SELECT date_trunc('hour', from_plan_time + interval '1 hour' - interval '1 microsecond', 'UTC') AS first,
                     date_trunc('hour', least(before_plan_time, coalesce(s.complete_before, '-infinity')), 'UTC') AS last
              FROM {schema}.roll_up_state s) h
    ), hours AS MATERIALIZED (
        SELECT r.* FROM {schema}.rolled_up_hours r, counted c
        WHERE (r.job_name, r.scope_kind, r.scope_id) = (job, execution_sums.scope_kind, execution_sums.scope_id)
          AND r.hour >= c.first AND r.hour < c.last
    ), rest AS MATERIALIZED (
        SELECT e.status, greatest(e.attempt - 1, 0) AS retries, e.duration_ms,
               CASE WHEN e.trigger = 'schedule' AND e.attempt = 1 AND e.started_at IS NOT NULL AND e.gated_at IS NULL THEN
                   greatest(0, floor(extract(epoch FROM e.started_at - e.due_at) * 1000))::bigint END AS late_ms
        FROM counted c
        CROSS JOIN LATERAL (
            VALUES (from_plan_time, CASE WHEN c.last > c.first THEN c.first ELSE before_plan_time END),
                   (CASE WHEN c.last > c.first THEN c.last END, before_plan_time)) p(first, last)
        CROSS JOIN LATERAL (
            SELECT x.status, x.attempt, x.duration_ms, x.trigger, x.started_at, x.due_at,
                   x.gated_at
            FROM {schema}.executions x
            WHERE (x.job_name, x.scope_kind, x.scope_id) = (job, execution_sums.scope_kind, execution_sums.scope_id)
              AND x.plan_time >= p.first AND x.plan_time < p.last
              AND x.finished_at IS NOT NULL AND x.next_attempt_at IS NULL
            OFFSET 0) e  -- by the key, part by part: otherwise the whole range would be read
    ), buckets AS MATERIALIZED (
        SELECT b.is_late, b.bucket, sum(b.count)::bigint AS count
        FROM (SELECT false AS is_late, u.bucket, u.count
              FROM hours h CROSS JOIN LATERAL unnest(h.duration_counts) WITH ORDINALITY u(count, bucket)
              UNION ALL
              SELECT true, u.bucket, u.count
              FROM hours h CROSS JOIN LATERAL unnest(h.late_counts) WITH ORDINALITY u(count, bucket)
              UNION ALL
              SELECT false, width_bucket(r.duration_ms, {schema}_internal.bucket_bounds()) + 1, 1
              FROM rest r WHERE r.duration_ms IS NOT NULL
              UNION ALL
              SELECT true, width_bucket(r.late_ms, {schema}_internal.bucket_bounds()) + 1, 1
              FROM rest r WHERE r.late_ms IS NOT NULL) b
        GROUP BY b.is_late, b.bucket
    ), arrays AS MATERIALIZED (
        SELECT x.is_late, array_agg(coalesce(b.count, 0) ORDER BY x.bucket) AS counts
        FROM (SELECT l.is_late, g.bucket FROM (VALUES (false), (true)) l(is_late),
                     generate_series(1, cardinality({schema}_internal.bucket_bounds()) + 1) g(bucket)) x
        LEFT JOIN buckets b USING (is_late, bucket) GROUP BY x.is_late
    ), sums AS (
        SELECT sum(p.success) AS success, sum(p.failed) AS failed, sum(p.cancelled) AS cancelled,
               sum(p.retries) AS retries, sum(p.durations) AS durations, sum(p.duration_sum) AS duration_sum,
               min(p.duration_min) AS duration_min, max(p.duration_max) AS duration_max, sum(p.starts) AS starts,
               sum(p.late_sum) AS late_sum, min(p.late_min) AS late_min, max(p.late_max) AS late_max
        FROM (SELECT h.success, h.failed, h.cancelled, h.retries, h.durations, h.duration_ms_sum AS duration_sum,
                     h.duration_ms_min AS duration_min, h.duration_ms_max AS duration_max, h.starts,
                     h.late_ms_sum AS late_sum, h.late_ms_min AS late_min, h.late_ms_max AS late_max
              FROM hours h
              UNION ALL
              SELECT count(*) FILTER (WHERE r.status = 'SUCCESS'), count(*) FILTER (WHERE r.status = 'FAILED'),
                     count(*) FILTER (WHERE r.status = 'CANCELLED'), sum(r.retries), count(r.duration_ms),
                     sum(r.duration_ms), min(r.duration_ms), max(r.duration_ms), count(r.late_ms), sum(r.late_ms),
                     min(r.late_ms), max(r.late_ms)
              FROM rest r) p
    )
    SELECT coalesce(s.success, 0)::bigint, coalesce(s.failed, 0)::bigint, coalesce(s.cancelled, 0)::bigint,
           coalesce(s.retries, 0)::bigint, coalesce(s.durations, 0)::bigint, coalesce(s.duration_sum, 0)::bigint,
           s.duration_min, s.duration_max,
           greatest(s.duration_min, least(s.duration_max, {schema}.estimated_quantile(d.counts, 0.5))),
           greatest(s.duration_min, least(s.duration_max, {schema}.estimated_quantile(d.counts, 0.95))),
           coalesce(s.starts, 0)::bigint, coalesce(s.late_sum, 0)::bigint, s.late_min, s.late_max,
           greatest(s.late_min, least(s.late_max, {schema}.estimated_quantile(l.counts, 0.5))),
           greatest(s.late_min, least(s.late_max, {schema}.estimated_quantile(l.counts, 0.95)))
    FROM sums s, arrays d, arrays l WHERE NOT d.is_late AND l.is_late
$$;
COMMENT ON FUNCTION {schema}.execution_sums(text, text, text, timestamptz, timestamptz) IS 'Sums the ended executions of one (job, scope) with plan_time in [from_plan_time, before_plan_time), as the view execution_hours does for one hour: counted hours come from the roll-up, and all others from executions. Counts and sums are exact as of the last roll-up; quantiles are estimated, see estimated_quantile(). Always one row.';
