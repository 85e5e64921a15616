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
    IF {schema}_internal.take_turn('hours') IS NOT TRUE THEN
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
