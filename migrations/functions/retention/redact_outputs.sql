-- keep_output: the sweeper redacts ended executions of jobs that have it, hour by hour of the roll-up (functions/hours/roll_up_hours.sql).
--
-- oldest_data of an hour is the end of its first execution with data. An execution that ends later changes its hour,
-- and the roll-up then computes oldest_data again. So an hour without due data is not read, whatever its size. All
-- rows of an hour are read in the order of their plan_times; redacted_before is how far a transaction came that
-- reached its limit.
-- Lock: the turn hours, not waited for; if data is due, the turn alerts, waiting; ended executions SKIP LOCKED; then, as
-- in redact(), rows of their alerts, waiting.

CREATE OR REPLACE FUNCTION {schema}_internal.redact_outputs(most integer, OUT redacted integer, OUT unfinished boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    part  record;
    found timestamptz[];
BEGIN
    redacted := 0; unfinished := false;
    IF {schema}_internal.take_turn('hours') IS NOT TRUE THEN
        RETURN;
    END IF;
    FOR part IN
        SELECT h.*, {schema}.db_now() - j.keep_output AS before
        FROM {schema}.jobs j
        CROSS JOIN LATERAL (
            SELECT r.job_name, r.scope_kind, r.scope_id, r.hour, coalesce(r.redacted_before, r.hour) AS first
            FROM {schema}.rolled_up_hours r
            WHERE r.job_name = j.name AND r.oldest_data < {schema}.db_now() - j.keep_output
            ORDER BY r.oldest_data LIMIT 200) h
        WHERE j.keep_output IS NOT NULL LIMIT 200
    LOOP
        EXIT WHEN redacted >= most;
        -- As in redact(): a step that has read these executions writes its alerts first.
        PERFORM {schema}_internal.await_turn('alerts');
        found := ARRAY(
            SELECT e.plan_time FROM {schema}.executions e
            WHERE (e.job_name, e.scope_kind, e.scope_id) = (part.job_name, part.scope_kind, part.scope_id)
              AND e.plan_time >= part.first AND e.plan_time < part.hour + interval '1 hour'
              AND e.finished_at < part.before AND e.next_attempt_at IS NULL AND {schema}_internal.has_data(e)
            ORDER BY e.plan_time LIMIT most - redacted FOR NO KEY UPDATE SKIP LOCKED);
        PERFORM {schema}_internal.redact_executions(part.job_name, part.scope_kind, part.scope_id, found);
        redacted := redacted + cardinality(found);
        IF redacted >= most THEN
            UPDATE {schema}.rolled_up_hours r
            SET redacted_before = found[cardinality(found)] + interval '1 microsecond'
            WHERE (r.job_name, r.scope_kind, r.scope_id, r.hour)
                = (part.job_name, part.scope_kind, part.scope_id, part.hour);
        ELSE
            -- What ended later, and what another transaction has locked.
            UPDATE {schema}.rolled_up_hours r
            SET redacted_before = NULL, oldest_data = (
                SELECT min(e.finished_at) FROM {schema}.executions e
                WHERE (e.job_name, e.scope_kind, e.scope_id) = (part.job_name, part.scope_kind, part.scope_id)
                  AND e.plan_time >= part.hour AND e.plan_time < part.hour + interval '1 hour'
                  AND e.finished_at IS NOT NULL AND e.next_attempt_at IS NULL AND {schema}_internal.has_data(e))
            WHERE (r.job_name, r.scope_kind, r.scope_id, r.hour)
                = (part.job_name, part.scope_kind, part.scope_id, part.hour)
            RETURNING unfinished OR r.oldest_data IS NULL OR r.oldest_data >= part.before INTO unfinished;
        END IF;
    END LOOP;
    unfinished := unfinished OR redacted > 0;
END $$;
COMMENT ON FUNCTION {schema}_internal.redact_outputs(integer) IS 'Redacts at most this many executions whose last attempt ended longer ago than keep_output of their jobs, and returns how many. unfinished: more may be left. No row is redacted while another process runs this or the roll-up.';
