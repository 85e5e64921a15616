-- An instant ahead of the clock was written before the clock was set back. What happened after it was written has earlier
-- times. An hour covers the time until the next step also if no replica runs.
CREATE OR REPLACE FUNCTION {schema}_internal.despite_leap(from_at timestamptz) RETURNS timestamptz
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN CASE WHEN from_at > {schema}.db_clock() THEN {schema}.db_clock() - interval '1 hour' ELSE from_at END;
END $$;
COMMENT ON FUNCTION {schema}_internal.despite_leap(timestamptz) IS 'Returns the instant from which events count that are to count from this one. If it is ahead of the clock, which was set back, the last hour counts.';

CREATE OR REPLACE FUNCTION {schema}_internal.write_alert(state {schema}.tracked_states, kind text)
RETURNS void LANGUAGE sql AS $$
    INSERT INTO {schema}.raised_alerts
        (at, event, kind, channel, since, count, job_name, scope_kind, scope_id, runner_id, execution_id, plan_time,
         summary, details, owner, labels)
    SELECT {schema}.db_clock(), CASE WHEN state.event = 'failed' AND kind = 'closed' THEN 'recovered' ELSE state.event END,
           kind, state.channel, state.since, state.count, nullif(state.job_name, ''), nullif(state.scope_kind, ''),
           nullif(state.scope_id, ''), nullif(state.runner_id, ''), state.execution_id, state.plan_time,
           state.summary, state.details,
           (SELECT j.owner FROM {schema}.jobs j WHERE j.name = state.job_name),
           (SELECT j.labels FROM {schema}.jobs j WHERE j.name = state.job_name)
$$;
COMMENT ON FUNCTION {schema}_internal.write_alert({schema}.tracked_states, text) IS 'Writes an alert of this kind about a state.';

-- A paused job keeps its state: it is flipped after the resume, if what was counted still differs from it.
CREATE OR REPLACE FUNCTION {schema}_internal.flip_state(
    state {schema}.tracked_states, after bigint, opens boolean, closes boolean, paused boolean)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF paused THEN
        RETURN;
    END IF;
    IF state.since IS NULL AND state.count >= after THEN
        state.since := {schema}.db_clock();
        UPDATE {schema}.tracked_states t SET since = state.since, last_alert_at = state.since
        WHERE (t.job_name, t.scope_kind, t.scope_id, t.runner_id, t.event, t.channel)
            = (state.job_name, state.scope_kind, state.scope_id, state.runner_id, state.event, state.channel);
        IF opens THEN
            PERFORM {schema}_internal.write_alert(state, 'opened');
        END IF;
    ELSIF state.count = 0 AND (state.since IS NOT NULL OR state.event <> 'skipped') THEN
        IF state.since IS NOT NULL AND closes THEN
            PERFORM {schema}_internal.write_alert(state, 'closed');
        END IF;
        UPDATE {schema}.tracked_states t SET since = NULL, last_alert_at = NULL
        WHERE (t.job_name, t.scope_kind, t.scope_id, t.runner_id, t.event, t.channel)
            = (state.job_name, state.scope_kind, state.scope_id, state.runner_id, state.event, state.channel)
          AND t.event = 'skipped';  -- which remembers the skips that it has seen
        DELETE FROM {schema}.tracked_states t
        WHERE (t.job_name, t.scope_kind, t.scope_id, t.runner_id, t.event, t.channel)
            = (state.job_name, state.scope_kind, state.scope_id, state.runner_id, state.event, state.channel)
          AND t.event <> 'skipped';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.flip_state({schema}.tracked_states, bigint, boolean, boolean, boolean) IS 'Opens a state whose event has occurred often enough, or closes one whose event no longer holds, and writes the alert. Does nothing while the job is paused.';

-- found: channel, event, and the subject; execution_id, plan_time, summary and details of this occurrence. Its count
-- is 1 if the event occurred, and 0 if it no longer holds.
CREATE OR REPLACE FUNCTION {schema}_internal.observe_event(
    found {schema}.tracked_states, after bigint, opens boolean, closes boolean, paused boolean)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    state {schema}.tracked_states;
BEGIN
    UPDATE {schema}.tracked_states t
    SET count = CASE found.count WHEN 0 THEN 0 ELSE t.count + found.count END,
        seen_plan_time = coalesce(found.seen_plan_time, t.seen_plan_time), execution_id = found.execution_id,
        plan_time = found.plan_time, summary = found.summary, details = found.details
    WHERE (t.job_name, t.scope_kind, t.scope_id, t.runner_id, t.event, t.channel)
        = (found.job_name, found.scope_kind, found.scope_id, found.runner_id, found.event, found.channel)
    RETURNING t.* INTO state;
    IF NOT FOUND THEN
        IF found.count = 0 AND found.seen_plan_time IS NULL THEN
            RETURN;
        END IF;
        INSERT INTO {schema}.tracked_states VALUES (found.*) RETURNING * INTO state;
    END IF;
    PERFORM {schema}_internal.flip_state(state, after, opens, closes, paused);
END $$;
COMMENT ON FUNCTION {schema}_internal.observe_event({schema}.tracked_states, bigint, boolean, boolean, boolean) IS 'Records that an event occurred once more, or no longer holds, and flips its state.';
