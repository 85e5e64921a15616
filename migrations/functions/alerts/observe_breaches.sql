-- The newest plan_time with judged deadlines decides the state. The state is open from a breach until that deadline is
-- met late, or until a later plan_time has met its deadlines. Messages and backfills have no deadlines. An execution
-- that did not succeed may still have met the deadlines of its start and its duration.
CREATE OR REPLACE FUNCTION {schema}_internal.close_met_deadline(
    state {schema}.tracked_states, before timestamptz, after bigint, opens boolean, closes boolean, paused boolean)
RETURNS void LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    by_start constant boolean := EXISTS (
        SELECT FROM {schema}.jobs j
        WHERE j.name = state.job_name
          AND (j.start_by IS NOT NULL OR j.expect_duration !~ 'p[1-9][0-9][[:space:]]*$'));
    through  constant timestamptz := coalesce((
        -- A job without a cursor has no deadlines any more.
        SELECT c.through FROM {schema}.deadline_cursors c WHERE c.job_name = state.job_name), 'infinity');
    met      record;
BEGIN
    SELECT e.id, e.plan_time, e.plan_time = state.plan_time AS late INTO met
    FROM {schema}.executions e
    WHERE (e.job_name, e.scope_kind, e.scope_id) = (state.job_name, state.scope_kind, state.scope_id)
      AND e.plan_time >= state.plan_time AND e.plan_time < coalesce(before, 'infinity')
      AND (e.plan_time = state.plan_time
           OR e.trigger = 'schedule' AND e.plan_time <= through OR e.trigger = 'manual')
      AND (e.plan_time = state.plan_time OR e.status = 'SUCCESS'
           OR by_start AND e.status IN ('RUNNING', 'FAILED') AND e.started_at IS NOT NULL)
      AND NOT EXISTS (
          SELECT FROM {schema}.deadlines d
          WHERE (d.job_name, d.scope_kind, d.scope_id, d.plan_time)
              = (e.job_name, e.scope_kind, e.scope_id, e.plan_time))
      AND NOT EXISTS (
          SELECT FROM {schema}.manual_deadlines m
          WHERE (m.job_name, m.scope_kind, m.scope_id, m.plan_time)
              = (e.job_name, e.scope_kind, e.scope_id, e.plan_time))
      AND NOT EXISTS (
          SELECT FROM {schema}.deadline_breaches b
          WHERE (b.job_name, b.scope_kind, b.scope_id, b.plan_time)
              = (e.job_name, e.scope_kind, e.scope_id, e.plan_time) AND b.closed_at IS NULL)
    ORDER BY e.plan_time LIMIT 1;
    IF FOUND THEN
        PERFORM {schema}_internal.observe_event(
            ROW(state.channel, 'deadline', state.job_name, state.scope_kind, state.scope_id, '', 0, NULL, NULL, NULL,
                met.id, met.plan_time,
                CASE WHEN met.late THEN format('%s met its deadline late', state.job_name)
                     ELSE format('%s met its deadlines again', state.job_name) END,
                jsonb_build_object('met_late', met.late))::{schema}.tracked_states,
            after, opens, closes, paused);
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.close_met_deadline({schema}.tracked_states, timestamptz, bigint, boolean, boolean, boolean) IS 'Observes whether this open state of the event deadline no longer holds. Looks only at plan_times before the given one; NULL: at all.';

CREATE OR REPLACE FUNCTION {schema}_internal.close_met_deadlines(examined text[], most integer) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    found record;
    total integer := 0;
    last  text[];
BEGIN
    FOR found IN
        SELECT t AS state, r.after, r.opens, r.closes, r.paused
        FROM {schema}.tracked_states t
        JOIN {schema}_internal.alert_rules() r ON (r.job_name, r.event, r.channel) = (t.job_name, t.event, t.channel)
        WHERE t.event = 'deadline' AND t.count > 0
          AND (examined IS NULL OR (t.job_name, t.scope_kind, t.scope_id, t.channel)
                                 > (examined[1], examined[2], examined[3], examined[4]))
        ORDER BY t.job_name, t.scope_kind, t.scope_id, t.channel LIMIT most
    LOOP
        total := total + 1;
        last := ARRAY[(found.state).job_name, (found.state).scope_kind, (found.state).scope_id, (found.state).channel];
        PERFORM {schema}_internal.close_met_deadline(
            found.state, NULL, found.after, found.opens, found.closes, found.paused);
    END LOOP;
    RETURN CASE WHEN total = most THEN last END;
END $$;
COMMENT ON FUNCTION {schema}_internal.close_met_deadlines(text[], integer) IS 'Observes which open states of the event deadline no longer hold: of at most this many after the given one (NULL: from the first one on). Returns the last of them; NULL: none is left.';

CREATE OR REPLACE FUNCTION {schema}_internal.observe_breaches(handled pg_snapshot, upto pg_snapshot, from_at timestamptz)
RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_sort = on SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    left_ constant xid8[] := ARRAY(SELECT pg_snapshot_xip(handled));
    first constant xid8 := pg_snapshot_xmax(handled);
    last  constant xid8 := pg_snapshot_xmax(upto);
    found record;
    state {schema}.tracked_states;
    next_ {schema}.tracked_states;
BEGIN
    FOR found IN
        SELECT b.*, r.channel, r.after, r.opens, r.closes, r.paused
        FROM (SELECT x.* FROM {schema}.deadline_breaches x WHERE x.recorded_xact = ANY (left_)
              UNION ALL
              SELECT x.* FROM {schema}.deadline_breaches x
              WHERE x.recorded_xact >= first AND x.recorded_xact < last) b
        JOIN {schema}_internal.alert_rules() r ON r.job_name = b.job_name AND r.event = 'deadline'
        WHERE pg_visible_in_snapshot(b.recorded_xact, upto) AND b.breached_at >= from_at
          -- A row that fails this condition is not a breach (see the view breaches).
          AND (b.closed_at IS NULL OR b.closed_at > b.deadline)
        ORDER BY b.plan_time, b.breached_at, b.id, r.channel
    LOOP
        SELECT t.* INTO state FROM {schema}.tracked_states t
        WHERE (t.job_name, t.scope_kind, t.scope_id, t.runner_id, t.event, t.channel)
            = (found.job_name, found.scope_kind, found.scope_id, '', 'deadline', found.channel) AND t.count > 0;
        IF state.plan_time < found.plan_time THEN
            PERFORM {schema}_internal.close_met_deadline(
                state, found.plan_time, found.after, found.opens, found.closes, found.paused);
        END IF;
        next_ := ROW(found.channel, 'deadline', found.job_name, found.scope_kind, found.scope_id, '', 1, NULL, NULL, NULL,
            found.execution_id, found.plan_time,
            format(CASE found.kind WHEN 'start_by' THEN '%s did not start by %s'
                                   WHEN 'finish_by' THEN '%s did not succeed by %s'
                                   ELSE '%s ran for longer than expected: until after %s' END,
                   found.job_name, {schema}_internal.utc_text(found.deadline)),
            jsonb_build_object('policy', found.kind, 'deadline', found.deadline))::{schema}.tracked_states;
        IF state.plan_time > found.plan_time THEN
            -- The state stays about the newest plan_time, and counts this one.
            next_ := state;
            next_.count := 1;
        END IF;
        PERFORM {schema}_internal.observe_event(next_, found.after, found.opens, found.closes, found.paused);
    END LOOP;
END $$;
COMMENT ON FUNCTION {schema}_internal.observe_breaches(pg_snapshot, pg_snapshot, timestamptz) IS 'Observes the breaches that were recorded from this instant on, by transactions that are visible in the second snapshot and not in the first one.';
