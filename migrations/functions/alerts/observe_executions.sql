CREATE OR REPLACE FUNCTION {schema}_internal.unhandled_after(handled pg_snapshot, seen pg_snapshot, upto xid8)
RETURNS pg_snapshot LANGUAGE sql IMMUTABLE AS $$
    -- Numbers in progress in the result: those that were not visible in `handled`, and are from upto on or not
    -- visible now either.
    SELECT format('%s:%s:%s', coalesce(min(u.x::text::numeric), e.last::text::numeric), e.last,
                  string_agg(u.x::text, ',' ORDER BY u.x))::pg_snapshot
    FROM (SELECT CASE WHEN upto IS NULL THEN pg_snapshot_xmax(seen)
                      ELSE greatest(upto, pg_snapshot_xmax(handled)) END AS last) e
    LEFT JOIN LATERAL (
        SELECT x FROM pg_snapshot_xip(handled) x
        WHERE x < e.last AND (x >= upto OR NOT pg_visible_in_snapshot(x, seen))
        UNION
        SELECT x FROM pg_snapshot_xip(seen) x WHERE x >= pg_snapshot_xmax(handled) AND x < e.last) u ON true
    GROUP BY e.last
$$;
COMMENT ON FUNCTION {schema}_internal.unhandled_after(pg_snapshot, pg_snapshot, xid8) IS 'Returns the cursor after the changes that are visible in the second snapshot, and have numbers below upto (NULL: all), were observed.';

CREATE OR REPLACE FUNCTION {schema}_internal.observe_executions(handled pg_snapshot, from_at timestamptz, most integer)
RETURNS pg_snapshot LANGUAGE plpgsql
SET enable_seqscan = off SET enable_sort = on SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    seen    constant pg_snapshot := pg_current_snapshot();
    left_   constant xid8[] := ARRAY(SELECT pg_snapshot_xip(handled));
    first   constant xid8 := pg_snapshot_xmax(handled);
    -- A restored dump may contain numbers that this server has not reached. They are not read.
    last    constant xid8 := pg_snapshot_xmax(seen);
    numbers xid8[];
    upto    xid8;
    found   record;
BEGIN
    -- Whole transactions, at least one. Below upto all that is visible is observed.
    numbers := ARRAY(
        SELECT n.x FROM (
            (SELECT e.changed_xact FROM {schema}.executions e WHERE e.changed_xact = ANY (left_)
             ORDER BY e.changed_xact LIMIT most + 1)
            UNION ALL
            (SELECT e.changed_xact FROM {schema}.executions e WHERE e.changed_xact >= first AND e.changed_xact < last
             ORDER BY e.changed_xact LIMIT most + 1)
            UNION ALL
            (SELECT b.recorded_xact FROM {schema}.deadline_breaches b WHERE b.recorded_xact = ANY (left_)
             ORDER BY b.recorded_xact LIMIT most + 1)
            UNION ALL
            (SELECT b.recorded_xact FROM {schema}.deadline_breaches b
             WHERE b.recorded_xact >= first AND b.recorded_xact < last
             ORDER BY b.recorded_xact LIMIT most + 1)
            UNION ALL
            (SELECT k.changed_xact FROM {schema}.skips k
             WHERE k.reason IN ('overlap', 'missed') AND k.changed_xact = ANY (left_)
             ORDER BY k.changed_xact LIMIT most + 1)
            UNION ALL
            (SELECT k.changed_xact FROM {schema}.skips k
             WHERE k.reason IN ('overlap', 'missed') AND k.changed_xact >= first AND k.changed_xact < last
             ORDER BY k.changed_xact LIMIT most + 1)) n(x)
        ORDER BY n.x LIMIT most + 1);
    IF cardinality(numbers) > most THEN
        upto := numbers[most + 1];
        IF upto = numbers[1] THEN
            upto := (upto::text::numeric + 1)::text::xid8;
        END IF;
        upto := CASE WHEN upto < last THEN upto END;
    ELSIF cardinality(numbers) = 0 THEN
        RETURN {schema}_internal.unhandled_after(handled, seen, NULL);
    END IF;
    FOR found IN
        SELECT e.*, s.*, r.channel, r.event, r.after, r.opens, r.closes, r.paused, r.grace
        FROM (SELECT x.* FROM {schema}.executions x WHERE x.changed_xact = ANY (left_)
              UNION ALL
              SELECT x.* FROM {schema}.executions x WHERE x.changed_xact >= first AND x.changed_xact < last) e
        JOIN {schema}_internal.alert_rules() r USING (job_name)
        CROSS JOIN LATERAL (
            SELECT CASE WHEN e.attempts = '[]' THEN e.started_at
                        ELSE (e.attempts #>> '{0,started_at}')::timestamptz END AS first_start) s
        WHERE e.changed_xact < coalesce(upto, '18446744073709551615') AND pg_visible_in_snapshot(e.changed_xact, seen)
          AND e.next_attempt_at IS NULL AND e.finished_at >= from_at
        ORDER BY e.finished_at, e.id, r.channel, r.event
    LOOP
        IF found.event = 'failed' AND found.status IN ('FAILED', 'SUCCESS') THEN
            PERFORM {schema}_internal.observe_event(
                ROW(found.channel, 'failed', found.job_name, found.scope_kind, found.scope_id, '',
                    (found.status = 'FAILED')::integer, NULL, NULL, NULL, found.id, found.plan_time,
                    CASE found.status WHEN 'FAILED' THEN format('%s failed: %s', found.job_name,
                            coalesce(nullif(left(split_part(found.error_msg, chr(10), 1), 200), ''), found.error_code))
                         ELSE format('%s succeeded again', found.job_name) END,
                    jsonb_build_object('status', found.status, 'error_code', found.error_code,
                        'error_msg', left(found.error_msg, 1000), 'output', right(found.output, 1000),
                        'attempt', found.attempt, 'duration_ms', found.duration_ms))::{schema}.tracked_states,
                found.after, found.opens, found.closes, found.paused);
        ELSIF found.event = 'late' AND found.trigger = 'schedule' AND found.first_start IS NOT NULL
              AND found.gated_at IS NULL  -- its wait for required jobs is not lateness
              -- An earlier one, which ran for longer, closes nothing.
              AND (found.first_start > found.due_at + found.grace OR NOT EXISTS (
                  SELECT FROM {schema}.tracked_states t
                  WHERE (t.job_name, t.scope_kind, t.scope_id, t.runner_id, t.event, t.channel)
                      = (found.job_name, found.scope_kind, found.scope_id, '', 'late', found.channel)
                    AND t.plan_time > found.plan_time)) THEN
            PERFORM {schema}_internal.observe_event(
                ROW(found.channel, 'late', found.job_name, found.scope_kind, found.scope_id, '',
                    (found.first_start > found.due_at + found.grace)::integer, NULL, NULL, NULL, found.id,
                    found.plan_time, format('%s started %s after it was due', found.job_name,
                        date_trunc('milliseconds', greatest(found.first_start - found.due_at, '0'))),
                    jsonb_build_object('due_at', found.due_at, 'started_at', found.first_start))::{schema}.tracked_states,
                found.after, found.opens, found.closes, found.paused);
        ELSIF found.event = 'skipped' AND found.trigger = 'schedule' AND found.first_start IS NOT NULL THEN
            -- A run from after the skip. The row of the state is kept.
            PERFORM {schema}_internal.observe_event(
                ROW(t.channel, t.event, t.job_name, t.scope_kind, t.scope_id, '', 0, NULL, NULL, NULL, found.id,
                    found.plan_time, format('%s ran again', found.job_name),
                    jsonb_build_object('status', found.status))::{schema}.tracked_states,
                found.after, found.opens, found.closes, found.paused)
            FROM {schema}.tracked_states t
            WHERE (t.job_name, t.scope_kind, t.scope_id, t.runner_id, t.event, t.channel)
                = (found.job_name, found.scope_kind, found.scope_id, '', 'skipped', found.channel)
              AND t.count > 0 AND found.plan_time > t.seen_plan_time;
        END IF;
    END LOOP;
    RETURN {schema}_internal.unhandled_after(handled, seen, upto);
END $$;
COMMENT ON FUNCTION {schema}_internal.observe_executions(pg_snapshot, timestamptz, integer) IS 'Observes executions whose changes are not visible in this snapshot, and that ended at or after this instant, in the order of their ends. Reads whole transactions, with about this many changed executions and new breaches. Returns the next snapshot.';
