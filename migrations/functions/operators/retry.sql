CREATE OR REPLACE FUNCTION {schema}_internal.check_retry(held {schema}.executions, force boolean)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    definition {schema}.jobs;
BEGIN
    IF held.status IN ('SUCCESS', 'RUNNING', 'PENDING') THEN
        RAISE EXCEPTION 'execution %: it is %; only FAILED and CANCELLED executions can be retried', held.id, held.status
            USING HINT = CASE held.status
                      WHEN 'SUCCESS' THEN 'A success is never overwritten; {schema}.trigger creates another execution.'
                      WHEN 'RUNNING' THEN 'Wait until it ends, or request its end with {schema}.cancel.'
                      ELSE 'It has not started yet.' END,
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    IF held.redacted_at IS NOT NULL THEN
        RAISE EXCEPTION 'execution %: its data was redacted at %, so it cannot run again', held.id,
                {schema}_internal.utc_text(held.redacted_at)
            USING HINT = '{schema}.trigger creates another execution.', ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    SELECT j.* INTO definition FROM {schema}.jobs j WHERE j.name = held.job_name;
    IF NOT FOUND OR definition.retired_at IS NOT NULL THEN
        RAISE EXCEPTION 'execution %: its job % is retired', held.id, held.job_name
            USING HINT = 'Add the job again first.', ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    PERFORM {schema}_internal.refuse_observed(definition);
    IF definition.windows AND held.trigger <> 'enqueue' THEN
        PERFORM {schema}_internal.check_window(held.job_name, held.scope_kind, held.scope_id, held.plan_time);
    END IF;
    IF held.error_code IN ('stale_timeout', 'shutdown', 'not_ended') AND NOT definition.allow_stale_reentry AND NOT force THEN
        RAISE EXCEPTION 'execution %: the end of attempt % is unknown (%), and job % is not reentrant',
                held.id, held.attempt, held.error_code, held.job_name
            USING DETAIL = format('It ran on %s, last seen %s. Its work may be finished, half finished, or still in progress.',
                                  held.runner_id, {schema}_internal.utc_text(held.heartbeat_at)),
                  HINT = 'Make sure that it has ended and may run again; then use force => true.',
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_retry({schema}.executions, boolean) IS 'Raises unless this execution may have one more attempt. With force, the end of its last attempt may be unknown.';

CREATE OR REPLACE FUNCTION {schema}.retry(
    execution_id bigint, force boolean DEFAULT false, requested_by text DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    held    {schema}.executions;
    at      timestamptz;
    outcome text;
    gated   boolean;
BEGIN
    SELECT e.* INTO held FROM {schema}.executions e WHERE e.id = execution_id;
    IF NOT FOUND THEN
        PERFORM {schema}_internal.raise_unknown_execution(execution_id);
    END IF;
    PERFORM FROM {schema}.schedules s
    WHERE (s.job_name, s.scope_kind, s.scope_id) = (held.job_name, held.scope_kind, held.scope_id)
    FOR NO KEY UPDATE;
    -- FOR UPDATE, to wait for a user's assert_lease of the previous attempt, whose effects are undecided until
    -- then.
    SELECT e.* INTO held FROM {schema}.executions e
    WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
        = (held.job_name, held.scope_kind, held.scope_id, held.plan_time) FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM {schema}_internal.raise_unknown_execution(execution_id);  -- dropped with its partition meanwhile
    END IF;
    PERFORM {schema}_internal.check_retry(held, force);
    at := {schema}.db_clock();
    -- Without a token it was never claimed, or was released: it is PENDING again. If it has waited for required jobs,
    -- and did not start, it waits for them again.
    gated := held.gated_at IS NOT NULL AND held.lease_token IS NULL AND held.attempt = 0;
    UPDATE {schema}.executions e
    SET status = CASE WHEN e.lease_token IS NULL THEN 'PENDING' ELSE 'FAILED' END,
        error_code = CASE WHEN e.lease_token IS NOT NULL THEN coalesce(e.error_code, 'cancelled') END,
        finished_at = CASE WHEN e.lease_token IS NOT NULL THEN e.finished_at END,
        next_attempt_at = CASE WHEN gated THEN NULL
                               WHEN e.lease_token IS NULL THEN e.due_at
                               ELSE least(e.next_attempt_at, at) END,
        gated_at = CASE WHEN gated THEN at ELSE e.gated_at END,
        waits_until = CASE WHEN e.lease_token IS NOT NULL THEN e.waits_until END,
        max_attempts = greatest(e.max_attempts, e.attempt + 1), cancel_requested_at = NULL,
        cancel_requested_by = NULL, updated_at = at, changed_xact = pg_current_xact_id()
    WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
        = (held.job_name, held.scope_kind, held.scope_id, held.plan_time);
    IF gated THEN
        INSERT INTO {schema}.gates (job_name, scope_kind, scope_id, plan_time)
        VALUES (held.job_name, held.scope_kind, held.scope_id, held.plan_time);
        PERFORM pg_notify('{schema}', 'gates');
    END IF;
    outcome := CASE WHEN held.next_attempt_at IS NULL THEN 'retried' ELSE 'brought_forward' END;
    PERFORM {schema}_internal.record_action('retry', 'execution', execution_id::text, requested_by, outcome,
        held.job_name, execution_ids => ARRAY[execution_id], arguments => jsonb_build_object('force', force));
    PERFORM pg_notify('{schema}', 'pending');
    RETURN outcome;
END $$;
COMMENT ON FUNCTION {schema}.retry(bigint, boolean, text) IS 'Gives a FAILED or CANCELLED execution one more attempt, which is due now: retried. brought_forward: it was awaiting a retry, which is due now. Raises for other statuses, and unless force is true if the end of the last attempt is unknown and the job is not reentrant. Waits for the locks of its schedule and its own row (lock_timeout).';
