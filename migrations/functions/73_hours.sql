-- The roll-up of hours: sums of ended executions by (job, scope) and hour of plan_time.
--
-- Marking reads what transactions from marked_before on have changed, by the index executions_changed, and marks
-- its hours in changed_hours. marked_before then moves to the oldest open transaction: all changes below it are
-- committed, and were visible. Counting takes marked hours that are over, and sums all of their executions anew.
-- A change that commits in between has a number from marked_before on, so the next marking finds it. Nothing is
-- added to an old sum, so both may be repeated, and may be interrupted anywhere.
-- One process at a time marks or counts (an advisory lock). Lock: rows of these three tables, after none of the
-- tables of the lock order.

-- Bounds of the buckets: the powers of the root of 2, rounded up. The quotient of two values in one bucket is
-- less than 1.42, so their geometric mean is wrong by 19 % at most.
CREATE OR REPLACE FUNCTION {schema}_internal.bucket_bounds() RETURNS bigint[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ARRAY[
        1, 2, 3, 4, 6, 8, 12, 16, 23, 32, 46, 64, 91, 128, 182, 256, 363, 512, 725, 1024, 1449,
        2048, 2897, 4096, 5793, 8192, 11586, 16384, 23171, 32768, 46341, 65536, 92682, 131072,
        185364, 262144, 370728, 524288, 741456, 1048576, 1482911, 2097152, 2965821, 4194304,
        5931642, 8388608, 11863284, 16777216, 23726567, 33554432, 47453133, 67108864, 94906266,
        134217728]::bigint[]
$$;
COMMENT ON FUNCTION {schema}_internal.bucket_bounds() IS 'Returns the least value of each bucket from the second on, in milliseconds. The first bucket holds 0.';

CREATE OR REPLACE FUNCTION {schema}.estimated_quantile(counts bigint[], share double precision)
RETURNS double precision LANGUAGE sql IMMUTABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN r.bucket = 1 THEN 0
                ELSE sqrt(b.bounds[r.bucket - 1] * coalesce(b.bounds[r.bucket] - 1, b.bounds[r.bucket - 1])::double precision) END
    FROM (SELECT {schema}_internal.bucket_bounds() AS bounds) b,
         (SELECT u.bucket::integer AS bucket, sum(u.count) OVER (ORDER BY u.bucket) AS upto,
                 sum(u.count) OVER () AS total
          FROM unnest(counts) WITH ORDINALITY u(count, bucket)) r
    WHERE r.total > 0 AND r.upto >= greatest(1, ceil(r.total * share::numeric))
    ORDER BY r.bucket LIMIT 1
$$;
COMMENT ON FUNCTION {schema}.estimated_quantile(bigint[], double precision) IS 'Estimates a quantile, such as 0.95, in milliseconds, from duration_counts or late_counts of execution_hours, or from the sums of several of them by element. The estimate is wrong by 19 % at most, and exact for 0 to 3 ms. Bucket 1 holds 0; bucket n holds values from the (n-1)th bound on; the bounds are the powers of the root of 2, rounded up: 1, 2, 3, 4, 6, 8, 12, 16, 23, 32 and so on. NULL: there are no values.';

CREATE OR REPLACE FUNCTION {schema}_internal.mark_changed_hours(after xid8, most integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
-- A new partition looks empty to the planner, which would read all of it.
SET enable_seqscan = off SET enable_sort = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    state   {schema}.roll_up_state;
    horizon xid8 := pg_snapshot_xmin(pg_current_snapshot());
    since   xid8;
    upto    xid8;
    last    xid8;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('{schema}.roll_up_hours', 0)) THEN
        RETURN NULL;
    END IF;
    SELECT s.* INTO state FROM {schema}.roll_up_state s;
    -- Numbers go back when a dump is restored into another server. All its executions are marked once; afterwards
    -- numbers that this server has not reached are not read.
    state.restoring := state.restoring OR horizon < state.marked_before;
    since := greatest(CASE WHEN state.restoring THEN '3' ELSE state.marked_before END, after);
    last := CASE WHEN state.restoring THEN '18446744073709551615' ELSE pg_snapshot_xmax(pg_current_snapshot()) END;
    -- All changes of one transaction together, at least one transaction.
    SELECT e.changed_xact INTO upto FROM {schema}.executions e
    WHERE e.changed_xact >= since AND e.changed_xact < last
    ORDER BY e.changed_xact OFFSET most LIMIT 1;
    IF upto = since THEN
        upto := (upto::text::numeric + 1)::text::xid8;
    END IF;
    -- Without upto also the changes of transactions that are not below the horizon, which the next call marks
    -- again, so that everything is counted that was committed when this statement began.
    INSERT INTO {schema}.changed_hours AS h (hour, job_name, scope_kind, scope_id, changes)
    SELECT date_trunc('hour', e.plan_time, 'UTC'), e.job_name, e.scope_kind, e.scope_id, count(*)
    FROM {schema}.executions e
    WHERE e.changed_xact >= since AND e.changed_xact < coalesce(upto, last)
    GROUP BY 1, 2, 3, 4
    ON CONFLICT (hour, job_name, scope_kind, scope_id) DO UPDATE SET changes = h.changes + EXCLUDED.changes;
    UPDATE {schema}.roll_up_state s
    SET marked_before = least(upto, horizon), restoring = state.restoring AND upto IS NOT NULL,
        marked_at = CASE WHEN upto IS NULL THEN {schema}.db_now() ELSE s.marked_at END
    WHERE s.marked_before <> least(upto, horizon) OR upto IS NULL;
    RETURN upto::text;
END $$;
COMMENT ON FUNCTION {schema}_internal.mark_changed_hours(xid8, integer) IS 'Marks the hours of executions that have changed since the last call, or by transactions from this number on: of about this many executions, and of whole transactions. Returns the number from which the next call has to go on; NULL: all are marked, or another process does it.';

-- The oldest hours first. Hours of more than a million executions come after all others, each alone, so that one
-- that takes too long for a transaction does not keep others from being counted.
CREATE OR REPLACE FUNCTION {schema}_internal.hours_to_count(over timestamptz, most integer) RETURNS tid[]
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    large constant bigint := 1000000;
    chosen tid[];
BEGIN
    SELECT array_agg(q.place) INTO chosen
    FROM (SELECT p.place, sum(p.size) OVER (ORDER BY p.hour, p.job_name, p.scope_kind, p.scope_id) - p.size AS before
          FROM (SELECT c.*, c.ctid AS place, s.size
                FROM {schema}.changed_hours c
                CROSS JOIN LATERAL (
                    SELECT greatest(c.changes, max(r.success + r.failed + r.cancelled)) AS size
                    FROM {schema}.rolled_up_hours r
                    WHERE (r.job_name, r.scope_kind, r.scope_id, r.hour)
                        = (c.job_name, c.scope_kind, c.scope_id, c.hour)) s
                WHERE c.hour < over AND s.size <= large
                ORDER BY c.hour, c.job_name, c.scope_kind, c.scope_id LIMIT most) p) q
    WHERE q.before < large;
    IF chosen IS NULL THEN
        SELECT array_agg(c.ctid) INTO chosen
        FROM (SELECT d.ctid FROM {schema}.changed_hours d WHERE d.hour < over
              ORDER BY d.hour, d.job_name, d.scope_kind, d.scope_id LIMIT 1) c;
    END IF;
    RETURN chosen;
END $$;
COMMENT ON FUNCTION {schema}_internal.hours_to_count(timestamptz, integer) IS 'Returns the rows of changed_hours before this hour that the next transaction counts: at most this many, and of about a million executions at most; or one larger hour, if there are no others. NULL: there are none.';

CREATE OR REPLACE FUNCTION {schema}_internal.roll_up_hours(most integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    bounds  constant bigint[] := {schema}_internal.bucket_bounds();
    over    timestamptz;
    chosen  tid[];
    counted integer;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('{schema}.roll_up_hours', 0)) THEN
        RETURN 0;
    END IF;
    -- An hour is not counted while most of its executions are still to end.
    SELECT date_trunc('hour', s.marked_at - interval '5 minutes', 'UTC') INTO over FROM {schema}.roll_up_state s;
    chosen := {schema}_internal.hours_to_count(over, most);
    IF chosen IS NULL THEN
        UPDATE {schema}.roll_up_state s SET complete_before = over WHERE s.complete_before IS DISTINCT FROM over;
        RETURN 0;
    END IF;
    WITH taken AS MATERIALIZED (
        DELETE FROM {schema}.changed_hours h WHERE h.ctid = ANY (chosen) RETURNING h.*
    ), hours AS MATERIALIZED (
        SELECT row_number() OVER () AS number, t.* FROM taken t
    ), groups AS MATERIALIZED (
        SELECT h.number, g.*
        FROM hours h CROSS JOIN LATERAL (
            SELECT width_bucket(e.duration_ms, bounds) + 1 AS duration_bucket,
                   width_bucket(l.ms, bounds) + 1 AS late_bucket,
                   count(*) FILTER (WHERE e.status = 'SUCCESS') AS success,
                   count(*) FILTER (WHERE e.status = 'FAILED') AS failed,
                   count(*) FILTER (WHERE e.status = 'CANCELLED') AS cancelled,
                   sum(greatest(e.attempt - 1, 0)) AS retries,
                   count(e.duration_ms) AS durations, sum(e.duration_ms) AS duration_sum,
                   min(e.duration_ms) AS duration_min, max(e.duration_ms) AS duration_max,
                   count(l.ms) AS starts, sum(l.ms) AS late_sum, min(l.ms) AS late_min, max(l.ms) AS late_max
            FROM {schema}.executions e
            CROSS JOIN LATERAL (SELECT CASE WHEN e.trigger = 'schedule' AND e.attempt = 1 THEN
                greatest(0, floor(extract(epoch FROM e.started_at - e.due_at) * 1000))::bigint END AS ms) l
            WHERE (e.job_name, e.scope_kind, e.scope_id) = (h.job_name, h.scope_kind, h.scope_id)
              AND e.plan_time >= h.hour AND e.plan_time < h.hour + interval '1 hour'
              AND e.finished_at IS NOT NULL AND e.next_attempt_at IS NULL
            GROUP BY 1, 2) g
    ), duration_buckets AS (
        SELECT g.number, g.duration_bucket AS bucket, sum(g.durations) AS count
        FROM groups g WHERE g.durations > 0 GROUP BY 1, 2
    ), late_buckets AS (
        SELECT g.number, g.late_bucket AS bucket, sum(g.starts) AS count
        FROM groups g WHERE g.starts > 0 GROUP BY 1, 2
    ), duration_arrays AS (
        SELECT m.number, array_agg(coalesce(d.count, 0)::integer ORDER BY b.bucket) AS counts
        FROM (SELECT d.number, max(d.bucket) AS last FROM duration_buckets d GROUP BY 1) m
        CROSS JOIN LATERAL generate_series(1, m.last) b(bucket)
        LEFT JOIN duration_buckets d ON (d.number, d.bucket) = (m.number, b.bucket) GROUP BY 1
    ), late_arrays AS (
        SELECT m.number, array_agg(coalesce(l.count, 0)::integer ORDER BY b.bucket) AS counts
        FROM (SELECT l.number, max(l.bucket) AS last FROM late_buckets l GROUP BY 1) m
        CROSS JOIN LATERAL generate_series(1, m.last) b(bucket)
        LEFT JOIN late_buckets l ON (l.number, l.bucket) = (m.number, b.bucket) GROUP BY 1
    ), sums AS MATERIALIZED (
        SELECT g.number, sum(g.success) AS success, sum(g.failed) AS failed, sum(g.cancelled) AS cancelled,
               sum(g.retries) AS retries, sum(g.durations) AS durations, sum(g.duration_sum) AS duration_sum,
               min(g.duration_min) AS duration_min, max(g.duration_max) AS duration_max,
               sum(g.starts) AS starts, sum(g.late_sum) AS late_sum, min(g.late_min) AS late_min,
               max(g.late_max) AS late_max
        FROM groups g GROUP BY 1
    ), emptied AS (
        DELETE FROM {schema}.rolled_up_hours r USING hours h
        WHERE (r.job_name, r.scope_kind, r.scope_id, r.hour) = (h.job_name, h.scope_kind, h.scope_id, h.hour)
          AND h.number NOT IN (SELECT s.number FROM sums s)
    ), written AS (
        INSERT INTO {schema}.rolled_up_hours AS r
            (job_name, scope_kind, scope_id, hour, success, failed, cancelled, retries, durations, duration_ms_sum, duration_ms_min, duration_ms_max,
             duration_counts, starts, late_ms_sum, late_ms_min, late_ms_max, late_counts, rolled_up_at)
        SELECT h.job_name, h.scope_kind, h.scope_id, h.hour, s.success, s.failed, s.cancelled, s.retries,
               s.durations, coalesce(s.duration_sum, 0), s.duration_min, s.duration_max, coalesce(d.counts, '{}'),
               s.starts, coalesce(s.late_sum, 0), s.late_min, s.late_max, coalesce(l.counts, '{}'),
               {schema}.db_now()
        FROM hours h JOIN sums s USING (number)
        LEFT JOIN duration_arrays d USING (number) LEFT JOIN late_arrays l USING (number)
        ON CONFLICT (job_name, scope_kind, scope_id, hour) DO UPDATE
        SET success = EXCLUDED.success, failed = EXCLUDED.failed, cancelled = EXCLUDED.cancelled,
            retries = EXCLUDED.retries, durations = EXCLUDED.durations, duration_ms_sum = EXCLUDED.duration_ms_sum,
            duration_ms_min = EXCLUDED.duration_ms_min, duration_ms_max = EXCLUDED.duration_ms_max, duration_counts = EXCLUDED.duration_counts,
            starts = EXCLUDED.starts, late_ms_sum = EXCLUDED.late_ms_sum, late_ms_min = EXCLUDED.late_ms_min,
            late_ms_max = EXCLUDED.late_ms_max, late_counts = EXCLUDED.late_counts, rolled_up_at = EXCLUDED.rolled_up_at
    )
    SELECT count(*) INTO counted FROM hours;
    RETURN counted;
END $$;
COMMENT ON FUNCTION {schema}_internal.roll_up_hours(integer) IS 'Counts at most this many marked hours that are over, and returns how many. 0: no such hour is left, or another process counts them.';

CREATE OR REPLACE FUNCTION {schema}_internal.prune_hours(most integer) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH gone AS (
        DELETE FROM {schema}.rolled_up_hours r
        WHERE r.ctid = ANY (ARRAY(
            SELECT o.ctid FROM {schema}.rolled_up_hours o
            WHERE o.hour <= (SELECT p.through FROM {schema}.pruned p) ORDER BY o.hour LIMIT most))
        RETURNING 1
    ) SELECT count(*) FROM gone
$$;
COMMENT ON FUNCTION {schema}_internal.prune_hours(integer) IS 'Deletes at most this many hours whose executions may have been pruned, the oldest first, and returns how many.';

CREATE OR REPLACE FUNCTION {schema}.rolled_up_before() RETURNS timestamptz
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.complete_before FROM {schema}.roll_up_state s
$$;
COMMENT ON FUNCTION {schema}.rolled_up_before() IS 'Returns the instant before which all hours are in execution_hours, with all changes up to the last roll-up. Count the executions of later hours themselves. NULL: no hour is.';

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
               CASE WHEN e.trigger = 'schedule' AND e.attempt = 1 THEN
                   greatest(0, floor(extract(epoch FROM e.started_at - e.due_at) * 1000))::bigint END AS late_ms
        FROM counted c
        CROSS JOIN LATERAL (
            VALUES (from_plan_time, CASE WHEN c.last > c.first THEN c.first ELSE before_plan_time END),
                   (CASE WHEN c.last > c.first THEN c.last END, before_plan_time)) p(first, last)
        CROSS JOIN LATERAL (
            SELECT x.status, x.attempt, x.duration_ms, x.trigger, x.started_at, x.due_at FROM {schema}.executions x
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
