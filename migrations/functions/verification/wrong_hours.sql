-- The check of the roll-up for verify, with sums of its own: it shares no code with roll_up_hours. An hour is left
-- out while it waits to be counted. All tables are read in the snapshot of the caller.
CREATE OR REPLACE FUNCTION {schema}_internal.wrong_hours(jobs text[], first timestamptz, last timestamptz)
RETURNS TABLE (kind text, job_name text, scope_kind text, scope_id text, plan_time timestamptz,
               execution_id bigint, detail text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    WITH due AS MATERIALIZED (
        SELECT h.job_name, h.scope_kind, h.scope_id, h.hour FROM {schema}.changed_hours h
        UNION
        SELECT e.job_name, e.scope_kind, e.scope_id, date_trunc('hour', e.plan_time, 'UTC')
        FROM {schema}.executions e
        WHERE e.changed_xact >= (SELECT s.marked_before FROM {schema}.roll_up_state s)
          -- Once a restored dump is marked, its numbers that this server has not reached are those of marked hours.
          AND e.changed_xact < (
              SELECT CASE WHEN s.restoring OR s.marked_before > pg_snapshot_xmax(pg_current_snapshot())
                          THEN '18446744073709551615' ELSE pg_snapshot_xmax(pg_current_snapshot()) END
              FROM {schema}.roll_up_state s)
    ), ended AS (
        SELECT e.job_name, e.scope_kind, e.scope_id, date_trunc('hour', e.plan_time, 'UTC') AS hour,
               e.status, e.attempt, e.duration_ms, e.changed_xact,
               CASE WHEN e.trigger = 'schedule' AND e.attempt = 1 AND e.started_at IS NOT NULL
                         AND e.gated_at IS NULL
                    THEN greatest(0, trunc(1000 * (extract(epoch FROM e.started_at) - extract(epoch FROM e.due_at))))
               END AS late_ms
        FROM {schema}.executions e
        WHERE e.plan_time >= first AND e.plan_time <= last AND (jobs IS NULL OR e.job_name = ANY (jobs))
          AND (e.status IN ('SUCCESS', 'CANCELLED') OR e.status = 'FAILED' AND e.next_attempt_at IS NULL)
    ), expected AS (
        SELECT e.job_name, e.scope_kind, e.scope_id, e.hour, jsonb_build_object(
            'success', sum((e.status = 'SUCCESS')::integer), 'failed', sum((e.status = 'FAILED')::integer),
            'cancelled', sum((e.status = 'CANCELLED')::integer),
            'retries', sum(CASE WHEN e.attempt > 1 THEN e.attempt - 1 ELSE 0 END),
            'durations', count(e.duration_ms), 'duration_ms', coalesce(sum(e.duration_ms), 0),
            'shortest', min(e.duration_ms), 'longest', max(e.duration_ms),
            'starts', count(e.late_ms), 'late_ms', coalesce(sum(e.late_ms), 0),
            'least late', min(e.late_ms), 'most late', max(e.late_ms)) AS sums,
            bool_or(e.changed_xact IS NOT NULL) AS marked
        FROM ended e GROUP BY 1, 2, 3, 4
    ), found AS (
        SELECT r.job_name, r.scope_kind, r.scope_id, r.hour, jsonb_build_object(
            'success', r.success, 'failed', r.failed, 'cancelled', r.cancelled, 'retries', r.retries,
            'durations', r.durations, 'duration_ms', r.duration_ms_sum, 'shortest', r.duration_ms_min,
            'longest', r.duration_ms_max, 'starts', r.starts, 'late_ms', r.late_ms_sum,
            'least late', r.late_ms_min, 'most late', r.late_ms_max) AS sums,
            (SELECT coalesce(sum(u.n), 0) FROM unnest(r.duration_counts) u(n)) = r.durations
            AND (SELECT coalesce(sum(u.n), 0) FROM unnest(r.late_counts) u(n)) = r.starts
            AND cardinality(r.duration_counts) = (
                SELECT count(*) FILTER (WHERE n <> 1) FROM generate_series(-1, 54) n
                WHERE n = -1 AND r.durations > 0 OR r.duration_ms_max::double precision ^ 2 >= 2::double precision ^ n
                    AND n >= 0)
            AND cardinality(r.late_counts) = (
                SELECT count(*) FILTER (WHERE n <> 1) FROM generate_series(-1, 54) n
                WHERE n = -1 AND r.starts > 0 OR r.late_ms_max::double precision ^ 2 >= 2::double precision ^ n
                    AND n >= 0) AS fits
        FROM {schema}.rolled_up_hours r
        WHERE r.hour >= first AND r.hour <= last AND (jobs IS NULL OR r.job_name = ANY (jobs))
    )
    SELECT 'wrong_hour', c.job_name, c.scope_kind, c.scope_id, c.hour, NULL::bigint,
           CASE WHEN c.found IS NULL THEN format('execution_hours has no row for this hour; its executions: %s', c.expected)
                WHEN c.expected IS NULL THEN format('execution_hours has %s, and no execution of this hour has ended', c.found)
                WHEN c.found = c.expected THEN 'the buckets of execution_hours do not have the durations or latenesses of this hour'
                ELSE format('execution_hours has %s; its executions: %s', c.found, c.expected) END
    FROM (SELECT coalesce(x.job_name, f.job_name) AS job_name, coalesce(x.scope_kind, f.scope_kind) AS scope_kind,
                 coalesce(x.scope_id, f.scope_id) AS scope_id, coalesce(x.hour, f.hour) AS hour,
                 x.sums AS expected, x.marked, f.sums AS found, f.fits
          FROM expected x
          FULL JOIN found f ON (f.job_name, f.scope_kind, f.scope_id, f.hour)
                             = (x.job_name, x.scope_kind, x.scope_id, x.hour)) c
    WHERE (c.found IS DISTINCT FROM c.expected OR NOT c.fits)
      -- Whole hours only, whose executions are kept.
      AND c.hour >= first AND c.hour + interval '1 hour' <= last
      AND c.hour > coalesce((SELECT p.through FROM {schema}.pruned p), '-infinity')
      -- Executions that ended before there was a roll-up are counted only with others of their hour.
      AND (c.found IS NOT NULL OR c.marked)
      AND NOT EXISTS (SELECT FROM due d
                      WHERE (d.job_name, d.scope_kind, d.scope_id, d.hour)
                          = (c.job_name, c.scope_kind, c.scope_id, c.hour))
$$;
COMMENT ON FUNCTION {schema}_internal.wrong_hours(text[], timestamptz, timestamptz) IS 'Lists the whole hours of these jobs (NULL: all) in this range whose sums in execution_hours are not those of their executions, as violations of the kind wrong_hour.';
REVOKE EXECUTE ON FUNCTION {schema}_internal.wrong_hours(text[], timestamptz, timestamptz) FROM PUBLIC;
