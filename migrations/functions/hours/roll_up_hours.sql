-- The roll-up of hours: sums of ended executions by (job, scope) and hour of plan_time.
--
-- Marking reads what transactions from marked_before on have changed, by the index executions_changed, and marks
-- its hours in changed_hours. marked_before then moves to the oldest open transaction: all changes below it are
-- committed, and were visible. The roll-up selects marked hours that are over, and sums all their executions again.
-- A change that commits in between has a number from marked_before on, so the next marking finds it. Nothing is
-- added to an old sum, so both may be repeated, and may be interrupted anywhere.
-- One process at a time marks or counts. Lock: the turn hours, then rows of these three tables, after none of the
-- tables of the lock order.

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
    IF {schema}_internal.take_turn('hours') IS NOT TRUE THEN
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
                   count(l.ms) AS starts, sum(l.ms) AS late_sum, min(l.ms) AS late_min, max(l.ms) AS late_max,
                   min(e.finished_at) FILTER (WHERE {schema}_internal.has_data(e)) AS oldest_data
            FROM {schema}.executions e
            CROSS JOIN LATERAL (SELECT CASE WHEN e.trigger = 'schedule' AND e.attempt = 1
                                                  AND e.started_at IS NOT NULL AND e.gated_at IS NULL THEN
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
               max(g.late_max) AS late_max, min(g.oldest_data) AS oldest_data
        FROM groups g GROUP BY 1
    ), emptied AS (
        DELETE FROM {schema}.rolled_up_hours r USING hours h
        WHERE (r.job_name, r.scope_kind, r.scope_id, r.hour) = (h.job_name, h.scope_kind, h.scope_id, h.hour)
          AND h.number NOT IN (SELECT s.number FROM sums s)
    ), written AS (
        INSERT INTO {schema}.rolled_up_hours AS r
            (job_name, scope_kind, scope_id, hour, success, failed, cancelled, retries, durations, duration_ms_sum, duration_ms_min, duration_ms_max,
             duration_counts, starts, late_ms_sum, late_ms_min, late_ms_max, late_counts, rolled_up_at,
             oldest_data)
        SELECT h.job_name, h.scope_kind, h.scope_id, h.hour, s.success, s.failed, s.cancelled, s.retries,
               s.durations, coalesce(s.duration_sum, 0), s.duration_min, s.duration_max, coalesce(d.counts, '{}'),
               s.starts, coalesce(s.late_sum, 0), s.late_min, s.late_max, coalesce(l.counts, '{}'),
               {schema}.db_now(), s.oldest_data
        FROM hours h JOIN sums s USING (number)
        LEFT JOIN duration_arrays d USING (number) LEFT JOIN late_arrays l USING (number)
        ON CONFLICT (job_name, scope_kind, scope_id, hour) DO UPDATE
        SET success = EXCLUDED.success, failed = EXCLUDED.failed, cancelled = EXCLUDED.cancelled,
            retries = EXCLUDED.retries, durations = EXCLUDED.durations, duration_ms_sum = EXCLUDED.duration_ms_sum,
            duration_ms_min = EXCLUDED.duration_ms_min, duration_ms_max = EXCLUDED.duration_ms_max, duration_counts = EXCLUDED.duration_counts,
            starts = EXCLUDED.starts, late_ms_sum = EXCLUDED.late_ms_sum, late_ms_min = EXCLUDED.late_ms_min,
            late_ms_max = EXCLUDED.late_ms_max, late_counts = EXCLUDED.late_counts, rolled_up_at = EXCLUDED.rolled_up_at,
            oldest_data = EXCLUDED.oldest_data, redacted_before = NULL
    )
    SELECT count(*) INTO counted FROM hours;
    RETURN counted;
END $$;
COMMENT ON FUNCTION {schema}_internal.roll_up_hours(integer) IS 'Counts at most this many marked hours that are over, and returns how many. 0: no such hour is left, or another process counts them.';
